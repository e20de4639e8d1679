"""Which record of a stored batch is the first from a time on, whatever the batch is compressed with.

A batch only says when its latest record is from; the records themselves have to be looked at, one by one, up to the one wanted.
This is for those who ask for an offset by time, not for the path of the data.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.blob import Buffer
from penstock.core.errors import CorruptionError
from penstock.core.record_compression import decompress

HEADER_SIZE = 61
CODEC_MASK = 0x07
APPEND_TIME = 0x08

EARLIEST = -(1 << 63)

_HEADER = Struct(">qii5xhiqq14xi")


class RecordTime(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_record_since(batch: Buffer, timestamp: int, from_offset: int) -> RecordTime | None:
    """The first record of a batch with this timestamp or a later one, at an offset from `from_offset` on; None if there is
    none."""
    view = memoryview(batch)
    base_offset, _, epoch, attributes, last_delta, base_timestamp, max_timestamp, count = _HEADER.unpack_from(view)
    if attributes & APPEND_TIME:
        # All records are from the moment the batch was stored.
        first = max(base_offset, from_offset)
        if max_timestamp < timestamp or first > base_offset + last_delta:
            return None
        if count == last_delta + 1:
            return RecordTime(first, max_timestamp, epoch)
        timestamp = EARLIEST  # compaction has taken some: which is the first that is left?
    try:
        plain = decompress(attributes & CODEC_MASK, view[HEADER_SIZE:])
        found = _scan(plain, (base_offset, base_timestamp, epoch), timestamp, from_offset)
    except (ValueError, IndexError, OverflowError) as error:
        raise CorruptionError(f"the records of the batch at offset {base_offset} cannot be read: {error}") from error
    return found._replace(timestamp=max_timestamp) if found is not None and attributes & APPEND_TIME else found


def _scan(plain: memoryview, base: tuple[int, int, int], timestamp: int, from_offset: int) -> RecordTime | None:
    base_offset, base_timestamp, epoch = base
    at = 0
    while at < len(plain):
        length, at = _varint(plain, at)
        timestamp_delta, inside = _varint(plain, at + 1)
        offset_delta, _ = _varint(plain, inside)
        if base_timestamp + timestamp_delta >= timestamp and base_offset + offset_delta >= from_offset:
            return RecordTime(base_offset + offset_delta, base_timestamp + timestamp_delta, epoch)
        if length <= 0:
            raise ValueError(f"a record has {length} bytes")
        at += length
    return None


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = view[at]
        at += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")
