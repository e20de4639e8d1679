"""Batches of rows: made of encoded rows, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.broker.weights import HEADER, pack_weights, weights_of_records
from penstock.core.record_format import NOBODY, TRANSACTIONAL, Writer, framed, packed_record
from penstock.core.trace_context import TRACEPARENT, current_trace
from penstock.core.varint import varint
from penstock.gateway.yt.row_codec import EncodedRow
from penstock.kernels.record_scan import (
    END,
    HEADERS_AT,
    KEY_AT,
    KEY_SIZE,
    OFFSET_DELTA,
    TIMESTAMP_DELTA,
    VALUE_AT,
    VALUE_SIZE,
)
from penstock.queue import scan_batch

TIMESTAMP_SHIFT = 30
NOT_STAMPED = -1


class ReadBatch(NamedTuple):
    """A stored batch: its records as they are, and a table of where everything in them is. `weights` are those of all rows up to
    and with each; None if it does not carry them."""

    base_offset: int
    records: bytes
    table: npt.NDArray[np.int64]
    times_ms: tuple[int, int]
    weights: npt.NDArray[np.int64] | None
    timestamp: int

    def offsets(self, part: slice) -> list[int]:
        """Offsets of some records."""
        found: list[int] = (self.table[part, OFFSET_DELTA] + self.base_offset).tolist()
        return found

    def octets(self, part: slice, at: int, size: int) -> list[bytes | None]:
        """Keys or values of some records, by the columns of the table that say where they are."""
        records = self.records
        starts, sizes = self.table[part, at].tolist(), self.table[part, size].tolist()
        return [None if length < 0 else records[start : start + length] for start, length in zip(starts, sizes, strict=True)]

    def keys(self, part: slice) -> list[bytes | None]:
        """Keys of some records."""
        return self.octets(part, KEY_AT, KEY_SIZE)

    def values(self, part: slice) -> list[bytes | None]:
        """Values of some records."""
        return self.octets(part, VALUE_AT, VALUE_SIZE)

    def headers(self, part: slice) -> list[bytes]:
        """Headers of some records, as they are."""
        ends = zip(self.table[part, HEADERS_AT].tolist(), self.table[part, END].tolist(), strict=True)
        return [self.records[start:end] for start, end in ends]

    def times(self, part: slice) -> list[int]:
        """Times of some records."""
        base, stamp = self.times_ms
        found: list[int] = (self.table[part, TIMESTAMP_DELTA] * (stamp < 0) + (base if stamp < 0 else stamp)).tolist()
        return found

    def from_offset(self, offset: int, count_max: int) -> slice:
        """The records from an offset on, as many as are wanted."""
        first = int(np.searchsorted(self.table[:, OFFSET_DELTA], offset - self.base_offset))
        return slice(first, first + count_max)


def make_row_batch(rows: Sequence[EncodedRow], before: int, now_ms: int, writer: Writer | None = None) -> bytes:
    """A batch of rows behind rows of the weight `before`."""
    weights = pack_weights(before, [row.weight for row in rows])
    trace = current_trace.get()
    traced = () if trace is None else ((TRACEPARENT.encode(), trace.encode()),)
    parts = [packed_record(0, rows[0].value, headers=[(HEADER, weights), *traced])]
    for delta in range(1, len(rows)):
        value = rows[delta].value
        size = len(value)
        head = b"\0\0" + varint(delta) + b"\1"
        head += varint(size)
        length = len(head) + size + 1
        parts.append(varint(length) + head + value + b"\0")
    attributes = 0 if writer is None else TRANSACTIONAL
    return framed(b"".join(parts), len(rows), (now_ms, now_ms), attributes=attributes, writer=writer or NOBODY)


def read_row_batch(batch: memoryview) -> ReadBatch | None:
    """What is in a stored batch; None if it is a marker."""
    scanned = scan_batch(batch)
    if scanned is None:
        return None
    header, plain, table = scanned
    weights = weights_of_records(plain)
    after = None
    if weights is not None and len(weights.rows) == header.message_count:
        after = np.cumsum(weights.rows, dtype=np.int64) + weights.before
    stamp = NOT_STAMPED if header.stamp_ms is None else header.stamp_ms
    timestamp = commit_timestamp(header.max_ms, header.base_offset)
    return ReadBatch(header.base_offset, bytes(plain), table, (header.base_ms, stamp), after, timestamp)


def commit_timestamp(time_ms: int, base_offset: int) -> int:
    """The timestamp of a commit: its second above, and below it what sets it apart from others of that second."""
    second, rest = divmod(max(time_ms, 0), 1000)
    return second << TIMESTAMP_SHIFT | rest << 20 | base_offset & 0xFFFFF
