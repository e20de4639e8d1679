"""Record batches for tests, benchmarks and demos: made and taken apart the slow and obvious way."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from penstock.core.checksum import crc32c

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
    tail = _AFTER_CRC.pack(
        attributes, len(values) - 1, timestamp, timestamp, producer_id, producer_epoch, base_sequence, len(values)
    )
    head = _HEADER.pack(base_offset, 49 + len(records), 0, 2, crc32c(tail + records), *_AFTER_CRC.unpack(tail))
    return head + records


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
            offset, value, place = _read_record(view, place)
            found.append((header[0] + offset, value))
        at = end
    return found


def _record(delta: int, key: bytes | None, value: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(delta)
    body += _varint(-1) if key is None else _varint(len(key)) + key
    body += _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _read_record(view: memoryview, at: int) -> tuple[int, bytes, int]:
    length, at = _read_varint(view, at)
    end = at + length
    _, at = _read_varint(view, at + 1)
    delta, at = _read_varint(view, at)
    key_length, at = _read_varint(view, at)
    value_length, at = _read_varint(view, at + max(key_length, 0))
    return delta, bytes(view[at : at + value_length]), end


def _varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = view[at]
        at += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), at
        shift += 7
