"""The I/O of a client, as a small port with two implementations: blocking sockets here, asyncio in `asyncio_network`.

The client itself is written once, as coroutines. Over blocking sockets their awaits never suspend, so `finish` runs one to its
end without an event loop: that is how commands and Spark tasks use the same code as a program on asyncio.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.kafka.client.address import Address
from penstock.kafka.client.options import ClientSecurity

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class ByteStream(Protocol):
    """A connected socket. Every wait ends with TimeoutError after `timeout_s`, every failure is an OSError."""

    async def send(self, data: bytes, timeout_s: float) -> None:
        """Send all of it."""
        ...

    async def receive(self, view: memoryview, timeout_s: float) -> None:
        """Fill the view. ConnectionResetError if the node hangs up before."""
        ...

    def close(self) -> None:
        """Hang up, also on a wait of another thread or task."""
        ...


class Network(Protocol):
    """Where streams come from, and time."""

    async def connect(self, address: Address, security: ClientSecurity, timeout_s: float) -> ByteStream:
        """Connect, with TLS if that is asked for."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        ...

    def nonce(self) -> str:
        """Return a fresh random text, for sign-ins."""
        ...

    def lock(self) -> AbstractAsyncContextManager[object]:
        """Return a lock among the tasks of one event loop; blocking streams are used by one thread at a time and need none."""
        ...


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a client on blocking sockets to its end."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise AssertionError("a coroutine on blocking sockets never suspends")


class BlockingNetwork:
    """Blocking sockets."""

    async def connect(self, address: Address, security: ClientSecurity, timeout_s: float) -> ByteStream:
        """As `Network` says."""
        plain = socket.create_connection(address, timeout=timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not security.tls:
                return BlockingStream(plain)
            return BlockingStream(tls_context(security).wrap_socket(plain, server_hostname=address.host))
        except BaseException:
            plain.close()
            raise

    async def sleep(self, seconds: float) -> None:
        """As `Network` says."""
        time.sleep(seconds)  # noqa: TID251, ASYNC251 - blocking is what this network is for

    def monotonic(self) -> float:
        """As `Network` says."""
        return time.monotonic()  # noqa: TID251 - the real clock, behind the port

    def nonce(self) -> str:
        """As `Network` says."""
        return fresh_nonce()

    def lock(self) -> AbstractAsyncContextManager[object]:
        """As `Network` says."""
        return nullcontext()


class BlockingStream:
    """A blocking socket, plain or TLS."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def send(self, data: bytes, timeout_s: float) -> None:
        """As `ByteStream` says."""
        self._socket.settimeout(timeout_s)
        self._socket.sendall(data)

    async def receive(self, view: memoryview, timeout_s: float) -> None:
        """As `ByteStream` says."""
        self._socket.settimeout(timeout_s)
        received = 0
        while received < len(view):
            count = self._socket.recv_into(view[received:])
            if count == 0:
                raise ConnectionResetError(0, "the node closed it")
            received += count

    def close(self) -> None:
        """As `ByteStream` says."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def fresh_nonce() -> str:
    """Return an unguessable text without commas."""
    import secrets  # noqa: TID251 - a sign-in that a seed replays would be a hole

    return secrets.token_urlsafe(18)


def tls_context(security: ClientSecurity) -> ssl.SSLContext:
    """The TLS settings of a client. OSError if a file cannot be used."""
    import ssl

    context = ssl.create_default_context(cafile=security.ca_file)
    context.check_hostname = security.checks_host
    if security.certificate_file is not None:
        context.load_cert_chain(security.certificate_file)
    return context
