"""The scrub of a node on request: everything that is stored on its disks is read and verified, once, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from penstock.blob import BlobStorage, VDiskHost
from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)


class Scrub:
    """Runs one at a time."""

    def __init__(self, storage: BlobStorage) -> None:
        self._storage = storage
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether one runs."""
        return self._task is not None and not self._task.done()

    async def begin(self) -> bool:
        """Begin one. Returns False if one runs already."""
        lives = [await self._storage.life(config.id) for config in self._storage.groups()]
        if self.is_running:
            return False
        self._task = asyncio.create_task(_scrub(lives), name="scrub")
        return True

    async def close(self) -> None:
        """Cancel it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def _scrub(lives: Sequence[VDiskHost]) -> None:
    for life in lives:
        try:
            damaged = await life.scrub()
        except (OSError, PenstockError) as error:
            log.warning("the scrub of group %08x was cut short: %s", life.group.id, error)
        else:
            log.info("the scrub of group %08x found %d damaged parts", life.group.id, damaged)
