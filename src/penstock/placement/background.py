"""Work of the leader that nothing waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)


class BackgroundWork:
    """Tasks that are cancelled together. One that fails says so, and `on_error` is called: what it was to do is done later."""

    def __init__(self, on_error: Callable[[], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin."""
        task = asyncio.create_task(self._logged(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel(self) -> None:
        """Cancel all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PenstockError as error:
            self._on_error()
            log.warning("tablets will be placed later: %s", error)
