"""The bodies of gRPC calls: received once the caller is known, and within a bound of memory in all.

gRPC says nothing of a message's size until all of it is there, so the bound has two parts: how many bodies are received at a
time, of all callers and of one address, and how many bytes of received bodies are in flight. A caller over its share waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

import grpc

from penstock.core.errors import InvalidRequestError

RECEIVED_AT_ONCE: Final = 8
RECEIVED_AT_ONCE_OF_SOURCE: Final = 4
BYTES_MAX: Final = 256 << 20
BODY_TIMEOUT_S: Final = 30.0


class BodyMissingError(InvalidRequestError):
    """A call that ended before its message was there."""

    code = "body_missing"


class RequestBodies:
    """Receives the bodies of a listener's calls."""

    def __init__(self, bytes_max: int = BYTES_MAX, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._turns = asyncio.Semaphore(RECEIVED_AT_ONCE)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._room = asyncio.Event()
        self._room.set()
        self.used = 0  # bytes of bodies in flight

    @asynccontextmanager
    async def receive(self, context: Any) -> AsyncIterator[bytes]:
        """The message of a call that has one, counted until the call is served. BodyMissingError if it does not come."""
        source = source_of(context)
        turns = self._turns_of.get(source)
        if turns is None:
            turns = self._turns_of[source] = asyncio.Semaphore(RECEIVED_AT_ONCE_OF_SOURCE)
        async with turns, self._turns:
            await self.wait_for_room()
            body = await self._read(context)
        self.take(len(body))
        try:
            yield body
        finally:
            self.give(len(body))

    async def wait_for_room(self) -> None:
        """Wait until fewer bytes are in flight than may be."""
        while not self._room.is_set():
            await self._room.wait()

    def take(self, size: int) -> None:
        """Count bytes that were received."""
        self.used += size
        if self.used >= self._bytes_max:
            self._room.clear()

    def give(self, size: int) -> None:
        """Count bytes no more."""
        self.used -= size
        if self.used < self._bytes_max:
            self._room.set()

    async def _read(self, context: Any) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await context.read()
        except TimeoutError:
            raise BodyMissingError(f"the message did not come within {self._timeout_s:.0f} s") from None
        if body is grpc.aio.EOF:
            raise BodyMissingError("the call ended without a message")
        return bytes(body)


def source_of(context: Any) -> str:
    """The address of a caller, from gRPC's name of it: ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000."""
    address = unquote(context.peer()).partition(":")[2].rpartition(":")[0]
    return address.strip("[]")
