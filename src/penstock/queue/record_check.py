"""Checks the records of a batch against its header, as Kafka's brokers do, and rejects what consumers could not decode."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.errors import CorruptionError
from penstock.core.record_compression import NONE, PLAIN_BYTES_MAX, decompress
from penstock.core.record_format import HEADER_SIZE
from penstock.core.varint import read_varint
from penstock.kernels.record_scan import check_records
from penstock.queue.batch import Batch
from penstock.queue.errors import InvalidBatchError, KeylessRecordError

TIMESTAMP_MAX = (1 << 63) - 1


class TimeRange(NamedTuple):
    """The earliest and the latest timestamp of the records of a batch."""

    earliest_ms: int
    latest_ms: int


def plain_records_of(batch: Batch, bytes_max: int = PLAIN_BYTES_MAX) -> memoryview:
    """The records of a batch without their compression. InvalidBatchError if they do not decompress to at most so many bytes."""
    records = batch.data[HEADER_SIZE:]
    if batch.codec == NONE:
        return records
    try:
        return decompress(batch.codec, records, bytes_max)
    except ValueError as error:
        raise InvalidBatchError(f"the records of the batch cannot be decompressed: {error}") from error


def check_plain_records(batch: Batch, plain: memoryview, begin: int = 0, *, needs_keys: bool = False) -> TimeRange:
    """Check the records of a batch, which begin at a byte of `plain`: as many as it says, each whole and numbered through, and
    nothing beside them; with `needs_keys`, that each has a key. InvalidBatchError or KeylessRecordError if not."""
    try:
        least, most, keyless = check_records(plain, begin, batch.messages)
    except CorruptionError as error:
        raise InvalidBatchError(f"the records of the batch are not what its header says: {error}") from error
    if keyless >= 0 and needs_keys:
        raise KeylessRecordError(
            f"message {keyless} of the batch has no key, and the topic is compacted: it keeps the last message of each key. "
            "Nothing of the batch was stored; send messages with keys, or set the topic's cleanup.policy to delete",
            _keyless(plain, begin, batch.messages),
        )
    earliest_ms, latest_ms = batch.base_timestamp + least, batch.base_timestamp + most
    if latest_ms > TIMESTAMP_MAX or earliest_ms < -TIMESTAMP_MAX:
        raise InvalidBatchError(f"the timestamps of the batch, {earliest_ms} to {latest_ms}, do not fit 64 bits")
    return TimeRange(earliest_ms, latest_ms)


def _keyless(records: memoryview, at: int, count: int) -> tuple[int, ...]:
    """All of some records that were checked which have no key, for the producer to know which."""
    keyless: list[int] = []
    for number in range(count):
        size, begin = read_varint(records, at)
        _, after = read_varint(records, begin + 1)  # the timestamp, after a byte of attributes
        _, after = read_varint(records, after)  # the offset
        key_size, _ = read_varint(records, after)
        if key_size < 0:
            keyless.append(number)
        at = begin + size
    return tuple(keyless)
