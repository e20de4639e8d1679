"""Receives the bodies of gRPC calls after sign-in, within a memory limit for all of them.

gRPC does not tell the size of a message before all of it has arrived. So there are two limits: how many bodies are received at a
time, in all, of one address and of one connection; and how many bytes of received bodies are in flight. A caller over its limit
waits. gRPC does not tell either whether a part of a message has arrived, so calls that send nothing take slots like others; while
others wait, the timeout of a slot is short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

import grpc

from penstock.core.errors import InvalidRequestError, UnavailableError

RECEIVED_AT_ONCE: Final = 8
RECEIVED_AT_ONCE_OF_SOURCE: Final = 4
RECEIVED_AT_ONCE_OF_CONNECTION: Final = 2
BYTES_MAX: Final = 256 << 20
BODY_TIMEOUT_S: Final = 30.0
CONTENDED_TIMEOUT_S: Final = 1.0  # while others wait for a slot
# Of calls without sign-in, such as Login and health checks.
OPEN_AT_ONCE: Final = 4
OPEN_AT_ONCE_OF_SOURCE: Final = 2
OPEN_AT_ONCE_OF_CONNECTION: Final = 1
OPEN_BYTES_MAX: Final = 64 << 10
OPEN_TIMEOUT_S: Final = 5.0
OPEN_CONTENDED_TIMEOUT_S: Final = 0.5


class BodyMissingError(InvalidRequestError):
    """The call ended before its message arrived."""

    code = "body_missing"


class BodySlowError(UnavailableError):
    """The message arrived too slowly while others waited for a slot."""

    code = "body_slow"


class BodyTooLargeError(InvalidRequestError):
    """The message is larger than the call accepts."""

    code = "body_too_large"


class _Semaphores:
    """A semaphore for each name, created on demand and dropped when unused."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_name: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Semaphore:
        """The semaphore of a name."""
        semaphore = self._by_name.get(name)
        if semaphore is None:
            semaphore = self._by_name[name] = asyncio.Semaphore(self._limit)
        return semaphore


class _ReceiveSlots:
    """Limits how many bodies are received at a time, and for how long."""

    def __init__(self, at_once: tuple[int, int, int], timeout_s: float, contended_timeout_s: float) -> None:
        of_all, of_source, of_connection = at_once
        self._all = asyncio.Semaphore(of_all)
        self._sources = _Semaphores(of_source)
        self._connections = _Semaphores(of_connection)
        self._timeout_s = timeout_s
        self._contended_timeout_s = min(contended_timeout_s, timeout_s)
        self._waiting = 0
        self._begun: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def take(self, context: Any) -> AsyncIterator[None]:
        """Take a slot. A connection with many calls, or an address with many connections, waits for its own calls first, so that
        it does not block others."""
        source = self._sources.of(source_of(context))
        async with self._connections.of(context.peer()):
            is_contended = source.locked() or self._all.locked()
            if is_contended:
                self._waiting += 1
                self._shorten_timeouts()
            try:
                await source.acquire()
            finally:
                self._waiting -= is_contended
            try:
                async with self._all:
                    yield
            finally:
                source.release()

    async def read(self, context: Any) -> bytes:
        """Receive the message of a caller that has a slot."""
        loop = asyncio.get_running_loop()
        timeout_s = self._contended_timeout_s if self._waiting else self._timeout_s
        began = loop.time()
        try:
            async with asyncio.timeout_at(began + timeout_s) as limit:
                self._begun[limit] = began
                try:
                    body = await context.read()
                finally:
                    del self._begun[limit]
        except TimeoutError:
            waited_s = loop.time() - began
            if waited_s < self._timeout_s:
                raise BodySlowError(f"the message did not arrive within {waited_s:.1f} s while others waited; retry") from None
            raise BodyMissingError(f"the message did not arrive within {waited_s:.0f} s") from None
        if body is grpc.aio.EOF:
            raise BodyMissingError("the call ended without a message")
        return bytes(body)

    def _shorten_timeouts(self) -> None:
        """Shorten the timeouts of slots in use, because a caller waits."""
        now = asyncio.get_running_loop().time()
        for limit, began in self._begun.items():
            if not limit.expired():
                limit.reschedule(max(now, began + self._contended_timeout_s))


class RequestBodies:
    """Receives the bodies of a listener's calls."""

    def __init__(self, bytes_max: int = BYTES_MAX, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._bytes_max = bytes_max
        at_once = RECEIVED_AT_ONCE, RECEIVED_AT_ONCE_OF_SOURCE, RECEIVED_AT_ONCE_OF_CONNECTION
        self._slots = _ReceiveSlots(at_once, timeout_s, CONTENDED_TIMEOUT_S)
        at_once = OPEN_AT_ONCE, OPEN_AT_ONCE_OF_SOURCE, OPEN_AT_ONCE_OF_CONNECTION
        self._open_slots = _ReceiveSlots(at_once, OPEN_TIMEOUT_S, OPEN_CONTENDED_TIMEOUT_S)
        self._room = asyncio.Event()
        self._room.set()
        self.used = 0  # bytes of bodies in flight

    @asynccontextmanager
    async def receive(self, context: Any) -> AsyncIterator[bytes]:
        """Receive the message of a signed-in caller, counted until the call is served. BodyMissingError if it does not arrive."""
        async with self._slots.take(context):
            await self.wait_for_room()
            body = await self._slots.read(context)
        self.take(len(body))
        try:
            yield body
        finally:
            self.give(len(body))

    async def receive_open(self, context: Any) -> bytes:
        """Receive the message of a call without sign-in. BodyTooLargeError if it is not small."""
        async with self._open_slots.take(context):
            body = await self._open_slots.read(context)
        if len(body) > OPEN_BYTES_MAX:
            raise BodyTooLargeError(f"the message has {len(body)} bytes; this call accepts {OPEN_BYTES_MAX} at most")
        return body

    async def wait_for_room(self) -> None:
        """Wait until the bytes in flight are below the limit."""
        while not self._room.is_set():
            await self._room.wait()

    def take(self, size: int) -> None:
        """Count bytes that were received."""
        self.used += size
        if self.used >= self._bytes_max:
            self._room.clear()

    def give(self, size: int) -> None:
        """Stop counting bytes of a served call."""
        self.used -= size
        if self.used < self._bytes_max:
            self._room.set()


def source_of(context: Any) -> str:
    """The address of a caller, from gRPC's name of it: ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000."""
    address = unquote(context.peer()).partition(":")[2].rpartition(":")[0]
    return address.strip("[]")
