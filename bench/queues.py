"""Partitions to measure: a PQ tablet on a `none` group over one local directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from penstock.blob import BlobStorage, ChannelHistory, Erasure, GroupConfig, GroupOptions, TabletInfo
from penstock.core.clock import SystemClock
from penstock.queue import BlobCache, PartitionConfig, QueueTablet
from penstock.tablet import CHANNELS

TABLET = 7
CONFIG = PartitionConfig(batch_bytes_max=16 << 20)


class QueueNode:
    """A storage and what is booted on it."""

    def __init__(self, storage: BlobStorage) -> None:
        self.storage = storage
        self._generation = 0

    async def boot(self, cache: BlobCache | None = None) -> QueueTablet:
        """The next generation of the tablet."""
        self._generation += 1
        info = TabletInfo(TABLET, tuple(ChannelHistory([(0, 0)]) for _ in range(CHANNELS)))
        return await QueueTablet.boot(
            self.storage.tablet(info),
            self._generation,
            CONFIG,
            cache=cache or BlobCache(),
            clock=SystemClock(),
            random=Random(self._generation),
        )

    async def bytes_written(self) -> int:
        """Bytes that went to the disk so far."""
        life = await self.storage.life(0)
        return life.vdisks[0].journal.bytes_appended


@asynccontextmanager
async def open_node(directory: Path, *, durable: bool = True) -> AsyncIterator[QueueNode]:
    """A node with nothing running on it yet."""
    options = GroupOptions(sync_interval=None, scrub_interval=None)
    groups = [GroupConfig(0, Erasure.NONE, (directory / "disk",))]
    storage = BlobStorage(groups, clock=SystemClock(), random=Random(1), durable=durable, options=options)
    try:
        yield QueueNode(storage)
    finally:
        await storage.close()
