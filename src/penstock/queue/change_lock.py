"""The lock that lets one change of a partition run at a time: first the stored state changes, then the state in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

from penstock.core.errors import PenstockError
from penstock.tablet import KvTablet


class ChangeLock:
    """A first-in, first-out lock for changes of a partition. A holder that fails without an answer from the tablet, by a bug or a
    cancellation, may leave memory and storage out of step: then the tablet stops, and its next generation reloads."""

    __slots__ = ("_is_held", "_partition", "_tablet", "_waiting")

    def __init__(self, tablet: KvTablet, partition: int) -> None:
        self._tablet = tablet
        self._partition = partition
        self._is_held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> asyncio.Future[None] | None:
        """Take the lock. Returns None if the caller holds it now, otherwise a future that completes when it does."""
        if not self._is_held:
            self._is_held = True
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return turn

    def leave(self, error: BaseException | None = None) -> None:
        """Release the lock to the next waiter. An `error` that is not the tablet's own stops the tablet."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        else:
            self._is_held = False
        if isinstance(error, (Exception, asyncio.CancelledError)) and not isinstance(error, PenstockError):
            self._tablet.break_down(f"partition {self._partition} does not know what is stored of it: {error!r}")

    async def __aenter__(self) -> None:
        turn = self.take()
        if turn is None:
            return
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it was handed over at that very moment
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave(error)
