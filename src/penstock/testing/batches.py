"""Record batches for tests, benchmarks and demos: made and taken apart the slow and obvious way."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from penstock.core.checksum import crc32c
from penstock.core.record_compression import compress_like, decompress
from penstock.core.varint import read_varint, varint

_HEADER = Struct(">qiibIhiqqqhii")
_AFTER_CRC = Struct(">hiqqqhii")


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
    records = b"".join(_record(delta, key, value) for delta, value in enumerate(values))
    producer = (producer_id, producer_epoch, base_sequence)
    return _framed(records, len(values), (timestamp, timestamp), attributes, producer, base_offset=base_offset)


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
    records = b"".join(_record(at, key, value, stamps[at] - stamps[0]) for at, (key, value) in enumerate(pairs))
    if codec:
        records = compress_like(codec, memoryview(b""), records)
    producer = (producer_id, producer_epoch, base_sequence)
    return _framed(records, len(pairs), (stamps[0], max(stamps)), attributes | codec, producer)


def keyed_records_of(data: bytes | memoryview) -> list[KeyedRecord]:
    """Every record of some stored batches, whatever they are compressed with. ValueError if a batch is not as its header says."""
    found: list[KeyedRecord] = []
    view = memoryview(data)
    at = 0
    while at < len(view):
        base_offset, length, _, _, checksum, attributes, last_delta, first, latest, _, _, _, count = _HEADER.unpack_from(view, at)
        end = at + 12 + length
        if crc32c(view[at + 21 : end]) != checksum:
            raise ValueError(f"the batch at offset {base_offset} does not match its checksum")
        plain = decompress(attributes & 7, view[at + 61 : end])
        place = 0
        own: list[KeyedRecord] = []
        while place < len(plain):
            delta, key, value, stamp, place = _read_record(plain, place)
            own.append(KeyedRecord(base_offset + delta, key, value, first + stamp))
        if len(own) != count or (own and own[-1].offset > base_offset + last_delta):
            raise ValueError(f"the batch at offset {base_offset} says it has {count} records up to {last_delta}, not {own}")
        if latest != max((record.timestamp for record in own), default=-1):
            raise ValueError(f"the latest record of the batch at offset {base_offset} is not from {latest}")
        found += own
        at = end
    return found


def make_marker(*, commit: bool, producer_id: int, producer_epoch: int = 0, timestamp: int = 0) -> bytes:
    """The control batch that ends a transaction."""
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    return make_batch(
        [b"\0\0\0\0\0\0"], key=key, timestamp=timestamp, attributes=0x30, producer_id=producer_id, producer_epoch=producer_epoch
    )


def values_of(data: bytes | memoryview) -> list[tuple[int, bytes]]:
    """(offset, value) of every record in some uncompressed batches."""
    found: list[tuple[int, bytes]] = []
    view = memoryview(data)
    at = 0
    while at < len(view):
        header = _HEADER.unpack_from(view, at)
        end = at + 12 + header[1]
        place = at + 61
        while place < end:
            offset, _, value, _, place = _read_record(view, place)
            found.append((header[0] + offset, value or b""))
        at = end
    return found


def _framed(
    records: bytes, count: int, times: tuple[int, int], attributes: int, producer: tuple[int, int, int], *, base_offset: int = 0
) -> bytes:
    tail = _AFTER_CRC.pack(attributes, count - 1, *times, *producer, count)
    head = _HEADER.pack(base_offset, 49 + len(records), 0, 2, crc32c(tail + records), *_AFTER_CRC.unpack(tail))
    return head + records


def _record(delta: int, key: bytes | None, value: bytes | None, timestamp: int = 0) -> bytes:
    body = b"\0" + varint(timestamp) + varint(delta) + _octets(key) + _octets(value) + varint(0)
    return varint(len(body)) + body


def _octets(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def _read_record(view: memoryview, at: int) -> tuple[int, bytes | None, bytes | None, int, int]:
    length, at = read_varint(view, at)
    end = at + length
    timestamp, at = read_varint(view, at + 1)
    delta, at = read_varint(view, at)
    key, at = _read_octets(view, at)
    value, at = _read_octets(view, at)
    return delta, key, value, timestamp, end


def _read_octets(view: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(view, at)
    return (None, at) if length < 0 else (bytes(view[at : at + length]), at + length)
