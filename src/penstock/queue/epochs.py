"""Leader epochs of a partition: which generation of its tablet wrote from which offset on. Pure; Kafka's rules.

A consumer that comes back with an offset and the epoch it read it in asks where that epoch ended, to learn whether what it read
is still what is stored.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class Epoch(NamedTuple):
    """A generation that wrote, and its first offset."""

    epoch: int
    first_offset: int


class Epochs:
    """The epochs of which something is left, oldest first."""

    def __init__(self) -> None:
        self._epochs: list[Epoch] = []
        self.latest = -1  # the last epoch that wrote; -1 if none has

    def since(self, epoch: int) -> list[Epoch]:
        """Those that wrote after an epoch."""
        return [known for known in self._epochs if known.epoch > epoch]

    def begin(self, epoch: int, first_offset: int) -> None:
        """An epoch writes for the first time."""
        self._epochs.append(Epoch(epoch, first_offset))
        self.latest = epoch

    def end_of(self, epoch: int, current: int, end_offset: int) -> tuple[int, int]:
        """The last epoch up to `epoch` that is known, and where it ended; (-1, -1) if `epoch` has not come yet."""
        if epoch == current:
            return current, end_offset
        if not 0 <= epoch < current:
            return -1, -1
        after = bisect_right(self._epochs, epoch, key=lambda known: known.epoch)
        end = self._epochs[after].first_offset if after < len(self._epochs) else end_offset
        return self._epochs[after - 1].epoch if after else epoch, end

    def kept_from(self, start_offset: int) -> int:
        """The first epoch that is still needed when the partition starts at `start_offset`; 0 if all are."""
        needed = bisect_right(self._epochs, start_offset, key=lambda known: known.first_offset) - 1
        return self._epochs[needed].epoch if needed >= 0 else 0

    def forget_before(self, epoch: int) -> None:
        """Epochs before this one are of no use any more."""
        self._epochs = [known for known in self._epochs if known.epoch >= epoch]
        self.latest = self._epochs[-1].epoch if self._epochs else -1
