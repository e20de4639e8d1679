"""Checks that every listener of a node answers, as a client would: connects and sends a small request."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

log = logging.getLogger(__name__)

CHECK_TIMEOUT_S: Final = 5.0
CHECK_INTERVAL_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 1 << 16
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}

# ApiVersions, version 0, which needs no authentication: key, version, correlation id, no client id.
KAFKA_REQUEST: Final = bytes.fromhex("0000000a 0012 0000 50454e53 ffff")
KAFKA_CORRELATION: Final = KAFKA_REQUEST[8:12]
H2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
H2_HEADERS, H2_SETTINGS = 1, 4
H2_END_ALL: Final = 0x5  # of the stream and of its headers
# A method that there is not: only the server's own loop answers that.
GRPC_CALL: Final = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/penstock.Listener/Check",
    ":authority": "localhost",
    "te": "trailers",
    "content-type": "application/grpc",
}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Address(Protocol):
    """Where a listener is."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class ListenerChecks:
    """Checks all listeners periodically and on demand."""

    def __init__(self, listeners: Mapping[str, Address], encrypted: frozenset[str], now: Callable[[], float]) -> None:
        self._listeners = listeners
        self._encrypted = encrypted
        self._now = now
        self._refreshing: asyncio.Task[None] | None = None
        self._checked_s = float("-inf")
        self.silent: dict[str, str] = {}
        """The listeners that do not answer, and why."""

    async def run(self) -> None:
        """Check them periodically."""
        while True:
            await self.refresh(0.0)
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def refresh(self, age_s_max: float, wait_s: float = 2 * CHECK_TIMEOUT_S) -> None:
        """Check them unless that was done recently. Concurrent callers share one check, and wait at most this long."""
        if self._now() - self._checked_s <= age_s_max:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._check_all(), name="listener-check")
        await asyncio.wait([self._refreshing], timeout=wait_s)

    async def stop(self) -> None:
        """Stop checking."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _check_all(self) -> None:
        names = list(self._listeners)
        reasons = await asyncio.gather(*(self._check(name) for name in names))
        silent = {name: why for name, why in zip(names, reasons, strict=True) if why is not None}
        for name, why in silent.items():
            if name not in self.silent:
                log.error("the %s listener does not answer: %s", name, why)
        for name in self.silent.keys() - silent.keys():
            log.warning("the %s listener answers again", name)
        self.silent = silent
        self._checked_s = self._now()

    async def _check(self, name: str) -> str | None:
        """Why a listener does not answer; None if it does."""
        address = self._listeners[name]
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                streams = await self._connect(name, address)
                try:
                    return await _KINDS.get(name, _ask_http)(*streams)
                finally:
                    streams[1].transport.abort()
        except TimeoutError:
            return f"no answer from port {address.port} within {CHECK_TIMEOUT_S:.0f} s"
        except (OSError, EOFError) as error:
            return f"port {address.port}: {str(error) or type(error).__name__}"

    async def _connect(self, name: str, address: Address) -> Streams:
        host = _ANY_ADDRESS.get(address.host, address.host)
        context: ssl.SSLContext | None = None
        if name in self._encrypted:
            # It is our own listener: the host name of its certificate does not matter.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if _KINDS.get(name) is _ask_grpc:
                context.set_alpn_protocols(["h2"])
        return await asyncio.open_connection(host, address.port, ssl=context, limit=ANSWER_BYTES_MAX)


async def _ask_kafka(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
    writer.write(KAFKA_REQUEST)
    head = await reader.readexactly(8)
    return None if head[4:] == KAFKA_CORRELATION else f"the answer to ApiVersions begins with {head!r}"


async def _ask_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
    host, port = writer.get_extra_info("peername")[:2]
    name = f"[{host}]" if ":" in host else host
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n".encode())
    begin = await reader.readexactly(7)
    return None if begin == b"HTTP/1." else f"the answer begins with {begin!r}"


async def _ask_grpc(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
    headers = b"".join(b"\0" + _literal(name) + _literal(value) for name, value in GRPC_CALL.items())
    writer.write(H2_PREFACE + _frame(H2_SETTINGS, 0, 0) + _frame(H2_HEADERS, H2_END_ALL, 1, headers))
    received = 0
    while received < ANSWER_BYTES_MAX:
        head = await reader.readexactly(9)
        size, kind, stream = int.from_bytes(head[:3], "big"), head[3], int.from_bytes(head[5:], "big")
        if kind == H2_HEADERS and stream == 1:
            return None
        await reader.readexactly(size)
        received += 9 + size
    return "a call is not answered"


def _literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


_KINDS: Final[dict[str, Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str | None]]]] = {
    "kafka": _ask_kafka,
    "kafka_tls": _ask_kafka,
    "ydb": _ask_grpc,
    "stream": _ask_grpc,
}
