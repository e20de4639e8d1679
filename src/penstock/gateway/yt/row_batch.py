"""Batches of rows: made of encoded rows, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from penstock.broker.weights import HEADER, pack_weights, weights_of_records
from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.record_compression import decompress
from penstock.gateway.yt.row_codec import EncodedRow
from penstock.kernels.record_scan import (
    END,
    FIELDS,
    HEADERS_AT,
    KEY_AT,
    KEY_SIZE,
    OFFSET_DELTA,
    TIMESTAMP_DELTA,
    VALUE_AT,
    VALUE_SIZE,
    scan_records,
)

HEADER_SIZE = 61
CODEC_MASK, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
TIMESTAMP_SHIFT = 30
_HEADER = Struct(">qiibIhiqqqhii")
_AFTER_CRC = Struct(">hiqqqhii")
_SMALL = 1 << 14


class Writer(NamedTuple):
    """Whose batch it is, if it is part of a transaction."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


class ReadBatch(NamedTuple):
    """A stored batch, taken apart. `weights` are those of all rows up to and with each; None if it does not carry them."""

    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[bytes]
    times_ms: list[int]
    weights: list[int] | None
    timestamp: int


def make_row_batch(rows: Sequence[EncodedRow], before: int, now_ms: int, writer: Writer | None = None) -> bytes:
    """A batch of rows behind rows of the weight `before`."""
    weights = pack_weights(before, [row.weight for row in rows])
    parts = [_first_record(rows[0].value, weights)]
    for delta in range(1, len(rows)):
        value = rows[delta].value
        size = len(value)
        head = b"\0\0" + (_VARINTS[delta] if delta < _SMALL else _varint(delta)) + b"\1"
        head += _VARINTS[size] if size < _SMALL else _varint(size)
        length = len(head) + size + 1
        parts.append((_VARINTS[length] if length < _SMALL else _varint(length)) + head + value + b"\0")
    records = b"".join(parts)
    attributes, owner = (0, Writer()) if writer is None else (TRANSACTIONAL, writer)
    tail = _AFTER_CRC.pack(attributes, len(rows) - 1, now_ms, now_ms, *owner, len(rows))
    checksum = crc32c(tail + records)
    return _HEADER.pack(0, 49 + len(records), 0, 2, checksum, *_AFTER_CRC.unpack(tail)) + records


def read_row_batch(batch: memoryview) -> ReadBatch | None:
    """What is in a stored batch; None if it is a marker."""
    base_offset, _, _, _, _, attributes, _, base_time, max_time, _, _, _, count = _HEADER.unpack_from(batch)
    if attributes & CONTROL:
        return None
    try:
        plain = decompress(attributes & CODEC_MASK, batch[HEADER_SIZE:])
    except ValueError as error:
        raise CorruptionError(f"the batch at offset {base_offset} does not decompress: {error}") from error
    table = np.empty((count, FIELDS), np.int64)
    scan_records(plain, table)
    raw = bytes(plain)
    places: list[list[int]] = table[:, [KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, END]].tolist()
    weights = weights_of_records(raw)
    after = None
    if weights is not None and len(weights.rows) == count:
        after = (np.cumsum(weights.rows, dtype=np.int64) + weights.before).tolist()
    times = [max_time] * count if attributes & APPEND_TIME else (table[:, TIMESTAMP_DELTA] + base_time).tolist()
    return ReadBatch(
        (table[:, OFFSET_DELTA] + base_offset).tolist(),
        [None if size < 0 else raw[at : at + size] for at, size, *_ in places],
        [None if size < 0 else raw[at : at + size] for _, _, at, size, *_ in places],
        [raw[at:end] for *_, at, end in places],
        times,
        after,
        commit_timestamp(max_time, base_offset),
    )


def commit_timestamp(time_ms: int, base_offset: int) -> int:
    """The timestamp of a commit: its second above, and below it what sets it apart from others of that second."""
    second, rest = divmod(max(time_ms, 0), 1000)
    return second << TIMESTAMP_SHIFT | rest << 20 | base_offset & 0xFFFFF


def is_dropped(batch: memoryview, aborted: set[int]) -> bool:
    """Whether a batch is part of a transaction that was aborted."""
    attributes, producer_id = batch[22], int.from_bytes(batch[43:51], "big", signed=True)
    return bool(attributes & TRANSACTIONAL) and producer_id in aborted


def _first_record(value: bytes, weights: bytes) -> bytes:
    body = b"\0\0\0\1" + _varint(len(value)) + value
    body += _varint(1) + _varint(len(HEADER)) + HEADER + _varint(len(weights)) + weights
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    zigzag = number << 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_VARINTS: list[bytes] = [_varint(number) for number in range(_SMALL)]
Row = dict[str, Any]
