"""Data weights of the rows of a queue, computed as in the seed and stored with them.

The first record of a batch of rows carries a header, "penstock.weights":

version 1 | weight of all rows of the partition before this batch 8 | weight of each row 4

so that the weight of any stretch of a partition is known from its first and last batch. The header counts only in batches that
the YT gateway has written.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.blob import Buffer
from penstock.core.record_format import (
    CONTROL,
    FROM_YT,
    KIND_BYTE,
    BatchHeader,
    base_offset_of,
    header_at,
    next_offset_of,
    plain_records,
    read_octets,
)
from penstock.kernels.record_scan import FIELDS, HEADERS_AT, scan_records
from penstock.queue import Partition, joined, split_batches
from penstock.tablet import KvTablet

VERSION = 1
HEADER = b"penstock.weights"
LOOKED_BACK_MAX = 1000  # batches of others, or markers, behind the last one with weights

BEFORE_MAX = 1 << 62  # no partition has so much; what says so is damaged

_PREFIX = Struct(">Bq")
WEIGHT = np.dtype(">u4")


class BatchWeights(NamedTuple):
    """The weights of the rows of a batch, and the total before it."""

    before: int
    rows: npt.NDArray[np.uint32]

    @property
    def after(self) -> int:
        """The weight of all rows up to the end of the batch."""
        return self.before + int(self.rows.sum(dtype=np.int64))


def pack_weights(before: int, rows: npt.ArrayLike) -> bytes:
    """The value of the header."""
    return _PREFIX.pack(VERSION, before) + np.asarray(rows, WEIGHT).tobytes()


def weights_of(batch: Buffer, marked_from: int = 0) -> BatchWeights | None:
    """The weights that a stored batch carries; None if it has none, being of another gateway or a marker. Batches before
    `marked_from` do not say which gateway wrote them."""
    header = header_at(batch)
    if header.is_control or not header.is_from(FROM_YT, marked_from):
        return None
    return weights_of_records(plain_records(batch, header), header, marked_from)


def weights_of_records(plain: Buffer, header: BatchHeader, marked_from: int = 0) -> BatchWeights | None:
    """The same, of records that are not compressed any more."""
    if not header.message_count or not header.is_from(FROM_YT, marked_from):
        return None
    table = np.empty((1, FIELDS), np.int64)
    scan_records(plain, table)
    at = int(table[0, HEADERS_AT])
    if plain[at] == 0:
        return None
    name, at = read_octets(plain, at + 1)
    if name != HEADER:
        return None
    raw = read_octets(plain, at)[0] or b""
    if len(raw) < _PREFIX.size or (len(raw) - _PREFIX.size) % WEIGHT.itemsize or raw[0] != VERSION:
        return None
    before: int = _PREFIX.unpack_from(raw)[1]
    return BatchWeights(before, np.frombuffer(raw, WEIGHT, offset=_PREFIX.size)) if 0 <= before < BEFORE_MAX else None


class Weights:
    """The weight of all rows of each partition, kept in memory while its tablet runs."""

    def __init__(self) -> None:
        self._after: dict[Partition, tuple[KvTablet, int]] = {}
        self._added: dict[Partition, int] = {}

    async def load(self, partition: Partition) -> int:
        """Load the total weight of all rows, from the last batch if necessary."""
        known = self._after.get(partition)
        if known is not None:
            return known[1]
        after = await _last_weight(partition)
        return self._after.setdefault(partition, (partition.tablet, after))[1]

    def add(self, partition: Partition, weight: int) -> int:
        """Add the weight of queued rows. Returns the total before them. It must be loaded."""
        tablet, before = self._after[partition]
        self._after[partition] = (tablet, before + weight)
        self._added[partition] = self.added(partition) + weight
        return before

    def added(self, partition: Partition) -> int:
        """The weight of the rows queued since the tablet started."""
        return self._added.get(partition, 0)

    def sweep(self) -> None:
        """Forget partitions whose tablets have stopped."""
        for partition in [known for known, (tablet, _) in self._after.items() if tablet.stopped.is_set()]:
            del self._after[partition]
            self._added.pop(partition, None)


async def weight_before(partition: Partition, offset: int) -> int | None:
    """The weight of all rows before an offset; None if the batch there does not say."""
    for _ in range(LOOKED_BACK_MAX):
        if offset >= partition.end_offset:
            return await _last_weight(partition)
        batch = await batch_at(partition, offset)
        if batch is None:
            return None
        base_offset = base_offset_of(batch)
        if not batch[KIND_BYTE] & CONTROL:
            weights = weights_of(batch, partition.origins.marked_from)
            inside = max(offset, partition.start_offset) - base_offset
            return None if weights is None else weights.before + int(weights.rows[:inside].sum(dtype=np.int64))
        offset = next_offset_of(batch)  # a marker weighs nothing
    return None


async def _last_weight(partition: Partition) -> int:
    offset = partition.end_offset - 1
    for _ in range(LOOKED_BACK_MAX):
        if offset < partition.start_offset:
            break
        batch = await batch_at(partition, offset)
        if batch is None:
            break
        weights = weights_of(batch, partition.origins.marked_from)
        if weights is not None:
            return weights.after
        offset = base_offset_of(batch) - 1
    return 0


async def batch_at(partition: Partition, offset: int) -> memoryview | None:
    """The batch that holds an offset, or the next one if it was compacted."""
    read = await partition.read(offset, 1)
    for batch in split_batches(joined(read)):
        if next_offset_of(batch) > offset:
            return batch
    return None
