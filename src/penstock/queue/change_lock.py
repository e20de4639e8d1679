"""One change of a partition at a time: what is stored is changed first, and then what is in memory."""

from __future__ import annotations

import asyncio
from types import TracebackType

from penstock.core.errors import PenstockError
from penstock.tablet import KvTablet


class ChangeLock:
    """A lock for changes. Whoever leaves it without an answer of the tablet, because of a bug or because it was cancelled, may
    leave what is in memory behind what is stored: then the tablet stops, and its next generation knows again."""

    def __init__(self, tablet: KvTablet, partition: int) -> None:
        self._tablet = tablet
        self._partition = partition
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        if isinstance(error, (Exception, asyncio.CancelledError)) and not isinstance(error, PenstockError):
            self._tablet.break_down(f"partition {self._partition} does not know what is stored of it: {error!r}")
