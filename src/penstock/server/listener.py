"""Where the gateways of a node are reached."""

from __future__ import annotations

import errno
import socket
from typing import Final, NamedTuple

from penstock.server.config import NodeConfig
from penstock.server.errors import ListenError

_ANY_ADDRESS = ("0.0.0.0", "::", "")
_PORTS: Final = (
    "kafka_port",
    "kafka_tls_port",
    "http_port",
    "schema_registry_port",
    "yt_port",
    "ydb_port",
    "stream_port",
    "stream_http_port",
)


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


def check_ports(config: NodeConfig) -> None:
    """Raise ListenError if another process listens at a port of a node, before anything depends on it. Nothing listens meanwhile,
    so that no client connects to what is not there yet. Whatever else is wrong with an address, its listener tells."""
    for key in _PORTS:
        port = getattr(config, key)
        if not port:
            continue
        try:
            _bind_and_close(config.host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise cannot_listen(key, config.host, port, error) from error


def _bind_and_close(host: str, port: int) -> None:
    """Take a port at every address that the name of the host stands for, as listeners do, for a moment."""
    for family, _, _, _, address in socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Connections of a node that has just ended are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
