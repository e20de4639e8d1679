"""The memory of heads. A head is held as a whole and grows to megabytes before it becomes a body: of many partitions, that is too
much."""

from __future__ import annotations

import asyncio
import logging

from penstock.broker.tablets import Tablets
from penstock.core.errors import PenstockError
from penstock.core.periodic import repeat
from penstock.queue import Partition

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
ROLLED_MIN = 512 << 10  # a smaller head stays: each body takes some memory for good
ROLLS_AT_ONCE = 16


class HeadLimit:
    """Limits the memory of all heads of a node to half of the cache's. Beyond that, the largest heads become bodies, which the
    cache can evict."""

    def __init__(self, tablets: Tablets) -> None:
        self._tablets = tablets

    async def run(self) -> None:
        """Run periodically until cancelled."""
        await repeat("the limit of heads", INTERVAL_S, self.once)

    async def once(self) -> None:
        """Check all served partitions once; one that fails is retried on the next run."""
        cache = self._tablets.cache
        heads = [(partition.head_size, partition) for partition in self._tablets.partitions() if partition.head]
        total = sum(size for size, _ in heads)
        rolled: list[Partition] = []
        for size, partition in sorted(heads, key=lambda head: head[0], reverse=True):
            if total <= cache.bytes_max // 2 or size < ROLLED_MIN:
                break
            rolled.append(partition)
            total -= size
        for begin in range(0, len(rolled), ROLLS_AT_ONCE):
            await asyncio.gather(*map(self._roll, rolled[begin : begin + ROLLS_AT_ONCE]))
        cache.set_aside(total)

    async def _roll(self, partition: Partition) -> None:
        try:
            await partition.roll_head()
        except PenstockError as error:
            log.warning("the head of partition %d stays in memory for now: %s", partition.number, error)
