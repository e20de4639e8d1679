"""Decodes stored batches to messages for readers. A message from Kafka gets the producer and sequence of its batch if the
producer is idempotent; otherwise no producer, and its offset as seqno."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from penstock.core.record_format import FROM_YDB, BatchHeader, Header, read_headers, without_own
from penstock.gateway.ydb.headers import GROUP, KEY_ITEM, PRODUCER, SEQNO, SESSION, item_name, seqno_of
from penstock.gateway.ydb.protos import timestamp, topic
from penstock.kernels.record_scan import (
    HEADERS_AT,
    KEY_AT,
    KEY_SIZE,
    OFFSET_DELTA,
    TIMESTAMP_DELTA,
    VALUE_AT,
    VALUE_SIZE,
)
from penstock.queue import scan_batch

SEQUENCE_WRAP: Final = 1 << 31
_COLUMNS = [OFFSET_DELTA, TIMESTAMP_DELTA, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT]

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


def decode_messages(batch: memoryview, from_offset: int, marked_from: int = 0) -> list[Message]:
    """The messages of a stored batch from an offset on; none if it is a marker. What our headers say counts if this gateway has
    written the batch, or if it is from before `marked_from`, when batches did not say whose they were."""
    scanned = scan_batch(batch)
    if scanned is None:
        return []
    header, plain, table = scanned
    base_offset, base_ms, stamp_ms = header.base_offset, header.base_ms, header.stamp_ms
    raw = bytes(plain)
    is_own = header.is_from(FROM_YDB, marked_from)
    rows: list[list[int]] = table[:, _COLUMNS].tolist()
    messages: list[Message] = []
    for delta, time_delta, key_at, key_size, value_at, value_size, headers_at in rows:
        offset = base_offset + delta
        if offset < from_offset:
            continue
        time_ms = base_ms + time_delta if stamp_ms is None else stamp_ms
        data = raw[value_at : value_at + value_size] if value_size > 0 else b""
        key = raw[key_at : key_at + key_size] if key_size >= 0 else None
        items = () if key is None else ((KEY_ITEM, key),)
        message = Message(offset, 0, time_ms, data, "", ("", ()), items)
        if raw[headers_at]:
            headers = read_headers(raw, headers_at)
            if is_own:
                message = _with_own_headers(message, headers)
            else:
                message = _with_headers(message, without_own(headers, header.own_prefix))
        messages.append(message if message.seqno else _with_seqno(message, header, delta))
    return messages


def _with_headers(message: Message, headers: list[Header]) -> Message:
    """A message of another gateway: all its headers are metadata."""
    return message._replace(items=(*message.items, *((item_name(name), value or b"") for name, value in headers)))


def _with_own_headers(message: Message, headers: list[Header]) -> Message:
    producer, group, seqno = "", None, 0
    session: list[tuple[str, str]] = []
    items = list(message.items)
    for name, text in headers:
        value = text or b""
        if name == PRODUCER:
            producer = value.decode(errors="replace")
        elif name == SEQNO:
            seqno = seqno_of(value)
        elif name == GROUP:
            group = value.decode(errors="replace")
        elif name.startswith(SESSION):
            session.append((name[len(SESSION) :].decode(errors="replace"), value.decode(errors="replace")))
        else:
            items.append((name.decode(errors="replace"), value))
    return message._replace(
        seqno=seqno, group=producer if group is None else group, origin=(producer, tuple(session)), items=tuple(items)
    )


def kafka_producer(header: BatchHeader) -> tuple[str, int]:
    """The name that a producer of Kafka has here, and the number of the first message of its batch; -1 if it has no numbers."""
    if header.producer_id < 0 or header.base_sequence < 0:
        return "", -1
    return f"kafka-{header.producer_id}-{header.producer_epoch}", header.base_sequence + 1


def _with_seqno(message: Message, header: BatchHeader, delta: int) -> Message:
    """The message with a seqno from its batch or its offset."""
    name, first_seqno = kafka_producer(header)
    if first_seqno < 0:
        return message._replace(seqno=message.offset + 1)
    name = message.origin[0] or name
    seqno = (first_seqno - 1 + delta) % SEQUENCE_WRAP + 1
    return message._replace(seqno=seqno, group=message.group or name, origin=(name, message.origin[1]))


def batches_for(messages: Iterable[Message], codec: int) -> list[tuple[Any, int]]:
    """Messages as they are sent to a reader, those of one producer in a row together, each with the bytes of its data."""
    read = topic.StreamReadMessage.ReadResponse
    batches: list[tuple[Any, int]] = []
    batch: Any = None
    size = 0
    origin: Origin | None = None
    for message in messages:
        stamp = timestamp(message.time_ms)
        if message.origin != origin:
            if batch is not None:
                batches.append((batch, size))
            origin, size = message.origin, 0
            batch = read.Batch(producer_id=origin[0], write_session_meta=dict(origin[1]), codec=codec, written_at=stamp)
        sent = batch.message_data.add(
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
    if batch is not None:
        batches.append((batch, size))
    return batches
