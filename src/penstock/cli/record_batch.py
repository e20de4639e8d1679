"""Record batches taken apart and put together, one record at a time: good enough for a command, too slow for a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.cli.failure import CommandError
from penstock.core.checksum import crc32c
from penstock.core.record_compression import decompress
from penstock.core.varint import read_varint, varint

HEADER_SIZE: Final = 61
MAGIC: Final = 2
_COMPRESSION_MASK, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT_KEY_TYPE: Final = 0

_HEADER: Final = Struct(">qiibIhiqqqhii")
_AFTER_CRC: Final = Struct(">hiqqqhii")


class Record(NamedTuple):
    """A message as it was stored."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Source(NamedTuple):
    """Who writes, for the node to recognise what is sent twice; -1 is nobody."""

    producer_id: int = -1
    producer_epoch: int = -1


NOBODY: Final = Source()


def encode_batch(records: Sequence[Record], source: Source = NOBODY, sequence: int = -1) -> bytes:
    """One uncompressed batch of some records, whose offsets do not count."""
    base = records[0].timestamp_ms
    latest = max(record.timestamp_ms for record in records)
    body = b"".join(_encode_record(record, delta, base) for delta, record in enumerate(records))
    tail = _AFTER_CRC.pack(0, len(records) - 1, base, latest, *source, sequence, len(records)) + body
    head = _HEADER.pack(0, HEADER_SIZE - 12 + len(body), -1, MAGIC, crc32c(tail), *_AFTER_CRC.unpack_from(tail))
    return head + body


class Reader:
    """Reads what a fetch returned, over many fetches of one partition: `position` is the next offset to ask for."""

    def __init__(self, position: int) -> None:
        self.position = position

    def read(self, data: memoryview, aborted: Sequence[tuple[int, int]] = ()) -> Iterator[Record]:
        """The records from the position on, without those of aborted transactions, given as (producer id, first offset)."""
        waiting = sorted(aborted, key=lambda item: item[1])
        dropped: set[int] = set()
        at = 0
        while at + HEADER_SIZE <= len(data):
            base_offset, length, _, magic, checksum, attributes, last_delta, *times, producer_id, _, _, count = (
                _HEADER.unpack_from(data, at)
            )
            end = at + 12 + length
            if end > len(data):
                break  # a batch cut off at the end comes again, whole
            if magic != MAGIC or crc32c(data[at + 21 : end]) != checksum:
                raise CommandError(f"the batch at offset {base_offset} came damaged, or in another format than 2")
            while waiting and waiting[0][1] <= base_offset:
                dropped.add(waiting.pop(0)[0])
            body = _plain(attributes & _COMPRESSION_MASK, data[at + HEADER_SIZE : end], base_offset)
            is_dropped = attributes & _TRANSACTIONAL and producer_id in dropped
            at = end
            if attributes & _CONTROL:
                if _is_abort(body):
                    dropped.discard(producer_id)
            elif not is_dropped:
                stamp = times[1] if attributes & _APPEND_TIME else None
                for record in _decode_records(body, count, base_offset, times[0], stamp):
                    if record.offset >= self.position:
                        self.position = record.offset + 1
                        yield record
            self.position = max(self.position, base_offset + last_delta + 1)


def _encode_record(record: Record, delta: int, base_timestamp: int) -> bytes:
    body = bytearray(1)
    body += varint(record.timestamp_ms - base_timestamp)
    body += varint(delta)
    body += _octets(record.key)
    body += _octets(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _octets(name.encode())
        body += _octets(value)
    return varint(len(body)) + bytes(body)


def _octets(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def _plain(codec: int, records: memoryview, base_offset: int) -> memoryview:
    try:
        return decompress(codec, records)
    except ValueError as error:
        raise CommandError(f"the batch at offset {base_offset} does not decompress: {error}") from error


def _decode_records(body: memoryview, count: int, base_offset: int, base_timestamp: int, stamp: int | None) -> Iterator[Record]:
    at = 0
    try:
        for _ in range(count):
            length, at = read_varint(body, at)
            end = at + length
            timestamp_delta, at = read_varint(body, at + 1)
            offset_delta, at = read_varint(body, at)
            key, at = _read_octets(body, at)
            value, at = _read_octets(body, at)
            headers, at = _read_headers(body, at)
            timestamp = base_timestamp + timestamp_delta if stamp is None else stamp
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
            at = end
    except IndexError:
        raise CommandError(f"the batch at offset {base_offset} ends in the midst of a record") from None


def _read_headers(body: memoryview, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(body, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_octets(body, at)
        value, at = _read_octets(body, at)
        headers.append(((name or b"").decode(errors="replace"), value))
    return tuple(headers), at


def _read_octets(body: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    if length < 0:
        return None, at
    if at + length > len(body):
        raise IndexError
    return bytes(body[at : at + length]), at + length


def _is_abort(body: memoryview) -> bool:
    record = next(_decode_records(body, 1, 0, 0, None))
    return record.key is not None and int.from_bytes(record.key[2:4], "big") == _ABORT_KEY_TYPE
