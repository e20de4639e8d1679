"""Record batches taken apart and put together, one record at a time: good enough for a command, too slow for a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.cli.failure import CommandError
from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.record_format import (
    CRC_FROM,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Writer,
    framed,
    header_at,
    packed_record,
    plain_records,
    read_headers,
    read_octets,
)
from penstock.core.varint import read_varint

_ABORT_KEY_TYPE: Final = 0


class Record(NamedTuple):
    """A message as it was stored."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Source(NamedTuple):
    """The idempotent producer of a batch, by which the node detects duplicates; -1 for none."""

    producer_id: int = -1
    producer_epoch: int = -1


NO_SOURCE: Final = Source()


def encode_batch(records: Sequence[Record], source: Source = NO_SOURCE, sequence: int = -1) -> bytes:
    """One uncompressed batch of some records; their offsets are ignored."""
    base = records[0].timestamp_ms
    latest = max(record.timestamp_ms for record in records)
    body = b"".join(_encoded(record, delta, base) for delta, record in enumerate(records))
    return framed(body, len(records), (base, latest), writer=Writer(*source, sequence), leader_epoch=-1)


def _encoded(record: Record, delta: int, base_ms: int) -> bytes:
    headers = [(name.encode(), value) for name, value in record.headers]
    return packed_record(delta, record.value, key=record.key, headers=headers, time_delta=record.timestamp_ms - base_ms)


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
            header = header_at(data, at)
            end = at + 12 + header.length
            if end > len(data):
                break  # a batch cut off at the end comes again, whole
            if header.magic != MAGIC or crc32c(data[at + CRC_FROM : end]) != header.checksum:
                raise CommandError(f"the batch at offset {header.base_offset} is corrupt, or not in format version 2")
            while waiting and waiting[0][1] <= header.base_offset:
                dropped.add(waiting.pop(0)[0])
            records = _decoded(data[at:end], header)
            is_dropped = header.is_transactional and header.producer_id in dropped
            at = end
            if header.is_control:
                if _is_abort(next(records)):
                    dropped.discard(header.producer_id)
            elif not is_dropped:
                for record in records:
                    if record.offset >= self.position:
                        self.position = record.offset + 1
                        yield record
            self.position = max(self.position, header.next_offset)


def _decoded(batch: memoryview, header: BatchHeader) -> Iterator[Record]:
    try:
        body = plain_records(batch, header)
        at = 0
        for _ in range(header.message_count):
            length, at = read_varint(body, at)
            end = at + length
            time_delta, at = read_varint(body, at + 1)
            offset_delta, at = read_varint(body, at)
            key, at = read_octets(body, at)
            value, at = read_octets(body, at)
            headers = tuple((name.decode(errors="replace"), text) for name, text in read_headers(body, at))
            time_ms = header.base_ms + time_delta if header.stamp_ms is None else header.stamp_ms
            yield Record(header.base_offset + offset_delta, time_ms, key, value, headers)
            at = end
    except (CorruptionError, IndexError) as error:
        raise CommandError(f"the batch at offset {header.base_offset} cannot be read: {error}") from None


def _is_abort(record: Record) -> bool:
    return record.key is not None and int.from_bytes(record.key[2:4], "big") == _ABORT_KEY_TYPE
