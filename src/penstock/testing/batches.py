"""Record batches for tests, benchmarks and demos: made and taken apart the slow and obvious way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.checksum import crc32c
from penstock.core.record_compression import compress_like
from penstock.core.record_format import (
    CRC_FROM,
    HEADER_SIZE,
    Writer,
    framed,
    header_at,
    packed_record,
    plain_records,
    read_octets,
)
from penstock.core.varint import read_varint


def make_batch(
    values: Sequence[bytes],
    *,
    key: bytes | None = None,
    timestamp: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
) -> bytes:
    """An uncompressed batch of these values."""
    records = b"".join(packed_record(delta, value, key=key) for delta, value in enumerate(values))
    writer = Writer(producer_id, producer_epoch, base_sequence)
    times = (timestamp, timestamp)
    return framed(records, len(values), times, attributes=attributes, writer=writer, base_offset=base_offset)


class KeyedRecord(NamedTuple):
    """A record as a reader of a compacted topic sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def make_keyed_batch(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamps: Sequence[int] = (0,),
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch of these keys and values, at times that are repeated if there are fewer of them."""
    stamps = [timestamps[at % len(timestamps)] for at in range(len(pairs))]
    records = b"".join(
        packed_record(at, value, key=key, time_delta=stamps[at] - stamps[0]) for at, (key, value) in enumerate(pairs)
    )
    if codec:
        records = compress_like(codec, memoryview(b""), records)
    writer = Writer(producer_id, producer_epoch, base_sequence)
    return framed(records, len(pairs), (stamps[0], max(stamps)), attributes=attributes | codec, writer=writer)


def keyed_records_of(data: bytes | memoryview) -> list[KeyedRecord]:
    """Every record of some stored batches, whatever they are compressed with. ValueError if a batch is not as its header says."""
    records: list[KeyedRecord] = []
    view = memoryview(data)
    at = 0
    while at < len(view):
        header = header_at(view, at)
        base_offset = header.base_offset
        end = at + 12 + header.length
        if crc32c(view[at + CRC_FROM : end]) != header.checksum:
            raise ValueError(f"the batch at offset {base_offset} does not match its checksum")
        plain = plain_records(view[at:end], header)
        place = 0
        own: list[KeyedRecord] = []
        while place < len(plain):
            delta, key, value, stamp, place = _read_record(plain, place)
            own.append(KeyedRecord(base_offset + delta, key, value, header.base_ms + stamp))
        if len(own) != header.message_count or (own and own[-1].offset >= header.next_offset):
            raise ValueError(f"the batch says {header}, but its records are {own}")
        if header.max_ms != max((record.timestamp for record in own), default=-1):
            raise ValueError(f"the latest record of the batch at offset {base_offset} is not from {header.max_ms}")
        records += own
        at = end
    return records


def make_marker(*, commit: bool, producer_id: int, producer_epoch: int = 0, timestamp: int = 0) -> bytes:
    """The control batch that ends a transaction."""
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    return make_batch(
        [b"\0\0\0\0\0\0"], key=key, timestamp=timestamp, attributes=0x30, producer_id=producer_id, producer_epoch=producer_epoch
    )


def values_of(data: bytes | memoryview) -> list[tuple[int, bytes]]:
    """(offset, value) of every record in some uncompressed batches."""
    records: list[tuple[int, bytes]] = []
    view = memoryview(data)
    at = 0
    while at < len(view):
        header = header_at(view, at)
        end = at + 12 + header.length
        place = at + HEADER_SIZE
        while place < end:
            offset, _, value, _, place = _read_record(view, place)
            records.append((header.base_offset + offset, value or b""))
        at = end
    return records


def _read_record(view: memoryview, at: int) -> tuple[int, bytes | None, bytes | None, int, int]:
    length, at = read_varint(view, at)
    end = at + length
    timestamp, at = read_varint(view, at + 1)
    delta, at = read_varint(view, at)
    key, at = read_octets(view, at)
    value, at = read_octets(view, at)
    return delta, key, value, timestamp, end
