"""The I/O of a client on asyncio."""

from __future__ import annotations

import asyncio
import socket
import time

from penstock.kafka.client.address import Address
from penstock.kafka.client.network import ByteStream, fresh_nonce, tls_context
from penstock.kafka.client.options import ClientSecurity


class AsyncioNetwork:
    """Streams of the running event loop."""

    async def connect(self, address: Address, security: ClientSecurity, timeout_s: float) -> ByteStream:
        """As `Network` says."""
        context = tls_context(security) if security.tls else None
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return AsyncioStream(reader, writer)

    async def sleep(self, seconds: float) -> None:
        """As `Network` says."""
        await asyncio.sleep(seconds)

    def monotonic(self) -> float:
        """As `Network` says."""
        return time.monotonic()  # noqa: TID251 - the real clock, behind the port

    def nonce(self) -> str:
        """As `Network` says."""
        return fresh_nonce()

    def lock(self) -> asyncio.Lock:
        """As `Network` says."""
        return asyncio.Lock()


class AsyncioStream:
    """A connection of the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes, timeout_s: float) -> None:
        """As `ByteStream` says."""
        self._writer.write(data)
        async with asyncio.timeout(timeout_s):
            await self._writer.drain()

    async def receive(self, view: memoryview, timeout_s: float) -> None:
        """As `ByteStream` says."""
        async with asyncio.timeout(timeout_s):
            try:
                view[:] = await self._reader.readexactly(len(view))
            except asyncio.IncompleteReadError as error:
                raise ConnectionResetError(0, "the node closed it") from error

    def close(self) -> None:
        """As `ByteStream` says."""
        self._writer.close()
