"""Batches of rows: made of encoded rows, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.broker.weights import HEADER, pack_weights, weights_of_records
from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.record_compression import decompress
from penstock.core.record_format import packed_header
from penstock.core.trace_context import TRACEPARENT, current_trace
from penstock.gateway.yt.row_codec import EncodedRow
from penstock.gateway.yt.varints import varint
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

HEADER_SIZE = 61
CODEC_MASK, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
TIMESTAMP_SHIFT = 30
NOT_STAMPED = -1
_HEADER = Struct(">qiibIhiqqqhii")
_AFTER_CRC = Struct(">hiqqqhii")


class Writer(NamedTuple):
    """Whose batch it is, if it is part of a transaction."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


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
    parts = [_first_record(rows[0].value, weights)]
    for delta in range(1, len(rows)):
        value = rows[delta].value
        size = len(value)
        head = b"\0\0" + varint(delta) + b"\1"
        head += varint(size)
        length = len(head) + size + 1
        parts.append(varint(length) + head + value + b"\0")
    records = b"".join(parts)
    attributes, owner = (0, Writer()) if writer is None else (TRANSACTIONAL, writer)
    tail = _AFTER_CRC.pack(attributes, len(rows) - 1, now_ms, now_ms, *owner, len(rows))
    checksum = crc32c(tail + records)
    return _HEADER.pack(0, 49 + len(records), 0, 2, checksum, *_AFTER_CRC.unpack(tail)) + records


def read_row_batch(batch: memoryview) -> ReadBatch | None:
    """What is in a stored batch; None if it is a marker."""
    base_offset, _, _, _, _, attributes, _, base_time, max_time, _, _, _, count = _HEADER.unpack_from(batch)
    if attributes & CONTROL:
        return None
    try:
        plain = decompress(attributes & CODEC_MASK, batch[HEADER_SIZE:])
    except ValueError as error:
        raise CorruptionError(f"the batch at offset {base_offset} does not decompress: {error}") from error
    table = np.empty((count, FIELDS), np.int64)
    scan_records(plain, table)
    weights = weights_of_records(plain)
    after = None
    if weights is not None and len(weights.rows) == count:
        after = np.cumsum(weights.rows, dtype=np.int64) + weights.before
    stamp = max_time if attributes & APPEND_TIME else NOT_STAMPED
    return ReadBatch(base_offset, bytes(plain), table, (base_time, stamp), after, commit_timestamp(max_time, base_offset))


def commit_timestamp(time_ms: int, base_offset: int) -> int:
    """The timestamp of a commit: its second above, and below it what sets it apart from others of that second."""
    second, rest = divmod(max(time_ms, 0), 1000)
    return second << TIMESTAMP_SHIFT | rest << 20 | base_offset & 0xFFFFF


def is_dropped(batch: memoryview, aborted: set[int]) -> bool:
    """Whether a batch is part of a transaction that was aborted."""
    attributes, producer_id = batch[22], int.from_bytes(batch[43:51], "big", signed=True)
    return bool(attributes & TRANSACTIONAL) and producer_id in aborted


def _first_record(value: bytes, weights: bytes) -> bytes:
    body = b"\0\0\0\1" + varint(len(value)) + value
    trace = current_trace.get()
    body += varint(1 if trace is None else 2) + varint(len(HEADER)) + HEADER + varint(len(weights)) + weights
    if trace is not None:
        body += packed_header(TRACEPARENT.encode(), trace.encode())
    return varint(len(body)) + body
