"""Where etcd is and how to sign in to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.core.errors import ConfigError

CALL_S: Final = 0.5
"""Deadline of one attempt at one endpoint."""
READ_S: Final = 2.0
"""Deadline of a call that may try several endpoints."""
DEFAULT_PORT: Final = 2379


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """How to reach etcd. `endpoints` are URLs; with https the CA is that of the system unless one is named."""

    endpoints: tuple[str, ...]
    prefix: str
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str = ""
    password: str = ""
    call_s: float = CALL_S
    read_s: float = READ_S

    def __post_init__(self) -> None:
        schemes = {urlsplit(endpoint).scheme for endpoint in self.endpoints}
        if not self.endpoints or not schemes <= {"http", "https"} or len(schemes) > 1:
            raise ConfigError(
                f"the endpoints of etcd are {', '.join(self.endpoints) or 'missing'}: name URLs such as http://10.0.0.1:2379,"
                " all of them http or all https"
            )
        for endpoint in self.endpoints:
            _target(endpoint)
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("a client certificate for etcd needs its key, and a key its certificate: name both or neither")
        if not self.uses_tls and (self.ca_file is not None or self.cert_file is not None):
            raise ConfigError("a CA or certificate for etcd is of no use with http:// endpoints; write https://")
        if bool(self.user) != bool(self.password):
            raise ConfigError("etcd's user needs a password, and a password a user: name both or neither")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return urlsplit(self.endpoints[0]).scheme == "https"

    @property
    def targets(self) -> tuple[str, ...]:
        """The endpoints as gRPC wants them."""
        return tuple(_target(endpoint) for endpoint in self.endpoints)


def _target(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if not parts.hostname or not port or parts.path.strip("/") or parts.query or parts.username:
        raise ConfigError(f"{endpoint} is not an endpoint of etcd; write http://HOST:PORT or https://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}"
