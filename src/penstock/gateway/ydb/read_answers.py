"""What was read of a partition, as answers to a reader in their encoded form.

Plain batches are encoded by a compiled kernel, record by record; whatever has more in its headers goes the long way round, by a
Python object a message."""

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
    kafka_producer,
    messages_of,
)
from penstock.gateway.ydb.wire import number
from penstock.kernels.message_pack import DATA_BYTES, IS_OTHER, MESSAGES, NEXT_ROW, OVERHEAD, pack_messages
from penstock.kernels.record_scan import HEADERS_AT, OFFSET_DELTA
from penstock.queue import Aborted, committed_batches, scan_batch

ANSWER_BYTES: Final = 4 << 20  # of data in one answer, unless a single message is larger
_KEY_ITEM: Final = b"\x0a" + bytes([len(KEY_ITEM)]) + KEY_ITEM.encode() + b"\x12"


class Packed(NamedTuple):
    """A batch of messages as it is sent, in pieces that are put together once, and how many bytes of data are in it."""

    pieces: tuple[Buffer, ...]
    size: int


class Answer(NamedTuple):
    """A whole message of the server, and the bytes that it takes of a reader's credit."""

    encoded: bytes
    size: int


def answers(session_id: int, data: bytes, from_offset: int, aborted: Sequence[Aborted], marked_from: int = 0) -> Iterator[Answer]:
    """The answers with all messages from an offset on. Batches before `marked_from` do not say which gateway wrote them."""
    parts: list[tuple[Buffer, ...]] = []
    size = 0
    for batch in committed_batches(data, aborted):
        for packed in _packed(batch, from_offset, marked_from):
            if parts and size + packed.size > ANSWER_BYTES:
                yield _answer(session_id, parts, size)
                parts, size = [], 0
            parts.append(packed.pieces)
            size += packed.size
    if parts:
        yield _answer(session_id, parts, size)


def _answer(session_id: int, batches: list[tuple[Buffer, ...]], size: int) -> Answer:
    size = max(size, 1)
    session: list[Buffer] = [b"\x08", number(session_id)]
    for pieces in batches:
        session += (b"\x12", number(_length(pieces)), *pieces)
    beginning, end = (b"\x0a", number(_length(session))), (b"\x10", number(size))
    length = _length(beginning) + _length(session) + _length(end)
    return Answer(b"".join((b"\x08", number(Status.SUCCESS), b"\x22", number(length), *beginning, *session, *end)), size)


def _length(pieces: Iterable[Buffer]) -> int:
    return sum(map(len, pieces))


def _packed(batch: memoryview, from_offset: int, marked_from: int) -> Iterator[Packed]:
    """The messages of a stored batch, in parts that fit into an answer; none if it is a marker."""
    scanned = scan_batch(batch)
    if scanned is None:
        return
    header, plain, table = scanned
    base_offset, count, stamp_ms = header.base_offset, header.message_count, header.stamp_ms
    base_ms = header.base_ms if stamp_ms is None else stamp_ms
    base = np.array([base_offset, base_ms, stamp_ms is None, from_offset], np.int64)
    told = np.zeros(4, np.int64)
    row = 0
    source = _source(plain, table, header, marked_from)
    out = np.empty(len(plain) + count * (OVERHEAD + (0 if source is None else len(source.group))), np.uint8).data
    while row < count:
        if source is None:
            first = max(from_offset, base_offset + int(table[row, OFFSET_DELTA]))
            yield from _the_long_way(messages_of(batch, first, marked_from))
            return
        used = pack_messages(
            plain,
            table,
            row,
            out,
            told,
            prefix=source.prefix,
            first_seqno=source.first_seqno,
            base=base,
            group=source.group,
            key_item=_KEY_ITEM,
            limit=ANSWER_BYTES,
        )
        if told[MESSAGES]:
            yield Packed((out[:used], source.tail(int(base[1]))), int(told[DATA_BYTES]))
            out = out[used:]
        row = int(told[NEXT_ROW])
        if told[IS_OTHER]:
            source = None


class _Source(NamedTuple):
    """Whose the messages of a batch are, if they are plain."""

    producer: bytes
    group: bytes
    prefix: bytes
    first_seqno: int

    def tail(self, time_ms: int) -> bytes:
        """What a batch has behind its messages."""
        stamp: bytes = timestamp(max(time_ms, 0)).SerializeToString()
        name = b"\x12" + number(len(self.producer)) + self.producer if self.producer else b""
        return name + b"\x20" + number(RAW) + b"\x2a" + number(len(stamp)) + stamp


def _source(plain: memoryview, table: Any, header: BatchHeader, marked_from: int) -> _Source | None:
    """Whose the first message is: what the others are compared with."""
    at = int(table[0, HEADERS_AT])
    if not plain[at]:
        name, first_seqno = kafka_producer(header)
        if first_seqno < 0:
            return _Source(b"", b"", b"", header.base_offset + 1)
        # Numbers that begin anew within a batch are counted one by one.
        return None if first_seqno + len(table) > SEQUENCE_WRAP else _Source(name.encode(), name.encode(), b"", first_seqno)
    if not header.is_from(FROM_YDB, marked_from):
        return None
    found = read_headers(bytes(plain[at : int(table[0, 1])]), 0)
    if len(found) != 2 or found[0][0] != PRODUCER or found[1][0] != SEQNO:
        return None
    name_bytes = found[0][1] or b""
    try:
        name_bytes.decode()
    except UnicodeDecodeError:
        return None
    prefix = varint(2) + packed_header(PRODUCER, name_bytes) + varint(len(SEQNO)) + SEQNO
    return _Source(name_bytes, name_bytes, prefix, -1)


def _the_long_way(messages: list[Message]) -> Iterator[Packed]:
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and size + len(message.data) > ANSWER_BYTES:
            yield from _serialized(part)
            part, size = [], 0
        part.append(message)
        size += len(message.data)
    yield from _serialized(part)


def _serialized(messages: list[Message]) -> Iterator[Packed]:
    for batch, size in batches_for(messages, RAW):
        yield Packed((batch.SerializeToString(),), size)
