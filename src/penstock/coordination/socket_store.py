"""A `KeyStore` of a supervisor, seen by one of its workers over a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.coordination.frames import (
    EVENTS,
    FAILED,
    FRAME_BYTES_MAX,
    AnswerFrame,
    RequestFrame,
    error_of,
    events_of,
    pack,
    plain_transaction,
    read_frame,
    snapshot_of,
)
from penstock.coordination.limits import check_transaction
from penstock.coordination.port import (
    UNKNOWN,
    Change,
    CommitResult,
    CompactedError,
    Compare,
    CoordinationUnavailableError,
    Event,
    Lease,
    Snapshot,
)

CALL_S: Final = 0.5
READ_S: Final = 2.0
RECONNECT_S: Final = 0.05
ASK_S: Final = 1.0
"""A watch that is silent for so long checks that the supervisor still answers."""
UNREAD_EVENTS_MAX: Final = 10_000


class _LinkLostError(Exception):
    """The connection broke after a request was sent; never leaves this module."""


class _Link:
    """One connection: answers go to the queue of their call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Queue[AnswerFrame | None]] = {}
        self._last_call = 0
        self.is_lost = False
        self._task = asyncio.create_task(self._read(), name="coordination-link")

    def send(self, method: str, arguments: list[Any]) -> tuple[int, asyncio.Queue[AnswerFrame | None]]:
        """Send a request; its answers come through the queue, None if the connection breaks."""
        self._last_call += 1
        answers = self._answers[self._last_call] = asyncio.Queue(UNREAD_EVENTS_MAX)
        self._writer.write(pack(RequestFrame(self._last_call, method, arguments)))
        return self._last_call, answers

    def forget(self, call: int, *, cancel: bool = False) -> None:
        """Take no more answers of a call."""
        self._answers.pop(call, None)
        if cancel and not self.is_lost:
            self._writer.write(pack(RequestFrame(call, "cancel", [])))

    async def close(self) -> None:
        """Disconnect."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        decoder = msgspec.msgpack.Decoder(AnswerFrame)
        try:
            while True:
                frame = decoder.decode(await read_frame(self._reader, FRAME_BYTES_MAX))
                answers = self._answers.get(frame.call)
                if answers is not None:
                    answers.put_nowait(frame)
        except (asyncio.IncompleteReadError, asyncio.QueueFull, ConnectionError, ValueError, msgspec.DecodeError):
            pass  # whatever it was, a new connection starts afresh
        finally:
            self.is_lost = True
            for answers in self._answers.values():
                with suppress(asyncio.QueueFull):
                    answers.put_nowait(None)
            self._writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await self._writer.wait_closed()


class SocketStore:
    """Connects when it is used and again when the connection is lost."""

    def __init__(self, path: Path, now: Callable[[], float], *, call_s: float = CALL_S, read_s: float = READ_S) -> None:
        self._path = path
        self._now = now
        self._call_s = call_s  # of one attempt
        self._read_s = read_s  # of a call that may be repeated
        self._link: _Link | None = None
        self._connecting = asyncio.Lock()

    async def get(self, key: str) -> Snapshot:
        """Read one key."""
        return snapshot_of(await self._read("get", [key]))

    async def scan(self, prefix: str) -> Snapshot:
        """Read all keys with a prefix."""
        return snapshot_of(await self._read("scan", [prefix]))

    async def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply a transaction. It is sent once."""
        check_transaction(compares, changes)
        try:
            payload = await self._once("commit", plain_transaction(compares, changes), self._call_s)
        except _LinkLostError:
            return UNKNOWN
        return msgspec.convert(payload, CommitResult)

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield changes after a revision, until the connection breaks."""
        link = await self._connected(self._call_s)
        call, answers = link.send("watch", [prefix, after])
        try:
            while True:
                try:
                    async with asyncio.timeout(ASK_S):
                        frame = await answers.get()
                except TimeoutError:
                    await self.get("")
                    if link.is_lost or link is not self._link:
                        frame = None
                    else:
                        continue
                if frame is None:
                    if answers.qsize() >= UNREAD_EVENTS_MAX:
                        raise CompactedError("more changes came than were read")
                    raise CoordinationUnavailableError(f"a watch: the connection to {self._path} broke")
                if frame.kind == FAILED:
                    raise error_of(frame.payload)
                assert frame.kind == EVENTS
                yield events_of(frame.payload)
        finally:
            link.forget(call, cancel=True)

    async def grant(self, ttl_s: float) -> Lease:
        """Create a lease; one whose answer was lost ends by itself."""
        return msgspec.convert(await self._read("grant", [ttl_s]), Lease)

    async def renew(self, lease: int, timeout_s: float) -> float:
        """Extend a lease."""
        try:
            return float(await self._once("renew", [lease, timeout_s], timeout_s))
        except _LinkLostError as error:
            raise CoordinationUnavailableError(f"a lease was not renewed: {error}") from error

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        await self._read("revoke", [lease])

    async def close(self) -> None:
        """Disconnect."""
        if self._link is not None:
            await self._link.close()

    async def _read(self, method: str, arguments: list[Any]) -> Any:
        """Ask something that may be asked twice, again after each lost connection until the deadline."""
        deadline = self._now() + self._read_s
        while True:
            try:
                return await self._once(method, arguments, max(0.01, min(self._call_s, deadline - self._now())))
            except (_LinkLostError, CoordinationUnavailableError) as error:
                if self._now() + RECONNECT_S >= deadline:
                    raise CoordinationUnavailableError(
                        f"the supervisor does not answer on {self._path} within {self._read_s:g} s ({error})"
                    ) from error
            await asyncio.sleep(RECONNECT_S)

    async def _once(self, method: str, arguments: list[Any], timeout_s: float) -> Any:
        """Send a request once. _LinkLostError if no answer came; CoordinationUnavailableError if it was not sent."""
        link = await self._connected(timeout_s)
        call, answers = link.send(method, arguments)
        try:
            async with asyncio.timeout(timeout_s):
                frame = await answers.get()
        except TimeoutError as error:
            raise _LinkLostError(f"no answer within {timeout_s:g} s") from error
        finally:
            link.forget(call)
        if frame is None:
            raise _LinkLostError("the connection broke")
        if frame.kind == FAILED:
            raise error_of(frame.payload)
        return frame.payload

    async def _connected(self, timeout_s: float) -> _Link:
        async with self._connecting:
            if self._link is None or self._link.is_lost:
                try:
                    async with asyncio.timeout(timeout_s):
                        reader, writer = await asyncio.open_unix_connection(str(self._path))
                except (OSError, TimeoutError) as error:
                    raise CoordinationUnavailableError(f"cannot connect to the supervisor at {self._path}: {error}") from error
                self._link = _Link(reader, writer)
            return self._link
