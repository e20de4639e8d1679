"""Finds the first record of a stored batch from a time on, with any compression.

A batch header has only the time of its latest record, so the records are scanned up to the first match. This is for lookups of
offsets by time, not for the data path.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.blob import Buffer
from penstock.core.errors import CorruptionError
from penstock.core.record_format import header_at, plain_records
from penstock.core.varint import read_varint

EARLIEST = -(1 << 63)


class RecordTime(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_record_since(batch: Buffer, timestamp: int, from_offset: int) -> RecordTime | None:
    """The first record of a batch with this timestamp or a later one, at an offset from `from_offset` on; None if there is
    none."""
    header = header_at(batch)
    base_offset, epoch, stamp_ms = header.base_offset, header.leader_epoch, header.stamp_ms
    if stamp_ms is not None:
        # All records are from the moment the batch was stored.
        first = max(base_offset, from_offset)
        if stamp_ms < timestamp or first >= header.next_offset:
            return None
        if header.message_count == header.last_delta + 1:
            return RecordTime(first, stamp_ms, epoch)
        timestamp = EARLIEST  # compaction has taken some: which is the first that is left?
    try:
        record = _scan(plain_records(batch, header), (base_offset, header.base_ms, epoch), timestamp, from_offset)
    except (ValueError, IndexError, OverflowError) as error:
        raise CorruptionError(f"the records of the batch at offset {base_offset} cannot be read: {error}") from error
    return record if record is None or stamp_ms is None else record._replace(timestamp=stamp_ms)


def _scan(plain: memoryview, base: tuple[int, int, int], timestamp: int, from_offset: int) -> RecordTime | None:
    base_offset, base_timestamp, epoch = base
    at = 0
    while at < len(plain):
        length, at = read_varint(plain, at)
        timestamp_delta, inside = read_varint(plain, at + 1)
        offset_delta, _ = read_varint(plain, inside)
        if base_timestamp + timestamp_delta >= timestamp and base_offset + offset_delta >= from_offset:
            return RecordTime(base_offset + offset_delta, base_timestamp + timestamp_delta, epoch)
        if length <= 0:
            raise ValueError(f"a record has {length} bytes")
        at += length
    return None
