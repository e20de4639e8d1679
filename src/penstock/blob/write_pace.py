"""Whether writes to a disk are quick enough to be done on the event loop, by how long the last ones took. Pure.

A write on the loop costs no change of threads, which for a small one takes longer than the write itself; but all connections wait
for it. So it is done there while the disk is quick, and by a thread from the first slow ones on, until it has been quick for a
while.

A disk may hang though it counts as quick. So the loop waits for a sync only so long (kernels/sync_thread.py), unless the write is
a short one: those come from a lone writer, who would notice what a second thread costs. Such a sync stops the loop for as long as
the disk hangs, and the watchdog reports that. One of several disks is never synced on the loop.
"""

from __future__ import annotations

from math import inf

SLOW_S = 0.01
SLOW_FOR_S = 1.0  # after slow writes, at least so long, the thread does them
# A write to memory is slow when the kernel throttles it until the disk has caught up; once may only mean that another process had
# the CPU.
MEMORY_SLOW_MAX = 2
SYNC_SLOW_MAX = 1
SYNC_MEAN_MAX_S = 0.002  # with a sync, all connections wait for the disk: so long is not felt
SYNC_WAIT_S = 0.002  # what the loop waits for one sync
SYNC_IN_PLACE_BYTES = 4 << 10  # a write of so many bytes is of a lone writer
_WEIGHT = 1 / 16  # of the latest write in the mean


class WritePace:
    """The pace of one disk. It is slow for a second after `slow_max` slow writes in a row, and while the mean of the last ones,
    each weighing less the older it is, is `mean_max_s` or more; until it is known, it counts as slow. From `quick_from` on writes
    may be done on the loop."""

    __slots__ = ("_mean_max_s", "_mean_s", "_slow", "_slow_max", "_slow_until", "quick_from")

    def __init__(self, *, slow_max: int, mean_max_s: float = inf) -> None:
        self._slow_max = slow_max
        self._mean_max_s = mean_max_s
        self._mean_s = SLOW_S
        self._slow = 0  # in a row
        self._slow_until = 0.0
        self.quick_from = 0.0 if self._mean_s < mean_max_s else inf

    def note(self, began: float, ended: float) -> None:
        """Record how long a write took."""
        took = ended - began
        self._mean_s += (took - self._mean_s) * _WEIGHT
        if took < SLOW_S:
            self._slow = 0
        else:
            self._slow += 1
        if self._slow >= self._slow_max:
            self._slow = 0
            self._slow_until = ended + SLOW_FOR_S
        self.quick_from = self._slow_until if self._mean_s < self._mean_max_s else inf
