"""One change of a partition at a time: what is stored is changed first, and then what is in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

from penstock.core.errors import PenstockError
from penstock.tablet import KvTablet


class ChangeLock:
    """A lock for changes, given to those who wait in their order. Whoever leaves it without an answer of the tablet, because of a
    bug or because it was cancelled, may leave what is in memory behind what is stored: then the tablet stops, and its next
    generation knows again."""

    __slots__ = ("_is_held", "_partition", "_tablet", "_waiting")

    def __init__(self, tablet: KvTablet, partition: int) -> None:
        self._tablet = tablet
        self._partition = partition
        self._is_held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> asyncio.Future[None] | None:
        """Take the lock: None if it is held from now on, otherwise what comes true when it is."""
        if not self._is_held:
            self._is_held = True
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return turn

    def leave(self, error: BaseException | None = None) -> None:
        """Hand the lock on to the next who waits."""
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
