"""The port to the network, and the real one: TCP with TLS between machines, Unix sockets within one.

An address is `unix:PATH` or `HOST:PORT`. A Unix socket is for the user of this process alone, by its file permissions. A TCP
listener needs TLS files unless it is on the loopback interface, where every user of the machine could connect to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import stat
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from penstock.core.errors import ConfigError
from penstock.interconnect.connection import Connection
from penstock.interconnect.tls import TlsFiles

log = logging.getLogger(__name__)

UNIX: Final = "unix:"
UNIX_PATH_BYTES_MAX: Final = 107
BACKLOG: Final = 128
ACCEPT_RETRY_S: Final = 0.1

Factory = Callable[[bool], Connection]  # makes the protocol of a connection, told whether TLS protects it


class NetworkListener(Protocol):
    """A socket that accepts connections. `address` is the one to connect to, with the port that was chosen for port 0."""

    address: str

    async def close(self) -> None:
        """Accept no more; connections that were made stay."""
        ...


class Network(Protocol):
    """What connects nodes."""

    async def connect(self, address: str, factory: Factory) -> Connection:
        """Connect; raises OSError."""
        ...

    async def listen(self, address: str, factory: Factory) -> NetworkListener:
        """Accept connections; raises OSError, or ConfigError for an address that must not or cannot be used."""
        ...


class SocketNetwork:
    """The sockets of this machine."""

    def __init__(self, tls: TlsFiles | None = None, *, handshake_timeout_s: float = 3.0) -> None:
        self._tls = tls
        self._handshake_timeout_s = handshake_timeout_s

    async def connect(self, address: str, factory: Factory) -> Connection:
        """Connect, and with TLS shake hands."""
        loop = asyncio.get_running_loop()
        if address.startswith(UNIX):
            _, connection = await loop.create_unix_connection(lambda: factory(False), address[len(UNIX) :])
            return connection
        host, port = split_address(address)
        if self._tls is None:
            _, connection = await loop.create_connection(lambda: factory(False), host, port)
            return connection
        _, connection = await loop.create_connection(
            lambda: factory(True),
            host,
            port,
            ssl=self._tls.client_context(),
            server_hostname=host,
            ssl_handshake_timeout=self._handshake_timeout_s,
        )
        return connection

    async def listen(self, address: str, factory: Factory) -> NetworkListener:
        """Accept connections of the right kind for the address."""
        loop = asyncio.get_running_loop()
        if address.startswith(UNIX):
            path = address[len(UNIX) :]
            server = await loop.create_unix_server(lambda: factory(False), sock=_private_socket(path), backlog=BACKLOG)
            return _SocketListener(server, address, path)
        host, port = split_address(address)
        if self._tls is None:
            if not _is_loopback(host):
                raise ConfigError(
                    f"the interconnect would listen on {address} without TLS, open to all; give it TLS files (a certificate, its "
                    "key and the CA of the cluster), or an address of the loopback interface"
                )
            server = await loop.create_server(lambda: factory(False), host, port, backlog=BACKLOG)
            return _SocketListener(server, f"{host}:{server.sockets[0].getsockname()[1]}")
        self._tls.server_context()  # reports wrong files now
        sock = _tcp_socket(host, port)
        return _TlsListener(sock, f"{host}:{sock.getsockname()[1]}", self._tls, factory, self._handshake_timeout_s)


class _SocketListener:
    """A listening socket; one with a path is removed with its file."""

    def __init__(self, server: asyncio.Server, address: str, path: str = "") -> None:
        self._server = server
        self.address = address
        self._path = path

    async def close(self) -> None:
        self._server.close()
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


class _TlsListener:
    """Accepts TCP connections and shakes hands with each, with the certificates as they are at that moment. The connection exists
    before the handshake, so that it counts as a stranger meanwhile."""

    def __init__(self, sock: socket.socket, address: str, tls: TlsFiles, factory: Factory, handshake_timeout_s: float) -> None:
        self.address = address
        self._socket = sock
        self._tls = tls
        self._factory = factory
        self._timeout_s = handshake_timeout_s
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept(), name="interconnect-accept")

    async def close(self) -> None:
        tasks = [self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._socket.close()

    async def _accept(self) -> None:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(self._socket)
            except OSError as error:
                # No file descriptor is free, or the peer is gone already.
                log.warning("a connection of a node could not be accepted: %s", error)
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            connection = self._factory(True)
            task = self._loop.create_task(self._shake_hands(sock, connection), name="interconnect-tls")
            self._handshakes.add(task)
            task.add_done_callback(partial(self._shaken, sock, connection))
            connection.attach(task.cancel)

    async def _shake_hands(self, sock: socket.socket, connection: Connection) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: connection, sock, ssl=self._tls.server_context(), ssl_handshake_timeout=self._timeout_s
            )
        except (OSError, ConfigError) as error:  # errors of TLS and time-outs are OSErrors
            sock.close()
            connection.connection_lost(ConnectionError(f"no TLS: {error}"))

    def _shaken(self, sock: socket.socket, connection: Connection, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        if task.cancelled():
            sock.close()
            connection.connection_lost(None)


def _tcp_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    made.setblocking(False)
    return made


def split_address(address: str) -> tuple[str, int]:
    """Host and port; raises ConfigError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{address!r} is no address of a node; write HOST:PORT or unix:PATH")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _private_socket(path: str) -> socket.socket:
    """A Unix socket that only this user can connect to. What a process left there that is gone is removed."""
    if len(path.encode()) > UNIX_PATH_BYTES_MAX:
        raise ConfigError(f"the path of the socket is longer than {UNIX_PATH_BYTES_MAX} bytes: {path}; use a shorter directory")
    _remove_abandoned(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # From the first moment: a mode that is set after the bind leaves a gap.
    before = os.umask(0o177)
    try:
        made.bind(path)
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def _remove_abandoned(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} is in the way of the socket of this node and is no socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except FileNotFoundError:
            return
        else:
            raise ConfigError(f"another process listens at {path}; stop it or choose another path")
