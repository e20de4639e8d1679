"""Messages of streams as Kafka's records: made when they are published, taken apart when they are read.

A message is one record: its data the value, its headers the headers. What the stream knows beyond that is in headers of its own:

     penstock.object_name   where the payload is, if it is not the value: in the payload store, or in one of the publisher's
     penstock.size          the size of a payload in the payload store, in decimal digits
     penstock.crc32c        its checksum, in hexadecimal digits

The value of such a record is the same as JSON, for readers who look at values only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from penstock.blob import Buffer
from penstock.broker.streams.errors import InvalidHeadersError
from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.record_compression import decompress
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

OWN_PREFIX: Final = "penstock."
OBJECT_NAME: Final = "penstock.object_name"
SIZE: Final = "penstock.size"
CHECKSUM: Final = "penstock.crc32c"
KEY: Final = "kafka.key"  # the key of a record that a Kafka producer has written
HEADERS_BYTES_MAX: Final = 64 << 10
RECORD_OVERHEAD: Final = 256  # of a batch of one record, besides its value and headers

HEADER_SIZE: Final = 61
CODEC_MASK, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
_HEADER = Struct(">qiibIhiqqqhii")
_AFTER_CRC = Struct(">hiqqqhii")
_COLUMNS = [OFFSET_DELTA, TIMESTAMP_DELTA, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT]


class Payload(NamedTuple):
    """A payload that is not in the log. One that the publisher keeps elsewhere has no known size: -1."""

    object_name: str
    size: int = -1
    crc32c: int = 0


class StoredMessage(NamedTuple):
    """A message as it stands in the log of its subject."""

    offset: int
    time_ms: int
    data: bytes
    headers: dict[str, str]
    payload: Payload | None


class Content(NamedTuple):
    """What is published: data and headers, or headers and where the payload is."""

    data: bytes
    headers: Mapping[str, str]
    payload: Payload | None = None


def headers_size(headers: Mapping[str, str]) -> int:
    """About what headers take in a record. InvalidHeadersError if a message cannot have them."""
    size = 0
    for name, value in headers.items():
        if not name or name.startswith(OWN_PREFIX):
            raise InvalidHeadersError(f"header {name!r}: a name is not empty, and those that begin with {OWN_PREFIX!r} are ours")
        size += len(name.encode()) + len(value.encode()) + 6
    if size > HEADERS_BYTES_MAX:
        raise InvalidHeadersError(f"the headers take {size} bytes; a message has at most {HEADERS_BYTES_MAX} of them")
    return size


def batch_of(contents: Sequence[Content], time_ms: int) -> bytes:
    """One batch with a record for each content, all of one time."""
    records = b"".join(_record(content, delta) for delta, content in enumerate(contents))
    count = len(contents)
    tail = _AFTER_CRC.pack(0, count - 1, time_ms, time_ms, -1, -1, -1, count)
    checksum = crc32c(records, crc32c(tail))
    return b"".join((_HEADER.pack(0, 49 + len(records), 0, 2, checksum, *_AFTER_CRC.unpack(tail)), records))


def _record(content: Content, delta: int) -> bytes:
    value = content.data
    headers = [(name.encode(), text.encode()) for name, text in content.headers.items()]
    if content.payload is not None:
        own = _payload_headers(content.payload)
        headers += [(name.encode(), text.encode()) for name, text in own.items()]
        value = json.dumps({name.removeprefix(OWN_PREFIX): text for name, text in own.items()}).encode()
    parts = [b"\0\0", varint(delta), b"\1", varint(len(value)), value, varint(len(headers))]
    for name, text in headers:
        parts += (varint(len(name)), name, varint(len(text)), text)
    body = b"".join(parts)
    return varint(len(body)) + body


def _payload_headers(payload: Payload) -> dict[str, str]:
    found = {OBJECT_NAME: payload.object_name}
    if payload.size >= 0:
        found |= {SIZE: str(payload.size), CHECKSUM: f"{payload.crc32c:08x}"}
    return found


def is_aborted(batch: memoryview, aborted: Sequence[Aborted]) -> bool:
    """Whether a batch is part of a transaction that was aborted."""
    if not aborted or not batch[22] & TRANSACTIONAL:
        return False
    base_offset, producer = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[43:51], "big", signed=True)
    return any(one.producer_id == producer and one.first_offset <= base_offset <= one.last_offset for one in aborted)


def messages_of(batch: memoryview, begin: int, end: int) -> Iterator[StoredMessage]:
    """The messages of a stored batch with begin <= offset < end; none if it is a marker."""
    base_offset, _, _, _, _, attributes, _, base_ms, max_ms, _, _, _, count = _HEADER.unpack_from(batch)
    if attributes & CONTROL:
        return
    try:
        plain = decompress(attributes & CODEC_MASK, batch[HEADER_SIZE:])
    except ValueError as error:
        raise CorruptionError(f"the batch at offset {base_offset} does not decompress: {error}") from error
    table = np.empty((count, FIELDS), np.int64)
    scan_records(plain, table)
    rows: list[list[int]] = table[:, _COLUMNS].tolist()
    for delta, time_delta, key_at, key_size, value_at, value_size, headers_at in rows:
        offset = base_offset + delta
        if not begin <= offset < end:
            continue
        headers = _headers_at(plain, headers_at)
        if key_size >= 0:
            headers[KEY] = bytes(plain[key_at : key_at + key_size]).decode(errors="replace")
        payload = _payload_of(headers)
        data = b"" if payload is not None or value_size < 0 else bytes(plain[value_at : value_at + value_size])
        yield StoredMessage(offset, max_ms if attributes & APPEND_TIME else base_ms + time_delta, data, headers, payload)


def _payload_of(headers: Mapping[str, str]) -> Payload | None:
    name = headers.get(OBJECT_NAME)
    if name is None:
        return None
    try:
        return Payload(name, int(headers[SIZE]), int(headers[CHECKSUM], 16))
    except (KeyError, ValueError):
        return Payload(name)


def _headers_at(raw: Buffer, at: int) -> dict[str, str]:
    count, at = _read_varint(raw, at)
    headers: dict[str, str] = {}
    for _ in range(count):
        size, at = _read_varint(raw, at)
        name = bytes(raw[at : at + size]).decode(errors="replace")
        at += size
        size, at = _read_varint(raw, at)
        size = max(size, 0)
        headers[name] = bytes(raw[at : at + size]).decode(errors="replace")
        at += size
    return headers


def varint(number: int) -> bytes:
    """A number as records have it: zigzag, seven bits a byte."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    if zigzag < 0x80:
        return bytes((zigzag,))
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _read_varint(raw: Buffer, at: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = raw[at]
        at += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), at
        shift += 7
