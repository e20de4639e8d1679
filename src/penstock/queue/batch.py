"""The stored unit: Kafka's record batch, version 2. Its header is read and checked here; its records are not touched.

     0            8        12       16    17    21          23             27             35            43          51
     +------------+--------+--------+-----+-----+-----------+--------------+--------------+-------------+-----------+---
     |base offset |length  |leader  |magic|crc  |attributes |last offset   |base          |max          |producer id|
     |            |of rest |epoch   |2    |     |           |delta         |timestamp     |timestamp    |           |
     +------------+--------+--------+-----+-----+-----------+--------------+--------------+-------------+-----------+---
     51               53              57             61
     +----------------+---------------+--------------+---------
     |producer epoch  |base sequence  |record count  | records
     +----------------+---------------+--------------+---------

The checksum covers everything from the attributes on, so base offset and leader epoch can be set when a batch is stored.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from penstock.blob import Buffer
from penstock.core.checksum import crc32c
from penstock.core.record_format import (
    APPEND_TIME,
    ATTRIBUTES,
    BATCH_HEADER,
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_SIZE,
    LENGTH_FROM,
    MAGIC,
    MAX_MS,
    TRANSACTIONAL,
    seal_batch,
)
from penstock.core.varint import read_varint
from penstock.kernels.produce_frame import ProducedBatch
from penstock.queue.errors import BatchTooLargeError, CorruptBatchError, InvalidBatchError

PREFIX_SIZE = 16

_PLACE = Struct(">qi")
SPAN = Struct(">qi11xi")  # base offset, length of rest, last offset delta
_MAX_TIMESTAMP = Struct(">q")
_CONTROL_KEY = Struct(">hh")


class Batch(NamedTuple):
    """A checked batch: its bytes, and what its header says."""

    data: memoryview
    attributes: int
    messages: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int = 0  # as it came; it is stored with another

    @property
    def codec(self) -> int:
        """What its records are compressed with."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker that ends a transaction, and not data."""
        return bool(self.attributes & CONTROL)


class Span(NamedTuple):
    """Where a stored batch lies among offsets, and how long it is."""

    base_offset: int
    next_offset: int
    size: int


def check_batch(raw: Buffer, size_max: int) -> Batch:
    """The batch that is all of `raw`, if it can be stored."""
    view = memoryview(raw)
    size = len(view)
    if size > size_max:
        raise BatchTooLargeError(
            f"the batch has {size} bytes, the topic takes {size_max}; send smaller batches or raise its limit"
        )
    if size < HEADER_SIZE:
        raise InvalidBatchError(f"{size} bytes are no record batch: its header alone has {HEADER_SIZE}")
    (base_offset, length, _, magic, checksum, attributes, last_delta, base_ts, max_ts, producer, epoch, sequence, count) = (
        BATCH_HEADER.unpack_from(view)
    )
    if magic != MAGIC:
        raise InvalidBatchError(f"the batch has format {magic}; only version {MAGIC} is stored")
    if length != size - 12:
        raise InvalidBatchError(f"the batch says it has {length + 12} bytes, but {size} were given")
    if crc32c(view[CRC_FROM:]) != checksum:
        raise CorruptBatchError("the batch does not match its checksum")
    if count < 1 or last_delta != count - 1:
        raise InvalidBatchError(f"the batch has {count} records up to offset {last_delta}; they must be numbered through from 0")
    if attributes & TRANSACTIONAL and producer < 0:
        raise InvalidBatchError("the batch belongs to a transaction, but to no producer")
    return Batch(view, attributes, count, base_ts, max_ts, producer, epoch, sequence, base_offset)


def stored_batch(data: memoryview) -> Batch:
    """The batch that is all of these bytes, as it is stored: it was checked when it came."""
    (base_offset, _, _, _, _, attributes, _, base_ts, max_ts, producer, epoch, sequence, count) = BATCH_HEADER.unpack_from(data)
    return Batch(data, attributes, count, base_ts, max_ts, producer, epoch, sequence, base_offset)


def split_batches(raw: Buffer) -> list[memoryview]:
    """The batches that stand one after another in some bytes, by the lengths they give themselves."""
    view = memoryview(raw)
    batches: list[memoryview] = []
    at = 0
    while at < len(view):
        if at + LENGTH_FROM > len(view):
            raise InvalidBatchError(f"{len(view) - at} bytes are left over after the last batch")
        end = at + LENGTH_FROM + _PLACE.unpack_from(view, at)[1]
        if not at + HEADER_SIZE <= end <= len(view):
            raise InvalidBatchError(f"a batch says it ends at byte {end} of {len(view)}")
        batches.append(view[at:end])
        at = end
    return batches


def with_append_time(raw: Buffer, now_ms: int) -> bytes:
    """The batch stamped with the time at which it is stored, in place of what its producer said."""
    attributes = int.from_bytes(raw[ATTRIBUTES], "big") | APPEND_TIME
    return _stamped(raw, attributes, now_ms)


def with_latest_time(raw: Buffer, latest_ms: int) -> bytes:
    """The batch with the latest timestamp of its records in its header, where its producer put another."""
    return _stamped(raw, int.from_bytes(raw[ATTRIBUTES], "big") & ~APPEND_TIME, latest_ms)


def _stamped(raw: Buffer, attributes: int, time_ms: int) -> bytes:
    stamped = bytearray(raw)
    stamped[ATTRIBUTES] = attributes.to_bytes(2, "big")
    stamped[MAX_MS] = time_ms.to_bytes(8, "big", signed=True)
    seal_batch(stamped)
    return bytes(stamped)


def span_at(data: Buffer, at: int) -> Span:
    """The span of the stored batch that begins here."""
    base_offset, length, last_delta = SPAN.unpack_from(data, at)
    return Span(base_offset, base_offset + last_delta + 1, length + 12)


def max_timestamp_at(data: Buffer, at: int) -> int:
    """The latest timestamp of the stored batch that begins here."""
    latest: int = _MAX_TIMESTAMP.unpack_from(data, at + 35)[0]
    return latest


def is_control_at(data: Buffer, at: int) -> bool:
    """Whether the stored batch that begins here is a marker."""
    return bool(data[at + 22] & CONTROL)


def is_commit_marker(batch: Batch | ProducedBatch) -> bool:
    """Whether a control batch commits its transaction; otherwise it aborts it. InvalidBatchError if it does neither."""
    at = HEADER_SIZE
    try:
        at = read_varint(batch.data, at)[1] + 1  # length of the record, attributes
        for _ in range(3):
            at = read_varint(batch.data, at)[1]  # timestamp delta, offset delta, length of the key
        _, kind = _CONTROL_KEY.unpack_from(batch.data, at)
    except (IndexError, struct_error) as error:
        raise InvalidBatchError("the control batch has no marker in it") from error
    if kind not in (0, 1):
        raise InvalidBatchError(f"the control batch has a marker of unknown type {kind}")
    return bool(kind)
