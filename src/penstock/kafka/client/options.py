"""How a client reaches a cluster: addresses, timeouts, TLS and sign-in, and what its user calls these settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.kafka.client.address import Address


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """TLS and SASL of a client. Certificates are files in PEM; without `username` it does not sign in. With `needs_sasl` false,
    a node that asks for no sign-in is accepted as it is."""

    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    checks_host: bool = True
    username: str | None = None
    password: str | None = None
    mechanism: str = "PLAIN"
    needs_sasl: bool = True

    def __repr__(self) -> str:
        return f"ClientSecurity(tls={self.tls}, username={self.username!r})"  # never log a password


class SettingNames(NamedTuple):
    """What the user calls the settings that error messages refer to."""

    bootstrap: str = "bootstrap"
    timeout: str = "request_timeout_s"
    mechanism: str = "mechanism"
    sign_in: str = "username"
    tls: str = "ca_file"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """`request_timeout_s` bounds one request, `api_timeout_s` a call with its retries. Without `waits_for_first_node` a client
    that has never reached a node does not retry; with it, for `first_node_timeout_s`."""

    bootstrap: tuple[Address, ...]
    client_id: str = "penstock"
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0
    security: ClientSecurity = ClientSecurity()
    names: SettingNames = field(default_factory=SettingNames)
    waits_for_first_node: bool = True
    first_node_timeout_s: float = math.inf
