"""The latest offset of each key in a stretch of a partition, in memory of fixed size."""

from __future__ import annotations

from random import Random

import numpy as np
from numpy.typing import NDArray

from penstock.blob import Buffer
from penstock.kernels import compaction

SLOT_BYTES = compaction.SLOT_FIELDS * 8
FILLED_MAX = 0.75  # of the slots; beyond, looking one up takes ever longer
KEYS_MIN = 8


class KeyMap:
    """Keys by their digest. It takes in runs of records in order until it is full."""

    def __init__(self, records_max: int, bytes_max: int, random: Random) -> None:
        affordable = int(bytes_max // SLOT_BYTES * FILLED_MAX)
        keys_max = max(min(records_max, affordable), KEYS_MIN)
        slots: NDArray[np.uint64] = np.zeros((int(keys_max / FILLED_MAX) + 1, compaction.SLOT_FIELDS), np.uint64)
        self.bytes_held = slots.nbytes
        self._keys = compaction.KeySlots(slots, (random.getrandbits(64), random.getrandbits(64)), keys_max)

    @property
    def keys(self) -> int:
        """How many keys it has."""
        return self._keys.used

    def note(self, run: Buffer, table: NDArray[np.int64], from_offset: int) -> int | None:
        """Take in the keys of a run's batches to sift, of records from an offset on; the offset of the first that found no room,
        None if all did."""
        full_at = compaction.note_keys(run, table, from_offset, self._keys)
        return None if full_at < 0 else full_at

    def bound(self, noted_to: int, ripe_to: int) -> None:
        """It was filled up to one offset; before the other, tombstones go too."""
        self._keys.bound(noted_to, ripe_to)

    def sift(self, run: Buffer, table: NDArray[np.int64], husk_row: int, out: memoryview) -> tuple[int, int]:
        """Copy to `out` what is left of a run; the bytes of it, and how many tombstones are among it. If nothing is left of the
        batch of `husk_row`, its header is."""
        return compaction.sift(run, table, self._keys, husk_row, out)
