"""Receives bodies of HTTP requests, so that slow or incomplete ones hold neither much memory nor a slot.

A body is read before its request takes a slot. It must keep arriving: each part within a timeout, all of it at a minimum rate and
before a deadline. All bodies of a listener share a memory budget; when that is used up, the slowest body is refused, so that
faster clients are served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError, UnavailableError

WINDOW_S: Final = 1.0  # over which the rate of a body is measured


class BodyTooLargeError(InvalidRequestError):
    """The body is larger than the limit."""

    code = "request_too_large"


class SlowBodyError(InvalidRequestError):
    """The body did not arrive in time."""

    code = "slow_body"


class BrokenBodyError(InvalidRequestError):
    """The body is incomplete, or not valid HTTP."""

    code = "broken_body"


class BodiesFullError(UnavailableError):
    """The memory for bodies is used up, and this one is the slowest; retry."""

    code = "too_many_bodies"


class BodyLimits(NamedTuple):
    """How bodies may arrive at one listener."""

    memory_bytes: int = 256 << 20  # of all of them together, until their requests are answered
    idle_s: float = 30.0  # the longest wait for the next part of a body
    deadline_s: float = 600.0  # the longest time for all of it
    rate_min: int = 16 << 10  # bytes a second, on average after `idle_s`


class IncomingBody:
    """A body that is being received, or is still in use."""

    __slots__ = ("_counted", "_noted_s", "content", "held", "is_whole", "received", "started_s")

    def __init__(self, content: aiohttp.StreamReader, now_s: float) -> None:
        self.content = content
        self.started_s = self._noted_s = now_s
        self.received = self.held = self._counted = 0
        self.is_whole = False

    def rate(self, now_s: float) -> float:
        """The recent rate in bytes a second; it falls while nothing arrives."""
        return (self.received - self._counted) / max(now_s - self._noted_s, WINDOW_S)

    def note(self, size: int, now_s: float) -> None:
        """Count a part that has arrived."""
        if now_s - self._noted_s > WINDOW_S:
            self._counted, self._noted_s = self.received, now_s
        self.received += size


class IncomingBodies:
    """Receives the bodies of one listener."""

    def __init__(self, limits: BodyLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._bodies: set[IncomingBody] = set()
        self.held_bytes = 0

    @asynccontextmanager
    async def read(self, request: web.Request, size_max: int) -> AsyncIterator[bytes]:
        """Receive a whole body, counted until the context exits. BodyTooLargeError, SlowBodyError, BrokenBodyError or
        BodiesFullError if it cannot be received."""
        if (request.content_length or 0) > size_max:
            raise _too_large(size_max)
        if not request.can_read_body:
            yield b""
            return
        body = self._begin(request)
        try:
            raw = bytearray()
            async for part in self._parts(body, size_max, size_max):
                raw += part
            yield bytes(raw)
        finally:
            self._end(body)

    async def parts(self, request: web.Request, held_max: int) -> AsyncIterator[bytes]:
        """Receive the parts of a body of any size. The caller buffers at most `held_max` bytes of it."""
        body = self._begin(request)
        try:
            async for part in self._parts(body, None, held_max):
                yield part
        finally:
            self._end(body)

    async def _parts(self, body: IncomingBody, size_max: int | None, held_max: int) -> AsyncIterator[bytes]:
        while part := await self._next(body):
            body.note(len(part), self._clock.monotonic())
            if size_max is not None and body.received > size_max:
                raise _too_large(size_max)
            self._hold(body, min(body.received, held_max))
            yield part
        body.is_whole = True

    async def _next(self, body: IncomingBody) -> bytes:
        limits = self._limits
        passed_s = self._clock.monotonic() - body.started_s
        late = passed_s - limits.idle_s
        if passed_s > limits.deadline_s or (late > 0 and body.received < late * limits.rate_min):
            raise SlowBodyError(
                f"{body.received} bytes of the body arrived in {passed_s:.0f} s; it must arrive with {limits.rate_min} bytes a "
                f"second and within {limits.deadline_s:.0f} s: send less at once"
            )
        try:
            async with asyncio.timeout(limits.idle_s):
                return await body.content.readany()
        except TimeoutError as error:
            raise SlowBodyError(f"nothing of the body arrived for {limits.idle_s:.0f} s; the request is aborted") from error
        except (aiohttp.ClientError, HttpProcessingError, ConnectionError, EOFError) as error:
            raise BrokenBodyError(f"the body broke off after {body.received} bytes: {error!r}") from error

    def _begin(self, request: web.Request) -> IncomingBody:
        body = IncomingBody(request.content, self._clock.monotonic())
        self._bodies.add(body)
        return body

    def _end(self, body: IncomingBody) -> None:
        self._bodies.discard(body)
        self._release(body)

    def _hold(self, body: IncomingBody, size: int) -> None:
        self.held_bytes += size - body.held
        body.held = size
        now_s = self._clock.monotonic()
        while self.held_bytes > self._limits.memory_bytes:
            slowest = min(
                (other for other in self._bodies if other.held and not other.is_whole), key=lambda other: other.rate(now_s)
            )
            error = BodiesFullError(
                f"bodies of requests hold {self.held_bytes} bytes, at most {self._limits.memory_bytes} are taken, and this one "
                f"arrives slowest; send it again, or in smaller parts"
            )
            self._release(slowest)
            if slowest is body:
                raise error
            slowest.content.set_exception(error)

    def _release(self, body: IncomingBody) -> None:
        self.held_bytes -= body.held
        body.held = 0


class MemoryBudget:
    """Memory that is reserved before it is used. Requests that do not fit wait, and are served in order."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[Callable[[int], None]]:
        """Reserve bytes until the context exits, at most the whole budget. The yielded function releases all but the bytes really
        used."""
        held = size = min(size, self._size)
        await self._acquire(size)

        def use(actual: int) -> None:
            nonlocal held
            self._release(held - min(actual, held))
            held = min(actual, held)

        try:
            yield use
        finally:
            self._release(held)

    async def _acquire(self, size: int) -> None:
        if not self._waiting and self.reserved + size <= self._size:
            self.reserved += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(size)  # its turn had just come
            raise

    def _release(self, size: int) -> None:
        self.reserved -= size
        while self._waiting and (self._waiting[0][1].done() or self.reserved + self._waiting[0][0] <= self._size):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self.reserved += wanted
                turn.set_result(None)


def _too_large(size_max: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body has more than {size_max} bytes; send less at once")
