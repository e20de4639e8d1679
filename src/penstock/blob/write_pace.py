"""Whether writes to a disk are quick enough to be done on the event loop, by how long the last ones took. Pure.

A write on the loop costs no change of threads, which for a small one takes longer than the write itself; but all connections wait
for it. So it is done there while the disk is quick, and by a thread from the first slow ones on, until it has been quick for a
while.
"""

from __future__ import annotations

SLOW_FOR_S = 1.0  # after slow writes, at least so long, the thread does them
# To memory, a write is slow only when the system holds it back until the disk has caught up; once may be that another process had
# the processor meanwhile.
WRITE_SLOW_S = 0.01
# With a sync, all other connections wait for the disk: so long is not felt by any of them.
SYNC_SLOW_S = 0.002
SYNC_QUICK_MIN = 16


class WritePace:
    """The pace of one disk. After `slow_max` writes in a row of `slow_s` or longer it is slow, and quick again when a second has
    passed and `quick_min` writes in a row were quick."""

    __slots__ = ("_quick", "_quick_min", "_slow", "_slow_max", "_slow_s", "_slow_until")

    def __init__(self, slow_s: float, *, slow_max: int, quick_min: int = 0) -> None:
        self._slow_s = slow_s
        self._slow_max = slow_max
        self._quick_min = quick_min
        self._slow = 0  # in a row
        self._quick = 0  # in a row
        self._slow_until = 0.0

    def note(self, began: float, ended: float) -> None:
        """Record how long a write took."""
        if ended - began < self._slow_s:
            self._slow = 0
            self._quick += 1
            return
        self._slow += 1
        if self._slow >= self._slow_max:
            self._slow = self._quick = 0
            self._slow_until = ended + SLOW_FOR_S

    def is_quick(self, now: float) -> bool:
        """Whether the next write may be done on the loop."""
        return now >= self._slow_until and self._quick >= self._quick_min
