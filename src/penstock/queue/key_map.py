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
    """Keys by their digest. It takes in runs of records in order until it is full; `noted_to` says how far it came."""

    def __init__(self, records_max: int, bytes_max: int, random: Random) -> None:
        affordable = int(bytes_max // SLOT_BYTES * FILLED_MAX)
        self.keys_max = max(min(records_max, affordable), KEYS_MIN)
        self._slots: NDArray[np.uint64] = np.zeros((int(self.keys_max / FILLED_MAX) + 1, compaction.SLOT_FIELDS), np.uint64)
        self._secret = (random.getrandbits(64), random.getrandbits(64))
        self.keys = 0

    @property
    def bytes_held(self) -> int:
        """Memory it takes, however full it is."""
        return self._slots.nbytes

    def note(self, run: Buffer, table: NDArray[np.int64], from_offset: int) -> int | None:
        """Take in the keys of a run's batches to sift, of records from an offset on; the offset of the first that found no room,
        None if all did."""
        self.keys, full_at = compaction.note_keys(run, table, from_offset, self._secret, self._slots, self.keys, self.keys_max)
        return None if full_at < 0 else full_at

    def sift(
        self, run: Buffer, table: NDArray[np.int64], *, noted_to: int, ripe_to: int, husk_row: int, out: bytearray
    ) -> tuple[int, int]:
        """Copy to `out` what is left of a run; the bytes of it, and how many tombstones are among it."""
        return compaction.sift(run, table, self._secret, self._slots, noted_to, ripe_to, husk_row, out)
