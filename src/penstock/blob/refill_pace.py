"""The pace of refills: while others use a group, a disk that lacks parts spends only a share of the time on getting them.

A refill works in batches of bounded size and rests after each in proportion to the time it took. However much a batch takes from
other traffic on disks, CPU and network, others have the rest of the time to themselves; and as batches take longer when disks and
links are busy, the rests do too. Without other traffic the share rises to all of the time.
"""

from __future__ import annotations

import asyncio

from penstock.core.clock import Clock

REST_S_MIN = 0.01  # shorter rests are saved up
REST_S_MAX = 5.0
GROWTH = 1.5  # of the share with each batch that met no other traffic
OTHERS_A_SECOND = 5  # records that others wrote to the disk; fewer of them are upkeep
PART_COST = 64 << 10  # bytes that could be restored in the time that a part takes beside its own
BEST_DECAY = 1 / 128


class RefillPace:
    """Shared by the VDisks of a host, which take turns. `share` is the part of the time that they may work while others do."""

    def __init__(self, clock: Clock, share: float) -> None:
        self.turn = asyncio.Lock()
        self.is_urgent = False  # the group cannot serve without a disk that is being refilled
        self.restored_bytes = 0
        self.rested_s = 0.0
        self._clock = clock
        self._share_min = self._share = share
        self._best = 0.0  # bytes a second of the quickest recent batches
        self._owed_s = 0.0

    def now(self) -> float:
        """The time that batches are measured in."""
        return self._clock.monotonic()

    async def rest(self, took_s: float, *, parts: int, size: int, others: int) -> None:
        """Rest after a batch that restored `parts` of `size` bytes together, while others wrote so many records to the disk."""
        self.restored_bytes += size
        is_shared = self._is_shared(took_s, parts * PART_COST + size, others)
        self._share = self._share_min if is_shared else min(1.0, self._share * GROWTH)
        if self.is_urgent:
            return
        self._owed_s += took_s * (1 / self._share - 1)
        if self._owed_s >= REST_S_MIN:
            seconds, self._owed_s = min(self._owed_s, REST_S_MAX), 0.0
            self.rested_s += seconds
            await asyncio.sleep(seconds)

    def _is_shared(self, took_s: float, work: int, others: int) -> bool:
        """Whether others use the group: they write to this disk, or the batch was less than half as quick as the best."""
        is_slow = False
        if work and took_s > 0:
            speed = work / took_s
            is_slow = 2 * speed < self._best
            self._best = max(speed, self._best * (1 - BEST_DECAY))
        return is_slow or others > 1 + OTHERS_A_SECOND * took_s
