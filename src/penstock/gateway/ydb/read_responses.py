"""Encodes batches of a partition as read responses.

Plain batches are encoded by a compiled kernel; batches with other headers by a Python object for each message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.blob import Buffer
from penstock.core.record_format import FROM_YDB, BatchHeader, packed_header, read_headers
from penstock.core.varint import varint
from penstock.gateway.ydb.headers import KEY_ITEM, PRODUCER, SEQNO
from penstock.gateway.ydb.protos import RAW, Status, timestamp
from penstock.gateway.ydb.stored_messages import (
    SEQUENCE_WRAP,
    Message,
    batches_for,
    decode_messages,
    kafka_producer,
)
from penstock.gateway.ydb.wire import number
from penstock.kernels.message_pack import DATA_BYTES, IS_OTHER, MESSAGES, NEXT_ROW, OVERHEAD, pack_messages
from penstock.kernels.record_scan import HEADERS_AT, OFFSET_DELTA
from penstock.queue import Aborted, committed_batches, scan_batch

RESPONSE_BYTES: Final = 4 << 20  # of data in one response, unless a single message is larger
_KEY_ITEM: Final = b"\x0a" + bytes([len(KEY_ITEM)]) + KEY_ITEM.encode() + b"\x12"


class EncodedBatch(NamedTuple):
    """An encoded batch of messages, in pieces that are joined once, and the bytes of its data."""

    pieces: tuple[Buffer, ...]
    size: int


class ReadResponse(NamedTuple):
    """An encoded message of the server, and the bytes that it uses of the reader's credit."""

    encoded: bytes
    size: int


def encode_responses(
    session_id: int, data: bytes, from_offset: int, aborted: Sequence[Aborted], marked_from: int = 0
) -> Iterator[ReadResponse]:
    """Encode all messages from an offset on. Batches before `marked_from` do not say which gateway wrote them."""
    parts: list[tuple[Buffer, ...]] = []
    size = 0
    for batch in committed_batches(data, aborted):
        for packed in _encode_batch(batch, from_offset, marked_from):
            if parts and size + packed.size > RESPONSE_BYTES:
                yield _encode_response(session_id, parts, size)
                parts, size = [], 0
            parts.append(packed.pieces)
            size += packed.size
    if parts:
        yield _encode_response(session_id, parts, size)


def _encode_response(session_id: int, batches: list[tuple[Buffer, ...]], size: int) -> ReadResponse:
    size = max(size, 1)
    session: list[Buffer] = [b"\x08", number(session_id)]
    for pieces in batches:
        session += (b"\x12", number(_length(pieces)), *pieces)
    beginning, end = (b"\x0a", number(_length(session))), (b"\x10", number(size))
    length = _length(beginning) + _length(session) + _length(end)
    return ReadResponse(b"".join((b"\x08", number(Status.SUCCESS), b"\x22", number(length), *beginning, *session, *end)), size)


def _length(pieces: Iterable[Buffer]) -> int:
    return sum(map(len, pieces))


def _encode_batch(batch: memoryview, from_offset: int, marked_from: int) -> Iterator[EncodedBatch]:
    """Encode a stored batch in parts that fit into a response; none for a transaction marker."""
    scanned = scan_batch(batch)
    if scanned is None:
        return
    header, plain, table = scanned
    base_offset, count, stamp_ms = header.base_offset, header.message_count, header.stamp_ms
    base_ms = header.base_ms if stamp_ms is None else stamp_ms
    base = np.array([base_offset, base_ms, stamp_ms is None, from_offset], np.int64)
    outcome = np.zeros(4, np.int64)
    row = 0
    source = _source(plain, table, header, marked_from)
    out = np.empty(len(plain) + count * (OVERHEAD + (0 if source is None else len(source.group))), np.uint8).data
    while row < count:
        if source is None:
            first = max(from_offset, base_offset + int(table[row, OFFSET_DELTA]))
            yield from _encode_by_message(decode_messages(batch, first, marked_from))
            return
        used = pack_messages(
            plain,
            table,
            row,
            out,
            outcome,
            prefix=source.prefix,
            first_seqno=source.first_seqno,
            base=base,
            group=source.group,
            key_item=_KEY_ITEM,
            limit=RESPONSE_BYTES,
        )
        if outcome[MESSAGES]:
            yield EncodedBatch((out[:used], source.tail(int(base[1]))), int(outcome[DATA_BYTES]))
            out = out[used:]
        row = int(outcome[NEXT_ROW])
        if outcome[IS_OTHER]:
            source = None


class _Source(NamedTuple):
    """The producer of a plain batch."""

    producer: bytes
    group: bytes
    prefix: bytes
    first_seqno: int

    def tail(self, time_ms: int) -> bytes:
        """The fields of a batch after its messages."""
        stamp: bytes = timestamp(max(time_ms, 0)).SerializeToString()
        name = b"\x12" + number(len(self.producer)) + self.producer if self.producer else b""
        return name + b"\x20" + number(RAW) + b"\x2a" + number(len(stamp)) + stamp


def _source(plain: memoryview, table: Any, header: BatchHeader, marked_from: int) -> _Source | None:
    """The producer of the first message, which the kernel compares the others with. Returns None if the batch is not plain."""
    at = int(table[0, HEADERS_AT])
    if not plain[at]:
        name, first_seqno = kafka_producer(header)
        if first_seqno < 0:
            return _Source(b"", b"", b"", header.base_offset + 1)
        # A sequence that wraps within a batch is counted message by message.
        return None if first_seqno + len(table) > SEQUENCE_WRAP else _Source(name.encode(), name.encode(), b"", first_seqno)
    if not header.is_from(FROM_YDB, marked_from):
        return None
    headers = read_headers(bytes(plain[at : int(table[0, 1])]), 0)
    if len(headers) != 2 or headers[0][0] != PRODUCER or headers[1][0] != SEQNO:
        return None
    name_bytes = headers[0][1] or b""
    try:
        name_bytes.decode()
    except UnicodeDecodeError:
        return None
    prefix = varint(2) + packed_header(PRODUCER, name_bytes) + varint(len(SEQNO)) + SEQNO
    return _Source(name_bytes, name_bytes, prefix, -1)


def _encode_by_message(messages: list[Message]) -> Iterator[EncodedBatch]:
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and size + len(message.data) > RESPONSE_BYTES:
            yield from _serialized(part)
            part, size = [], 0
        part.append(message)
        size += len(message.data)
    yield from _serialized(part)


def _serialized(messages: list[Message]) -> Iterator[EncodedBatch]:
    for batch, size in batches_for(messages, RAW):
        yield EncodedBatch((batch.SerializeToString(),), size)
