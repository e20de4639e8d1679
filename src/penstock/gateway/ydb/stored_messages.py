"""Stored batches, taken apart into messages for a reader. What comes from Kafka has a producer and a number made for it: those of
its batch if its producer is idempotent, otherwise no producer and the offset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.core.errors import CorruptionError
from penstock.core.record_compression import decompress
from penstock.gateway.ydb.headers import GROUP, KEY_ITEM, PRODUCER, SEQNO, SESSION, unpacked, varint
from penstock.gateway.ydb.protos import timestamp, topic
from penstock.kernels.record_scan import (
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
from penstock.queue import Aborted

HEADER_SIZE: Final = 61
CODEC_MASK, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
SEQUENCE_WRAP: Final = 1 << 31
_HEADER = Struct(">qiibIhiqqqhii")
_COLUMNS = [OFFSET_DELTA, TIMESTAMP_DELTA, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT]
_PRODUCER_NAME = varint(len(PRODUCER)) + PRODUCER
_SEQNO_NAME = varint(len(SEQNO)) + SEQNO

Origin = tuple[str, tuple[tuple[str, str], ...]]
"""A producer id, and what it said of its session."""


class Message(NamedTuple):
    """A message as a reader gets it."""

    offset: int
    seqno: int
    time_ms: int
    data: bytes
    group: str
    origin: Origin
    items: tuple[tuple[str, bytes], ...]


class _Known(NamedTuple):
    """Headers that every message of a run begins with: up to the seqno, whose size comes next."""

    prefix: bytes
    producer: str


def is_aborted(batch: memoryview, aborted: Sequence[Aborted]) -> bool:
    """Whether a batch is part of a transaction that was aborted."""
    if not aborted or not batch[22] & TRANSACTIONAL:
        return False
    base_offset, producer = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[43:51], "big", signed=True)
    return any(one.producer_id == producer and one.first_offset <= base_offset <= one.last_offset for one in aborted)


def messages_of(batch: memoryview, from_offset: int) -> list[Message]:
    """The messages of a stored batch from an offset on; none if it is a marker."""
    base_offset, _, _, _, _, attributes, _, base_ms, max_ms, *producer, count = _HEADER.unpack_from(batch)
    if attributes & CONTROL:
        return []
    try:
        plain = decompress(attributes & CODEC_MASK, batch[HEADER_SIZE:])
    except ValueError as error:
        raise CorruptionError(f"the batch at offset {base_offset} does not decompress: {error}") from error
    table = np.empty((count, FIELDS), np.int64)
    scan_records(plain, table)
    raw = bytes(plain)
    rows: list[list[int]] = table[:, _COLUMNS].tolist()
    found: list[Message] = []
    known: _Known | None = None
    for delta, time_delta, key_at, key_size, value_at, value_size, headers_at in rows:
        offset = base_offset + delta
        if offset < from_offset:
            continue
        time_ms = max_ms if attributes & APPEND_TIME else base_ms + time_delta
        data = raw[value_at : value_at + value_size] if value_size > 0 else b""
        if known is not None and key_size < 0 and raw.startswith(known.prefix, headers_at):
            # As the one before: nothing but a producer and a seqno.
            at = headers_at + len(known.prefix)
            seqno = int(raw[at + 1 : at + 1 + (raw[at] >> 1)])
            found.append(Message(offset, seqno, time_ms, data, known.producer, (known.producer, ()), ()))
            continue
        key = raw[key_at : key_at + key_size] if key_size >= 0 else None
        message = _with_headers(raw, headers_at, key, Message(offset, 0, time_ms, data, "", ("", ()), ()))
        if not message.seqno:
            message = _numbered(message, producer, delta)
        elif not message.items and message.group == message.origin[0] and not message.origin[1]:
            known = _known_headers(message.origin[0])
        found.append(message)
    return found


def _known_headers(producer: str) -> _Known | None:
    if not producer:
        return None
    value = producer.encode()
    return _Known(varint(2) + _PRODUCER_NAME + varint(len(value)) + value + _SEQNO_NAME, producer)


def _with_headers(raw: bytes, at: int, key: bytes | None, message: Message) -> Message:
    producer, group, seqno = "", None, 0
    session: list[tuple[str, str]] = []
    items: list[tuple[str, bytes]] = [] if key is None else [(KEY_ITEM, key)]
    for name, value in unpacked(raw, at):
        if name == PRODUCER:
            producer = value.decode(errors="replace")
        elif name == SEQNO and value.isdigit():
            seqno = int(value)
        elif name == GROUP:
            group = value.decode(errors="replace")
        elif name.startswith(SESSION):
            session.append((name[len(SESSION) :].decode(errors="replace"), value.decode(errors="replace")))
        else:
            items.append((name.decode(errors="replace"), bytes(value)))
    return message._replace(
        seqno=seqno, group=producer if group is None else group, origin=(producer, tuple(session)), items=tuple(items)
    )


def _numbered(message: Message, producer: list[int], delta: int) -> Message:
    """A message that has no number of its own, with one made of its batch or its offset."""
    producer_id, epoch, sequence = producer
    if producer_id < 0 or sequence < 0:
        return message._replace(seqno=message.offset + 1)
    name = message.origin[0] or f"kafka-{producer_id}-{epoch}"
    seqno = (sequence + delta) % SEQUENCE_WRAP + 1
    return message._replace(seqno=seqno, group=message.group or name, origin=(name, message.origin[1]))


def batches_for(messages: Iterable[Message], codec: int) -> tuple[list[Any], int]:
    """Messages as they are sent to a reader, those of one producer in a row together, and the bytes of their data."""
    read = topic.StreamReadMessage.ReadResponse
    made: list[Any] = []
    origin: Origin | None = None
    time_ms = -1
    size = 0
    stamp = None
    for message in messages:
        if message.time_ms != time_ms:
            time_ms = message.time_ms
            stamp = timestamp(time_ms)
        if message.origin != origin:
            origin = message.origin
            made.append(read.Batch(producer_id=origin[0], write_session_meta=dict(origin[1]), codec=codec, written_at=stamp))
        sent = made[-1].message_data.add(
            offset=message.offset,
            seq_no=message.seqno,
            created_at=stamp,
            data=message.data,
            uncompressed_size=len(message.data),
            message_group_id=message.group,
        )
        for name, value in message.items:
            sent.metadata_items.add(key=name, value=value)
        size += len(message.data)
    return made, size
