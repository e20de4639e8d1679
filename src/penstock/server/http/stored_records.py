"""Records of a stored batch: a compiled pass locates them, and only those that are shown are decoded."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.record_format import APPEND_TIME, CONTROL, KIND_BYTE, read_headers
from penstock.kernels.record_scan import (
    END,
    HEADERS_AT,
    KEY_AT,
    KEY_SIZE,
    OFFSET_DELTA,
    START,
    TIMESTAMP_DELTA,
    VALUE_AT,
    VALUE_SIZE,
)
from penstock.queue import ScannedBatch, scan_batch

THREAD_BYTES: Final = 64 << 10  # what is larger is decompressed and searched beside the event loop


class Record(NamedTuple):
    """One message as it is stored."""

    partition: int
    offset: int
    timestamp: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    size: int


class RecordFilter(NamedTuple):
    """The requested records of a batch: begin <= offset < end, not before a time, and containing a text."""

    begin: int
    end: int
    since_ms: int | None = None
    needle: bytes = b""  # in lower case


class StoredRecords(NamedTuple):
    """The records of one batch, and the numbers of the requested ones."""

    batch: ScannedBatch
    chosen: list[int]

    def offset(self, number: int) -> int:
        """The offset of a record."""
        return self.batch.header.base_offset + int(self.batch.table[number, OFFSET_DELTA])

    def timestamp(self, number: int) -> int:
        """The timestamp of a record."""
        header = self.batch.header
        stamp_ms = header.stamp_ms
        return header.base_ms + int(self.batch.table[number, TIMESTAMP_DELTA]) if stamp_ms is None else stamp_ms

    def record(self, number: int, partition: int) -> Record:
        """Decode one record."""
        row: list[int] = self.batch.table[number].tolist()
        headers = read_headers(self.batch.records, row[HEADERS_AT])
        return Record(
            partition,
            self.offset(number),
            self.timestamp(number),
            bool(self.batch.header.attributes & APPEND_TIME),
            self._octets(row[KEY_AT], row[KEY_SIZE]),
            self._octets(row[VALUE_AT], row[VALUE_SIZE]),
            tuple((name.decode(errors="replace"), value) for name, value in headers),
            row[END] - row[START],
        )

    def _octets(self, at: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.batch.records[at : at + size])


async def stored_records(batch: memoryview, wanted: RecordFilter) -> StoredRecords | None:
    """The requested records; None if the batch is a transaction marker. A large batch is processed in a thread."""
    if batch[KIND_BYTE] & CONTROL:
        return None
    return _chosen(batch, wanted) if len(batch) < THREAD_BYTES else await asyncio.to_thread(_chosen, batch, wanted)


def _chosen(batch: memoryview, wanted: RecordFilter) -> StoredRecords | None:
    scanned = scan_batch(batch)
    if scanned is None:
        return None
    header, table = scanned.header, scanned.table
    offsets = table[:, OFFSET_DELTA] + header.base_offset
    chosen = (offsets >= wanted.begin) & (offsets < wanted.end)
    if wanted.since_ms is not None and header.stamp_ms is None:
        chosen &= table[:, TIMESTAMP_DELTA] + header.base_ms >= wanted.since_ms
    if wanted.needle:
        chosen &= _with_needle(bytes(scanned.records).lower(), table, wanted.needle)
    return StoredRecords(scanned, np.flatnonzero(chosen).tolist())


def _with_needle(lower: bytes, table: NDArray[np.int64], needle: bytes) -> NDArray[np.bool_]:
    """The records with a text in their key, value or headers. Only matching records are visited."""
    has = np.zeros(len(table), np.bool_)
    ends = table[:, END]
    at = lower.find(needle)
    while at >= 0:
        number = int(np.searchsorted(ends, at, side="right"))
        if number >= len(table):
            break
        key_at, key_size, value_at, value_size, headers_at = table[number, KEY_AT : HEADERS_AT + 1].tolist()
        # The bytes of lengths between the fields may match by accident.
        spans = ((key_at, key_at + max(key_size, 0)), (value_at, value_at + max(value_size, 0)), (headers_at, int(ends[number])))
        if any(lower.find(needle, begin, end) >= 0 for begin, end in spans):
            has[number] = True
            at = lower.find(needle, int(ends[number]))
        else:
            at = lower.find(needle, at + 1)
    return has
