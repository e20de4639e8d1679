"""Where the gateways of a node are reached."""

from __future__ import annotations

import socket
from typing import NamedTuple

from penstock.server.config import NodeConfig
from penstock.server.errors import ListenError

_ANY_ADDRESS = ("0.0.0.0", "::", "")


class Listener(NamedTuple):
    """Where a gateway is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def advertised_host(config: NodeConfig) -> str:
    """The host that others are told to connect to."""
    if config.advertised_host is not None:
        return config.advertised_host
    return socket.gethostname() if config.host in _ANY_ADDRESS else config.host


def cannot_listen(key: str, host: str, port: int, error: OSError) -> ListenError:
    """The error of a listener that cannot have its port."""
    option = "--" + key.replace("_", "-")
    reason = error.strerror or str(error)
    where = Listener(host, port)
    return ListenError(f"cannot listen on {where}: {reason}; choose another --host or {option} (0 picks a free one)")
