"""Record batches as a client reads and writes them: an object a record, found by one scan of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

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
)
from penstock.kernels.record_scan import FIELDS, scan_records

_ABORT_KEY_TYPE: Final = 0
NO_HEADERS: Final = b"\0"


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
        for header, batch in committed_batches(data, aborted):
            if batch is not None:
                for record in decoded_records(batch, header):
                    if record.offset >= self.position:
                        self.position = record.offset + 1
                        yield record
            self.position = max(self.position, header.next_offset)


def committed_batches(
    data: memoryview, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """The batches that a fetch returned, each checked; without its bytes if it holds no messages for a reader: a marker, or part
    of an aborted transaction. These are given as (producer id, first offset)."""
    waiting = sorted(aborted, key=lambda item: item[1])
    dropped: set[int] = set()
    at = 0
    while at + HEADER_SIZE <= len(data):
        header = header_at(data, at)
        end = at + 12 + header.length
        if end > len(data):
            break  # a batch cut off at the end comes again, whole
        if header.magic != MAGIC or crc32c(data[at + CRC_FROM : end]) != header.checksum:
            raise CorruptionError(f"the batch at offset {header.base_offset} is corrupt, or not in format version 2")
        while waiting and waiting[0][1] <= header.base_offset:
            dropped.add(waiting.pop(0)[0])
        batch = data[at:end]
        is_dropped = header.is_transactional and header.producer_id in dropped
        if header.is_control and _is_abort(next(decoded_records(batch, header))):
            dropped.discard(header.producer_id)
        yield header, None if header.is_control or is_dropped else batch
        at = end


def decoded_records(batch: memoryview, header: BatchHeader) -> Iterator[Record]:
    """All records of a batch."""
    count = header.message_count
    if not count:
        return
    try:
        body = plain_records(batch, header)
        if count > len(body):
            raise CorruptionError(f"{count} records cannot be in {len(body)} bytes")
        # Without numpy, whose import takes longer than most commands.
        table = memoryview(bytearray(count * FIELDS * 8)).cast("q", (count, FIELDS))
        scan_records(body, table)
    except CorruptionError as error:
        raise CorruptionError(f"the batch at offset {header.base_offset} cannot be read: {error}") from None
    base_offset, base_ms, stamp_ms = header.base_offset, header.base_ms, header.stamp_ms
    rows: Any = table.tolist()  # a list a record; the types know views of one dimension only
    for _, _, time_delta, offset_delta, key_at, key_size, value_at, value_size, headers_at in rows:
        yield Record(
            base_offset + offset_delta,
            base_ms + time_delta if stamp_ms is None else stamp_ms,
            None if key_size < 0 else bytes(body[key_at : key_at + key_size]),
            None if value_size < 0 else bytes(body[value_at : value_at + value_size]),
            () if bytes(body[headers_at : headers_at + 1]) == NO_HEADERS else _headers(body, headers_at),
        )


def _headers(body: memoryview, at: int) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name.decode(errors="replace"), text) for name, text in read_headers(body, at))


def _is_abort(record: Record) -> bool:
    return record.key is not None and int.from_bytes(record.key[2:4], "big") == _ABORT_KEY_TYPE
