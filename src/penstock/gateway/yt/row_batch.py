"""Encodes rows into record batches, and parses stored batches of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.blob import Buffer
from penstock.broker.weights import HEADER, pack_weights, weights_of_records
from penstock.core.record_format import (
    FROM_YT,
    NO_WRITER,
    TRANSACTIONAL,
    Writer,
    framed,
    header_at,
    packed_record,
    plain_records,
)
from penstock.core.trace_context import TRACEPARENT, current_trace
from penstock.gateway.yt.encoded_rows import EncodedRows, row_count
from penstock.kernels.json_rows import WEIGHT
from penstock.kernels.record_scan import (
    END,
    FIELDS,
    HEADERS_AT,
    KEY_AT,
    KEY_SIZE,
    OFFSET_DELTA,
    TIMESTAMP_DELTA,
    VALUE_AT,
    VALUE_SIZE,
    scan_records,
)
from penstock.kernels.row_pack import RECORD_OVERHEAD, pack_row_records

TIMESTAMP_SHIFT = 30
NOT_STAMPED = -1
TIME_MS_MAX = ((1 << 34) - 1) * 1000 + 999  # a later time, which Kafka's clients may send, does not fit a timestamp


class ReadBatch(NamedTuple):
    """A stored batch: its records, and a table of where the parts of each record are. `weights` are cumulative; None if the batch
    has none."""

    base_offset: int
    records: Buffer
    table: npt.NDArray[np.int64]
    times_ms: tuple[int, int]
    weights: npt.NDArray[np.int64] | None
    timestamp: int
    own_prefix: bytes | None = None
    weight_before: int = 0  # of all rows before it
    is_checked: bool = False  # this gateway wrote it, so the rows match their schema

    def offsets(self, part: slice) -> list[int]:
        """Offsets of some records."""
        offsets: list[int] = (self.table[part, OFFSET_DELTA] + self.base_offset).tolist()
        return offsets

    def octets(self, part: slice, at: int, size: int) -> list[bytes | None]:
        """Keys or values of some records, by the columns of the table with their place and size."""
        records = self.records
        starts, sizes = self.table[part, at].tolist(), self.table[part, size].tolist()
        return [
            None if length < 0 else bytes(records[start : start + length]) for start, length in zip(starts, sizes, strict=True)
        ]

    def keys(self, part: slice) -> list[bytes | None]:
        """Keys of some records."""
        return self.octets(part, KEY_AT, KEY_SIZE)

    def values(self, part: slice) -> list[bytes | None]:
        """Values of some records."""
        return self.octets(part, VALUE_AT, VALUE_SIZE)

    def headers(self, part: slice) -> list[bytes]:
        """Encoded headers of some records."""
        ends = zip(self.table[part, HEADERS_AT].tolist(), self.table[part, END].tolist(), strict=True)
        return [bytes(self.records[start:end]) for start, end in ends]

    def times(self, part: slice) -> list[int]:
        """Times of some records."""
        base, stamp = self.times_ms
        times: list[int] = (self.table[part, TIMESTAMP_DELTA] * (stamp < 0) + (base if stamp < 0 else stamp)).tolist()
        return times

    def within_weight(self, part: slice, weight_max: int, at_least: int) -> tuple[slice, int]:
        """The longest prefix of some records within a weight, but at least `at_least` of them. Returns the prefix and its weight.
        Without stored weights, a record weighs as much as its key and value."""
        if self.weights is None:
            sums = np.cumsum(np.maximum(self.table[part, KEY_SIZE], 0) + np.maximum(self.table[part, VALUE_SIZE], 0))
        else:
            weights = self.weights[: len(self.table)]
            sums = weights[part] - (weights[part.start - 1] if part.start else self.weight_before)
        count = min(max(int(np.searchsorted(sums, weight_max, side="right")), at_least), len(sums))
        return slice(part.start, part.start + count), int(sums[count - 1]) if count else 0

    def from_offset(self, offset: int, count_max: int) -> slice:
        """The records from an offset on, at most so many."""
        first = int(np.searchsorted(self.table[:, OFFSET_DELTA], offset - self.base_offset))
        return slice(first, first + count_max)


def make_row_batch(parts: Sequence[EncodedRows], before: int, now_ms: int, writer: Writer | None = None) -> bytes:
    """Encode rows as a batch. `before` is the weight of all rows before it in the partition."""
    count = row_count(parts)
    weights = pack_weights(before, np.concatenate([part.rows[:, WEIGHT] for part in parts]))
    trace = current_trace.get()
    trace_headers = () if trace is None else ((TRACEPARENT.encode(), trace.encode()),)
    first = packed_record(0, parts[0].value(0), headers=[(HEADER, weights), *trace_headers])
    out = np.empty(len(first) + sum(part.size for part in parts) + count * RECORD_OVERHEAD, np.uint8).data
    out[: len(first)] = first
    at, delta = len(first), 1
    for number, part in enumerate(parts):
        rows = part.rows[1:] if number == 0 else part.rows
        at += pack_row_records(part.data, rows, delta, out[at:])
        delta += len(rows)
    attributes = FROM_YT if writer is None else FROM_YT | TRANSACTIONAL
    return framed(out[:at], count, (now_ms, now_ms), attributes=attributes, writer=writer or NO_WRITER)


def read_row_batch(batch: Buffer, until: int | None = None, marked_from: int = 0) -> ReadBatch | None:
    """Parse a stored batch, up to about the offset `until`. Returns None for a transaction marker. Batches before `marked_from`
    do not say which gateway wrote them."""
    header = header_at(batch)
    if header.is_control:
        return None
    plain = plain_records(batch, header)
    # The offset delta of a record is never less than its index in the batch.
    count = header.message_count if until is None else min(header.message_count, max(until - header.base_offset, 0))
    table = np.empty((count, FIELDS), np.int64)
    scan_records(plain, table)
    weights = weights_of_records(plain, header, marked_from)
    after, before = None, 0
    if weights is not None and len(weights.rows) == header.message_count:
        after, before = np.cumsum(weights.rows, dtype=np.int64) + weights.before, weights.before
    stamp = NOT_STAMPED if header.stamp_ms is None else header.stamp_ms
    timestamp = commit_timestamp(header.max_ms, header.base_offset)
    return ReadBatch(
        header.base_offset,
        plain,
        table,
        (header.base_ms, stamp),
        after,
        timestamp,
        header.own_prefix,
        before,
        header.is_from(FROM_YT, 0),
    )


def commit_timestamp(time_ms: int, base_offset: int) -> int:
    """The timestamp of a commit: the second in the upper bits; below it, bits that tell commits of one second apart."""
    second, ms = divmod(min(max(time_ms, 0), TIME_MS_MAX), 1000)
    return second << TIMESTAMP_SHIFT | ms << 20 | base_offset & 0xFFFFF
