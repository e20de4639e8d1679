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
# Of those whom nobody has asked who they are: a sign-in, a health check.
OPEN_AT_ONCE: Final = 4
OPEN_AT_ONCE_OF_SOURCE: Final = 1
OPEN_BYTES_MAX: Final = 64 << 10
OPEN_TIMEOUT_S: Final = 5.0


class BodyMissingError(InvalidRequestError):
    """A call that ended before its message was there."""

    code = "body_missing"


class BodyTooLargeError(InvalidRequestError):
    """A message that is larger than the call takes."""

    code = "body_too_large"


class _Turns:
    """How many bodies are received at a time."""

    def __init__(self, at_once: int, of_source: int) -> None:
        self._of_source = of_source
        self._all = asyncio.Semaphore(at_once)
        self._by_source: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, source: str) -> AsyncIterator[None]:
        """A turn of a source; one that has many in flight waits for its own before it stands in the way of others."""
        own = self._by_source.get(source)
        if own is None:
            own = self._by_source[source] = asyncio.Semaphore(self._of_source)
        async with own, self._all:
            yield


class RequestBodies:
    """Receives the bodies of a listener's calls."""

    def __init__(self, bytes_max: int = BYTES_MAX, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._turns = _Turns(RECEIVED_AT_ONCE, RECEIVED_AT_ONCE_OF_SOURCE)
        self._open_turns = _Turns(OPEN_AT_ONCE, OPEN_AT_ONCE_OF_SOURCE)
        self._room = asyncio.Event()
        self._room.set()
        self.used = 0  # bytes of bodies in flight

    @asynccontextmanager
    async def receive(self, context: Any) -> AsyncIterator[bytes]:
        """The message of a caller who is known, counted until the call is served. BodyMissingError if it does not come."""
        async with self._turns.take(source_of(context)):
            await self.wait_for_room()
            body = await _read(context, self._timeout_s)
        self.take(len(body))
        try:
            yield body
        finally:
            self.give(len(body))

    async def receive_open(self, context: Any) -> bytes:
        """The message of a caller whom nobody knows. BodyTooLargeError if it is not small."""
        async with self._open_turns.take(source_of(context)):
            body = await _read(context, OPEN_TIMEOUT_S)
        if len(body) > OPEN_BYTES_MAX:
            raise BodyTooLargeError(f"the message has {len(body)} bytes; this call takes {OPEN_BYTES_MAX} at most")
        return body

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


async def _read(context: Any, timeout_s: float) -> bytes:
    try:
        async with asyncio.timeout(timeout_s):
            body = await context.read()
    except TimeoutError:
        raise BodyMissingError(f"the message did not come within {timeout_s:.0f} s") from None
    if body is grpc.aio.EOF:
        raise BodyMissingError("the call ended without a message")
    return bytes(body)


def source_of(context: Any) -> str:
    """The address of a caller, from gRPC's name of it: ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000."""
    address = unquote(context.peer()).partition(":")[2].rpartition(":")[0]
    return address.strip("[]")
