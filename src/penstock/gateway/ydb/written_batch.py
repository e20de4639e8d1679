"""Encodes messages of a writer as record batches. Messages are decompressed; each batch is compressed as a whole by the codec
that its messages were sent in."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from penstock.core import record_compression
from penstock.core.record_format import FROM_YDB, HEADER_SIZE, framed, packed_header, packed_octets
from penstock.core.varint import varint
from penstock.gateway.ydb.headers import GROUP, KEY_ITEM, OWN_PREFIX, PRODUCER, SEQNO, SESSION
from penstock.gateway.ydb.protos import CODEC_NAMES, GZIP, RAW, SUPPORTED_CODECS, ZSTD, milliseconds
from penstock.gateway.ydb.statuses import bad_request
from penstock.kernels.message_scan import OVERHEAD

BATCH_BYTES: Final = 1 << 20  # messages are put together up to this size
PLAIN_BYTES_MAX: Final = 128 << 20  # what the messages of one request may grow to
STORED_CODECS: Final = {RAW: record_compression.NONE, GZIP: record_compression.GZIP, ZSTD: record_compression.ZSTD}
GZIP_WINDOW: Final = 31

_NO_KEY = packed_octets(None)


class WriteSession(NamedTuple):
    """What all messages of a write session have in common."""

    producer: str
    headers: bytes  # those of every record, packed, up to the name of the one with the seqno
    headers_after: bytes  # packed, those after the seqno
    header_count: int

    @property
    def overhead(self) -> int:
        """The most bytes of a record besides its value and the metadata of its message."""
        return OVERHEAD + len(self.headers) + len(self.headers_after)

    @classmethod
    def of(cls, producer: str, group: str, session_meta: dict[str, str]) -> WriteSession:
        """Encode the headers of a session."""
        owner = packed_header(PRODUCER, producer.encode()) if producer else b""
        after = [packed_header(SESSION + name.encode(), value.encode()) for name, value in sorted(session_meta.items())]
        if group and group != producer:
            after.insert(0, packed_header(GROUP, group.encode()))
        return cls(producer, owner + varint(len(SEQNO)) + SEQNO, b"".join(after), bool(owner) + len(after))


class WrittenBatch(NamedTuple):
    """A batch to be stored, and how many messages are in it."""

    data: bytes
    messages: int

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.data)


def decompress_data(messages: Sequence[Any], codec: int) -> list[bytes]:
    """Decompress the data of messages. StatusError if the codec is not the claimed one."""
    if codec == RAW:
        return [message.data for message in messages]
    if codec not in SUPPORTED_CODECS:
        known = ", ".join(f"{CODEC_NAMES[supported]} ({supported})" for supported in SUPPORTED_CODECS)
        raise bad_request(f"codec {codec} is not supported; write with one of: {known}")
    plain: list[bytes] = []
    left = PLAIN_BYTES_MAX
    for message in messages:
        try:
            data = _gunzip(message.data, left) if codec == GZIP else _unzstd(message.data)
        except ValueError as error:
            raise bad_request(f"message {message.seq_no} is not {CODEC_NAMES[codec]}: {error}") from error
        left -= len(data)
        if left <= 0:
            raise bad_request(f"the messages of one request take more than {PLAIN_BYTES_MAX} bytes; send fewer at a time")
        plain.append(data)
    return plain


def _gunzip(data: bytes, size_max: int) -> bytes:
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    try:
        plain = unpacker.decompress(data, size_max)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacker.eof and len(plain) < size_max:
        raise ValueError("the data is incomplete")
    return plain


def _unzstd(data: bytes) -> bytes:
    return bytes(record_compression.decompress(record_compression.ZSTD, memoryview(data)))


def encode_batches(
    writer: WriteSession, messages: Sequence[Any], data: Sequence[bytes], codec: int, size_max: int = BATCH_BYTES
) -> Iterator[WrittenBatch]:
    """Encode messages as batches, in order, none larger than `size_max` unless a single message is."""
    at = 0
    times_ms = [milliseconds(message.created_at) for message in messages]
    while at < len(messages):
        records: list[bytes] = []
        base_ms = times_ms[at]
        size = HEADER_SIZE
        first = at
        while at < len(messages) and (at == first or size + _size_bound(writer, messages[at], data[at]) <= size_max):
            size += _append_record(records, writer, messages[at], data[at], (at - first, times_ms[at] - base_ms))
            at += 1
        span_ms = base_ms, max(times_ms[first:at])
        yield WrittenBatch(encode_batch(b"".join(records), at - first, span_ms, STORED_CODECS[codec]), at - first)


def _size_bound(writer: WriteSession, message: Any, value: bytes) -> int:
    """The most bytes that a record can take."""
    return len(value) + writer.overhead + int(message.ByteSize()) - len(message.data)


def _append_record(records: list[bytes], writer: WriteSession, message: Any, value: bytes, deltas: tuple[int, int]) -> int:
    """Append a record in pieces, so that its value is copied only once. Returns its size."""
    delta, time_delta = deltas
    seqno = b"%d" % message.seq_no
    key, tail = _NO_KEY, writer.headers_after
    count = writer.header_count + 1
    if message.metadata_items:
        key, items, added = _items(message)
        tail += items
        count += added
    size = len(value)
    head = b"".join(
        (
            b"\0\0" if time_delta == 0 else b"\0" + varint(time_delta),
            varint(delta),
            key,
            varint(size),
        )
    )
    tail = b"".join((varint(count), writer.headers, varint(len(seqno)), seqno, tail))
    length = len(head) + size + len(tail)
    prefix = varint(length)
    records += (prefix, head, value, tail)
    return len(prefix) + length


def _items(message: Any) -> tuple[bytes, bytes, int]:
    """The key among the metadata of a message, the other items as headers, and how many these are."""
    key = _NO_KEY
    headers: list[bytes] = []
    for item in message.metadata_items:
        if item.key == KEY_ITEM:
            key = packed_octets(item.value)
        elif item.key.startswith(OWN_PREFIX):
            raise bad_request(f"metadata item {item.key!r}: names that begin with {OWN_PREFIX!r} are not for messages")
        else:
            headers.append(packed_header(item.key.encode(), item.value))
    return key, b"".join(headers), len(headers)


def encode_batch(records: bytes | memoryview, count: int, times_ms: tuple[int, int], codec: int) -> bytes:
    """Encode a batch of records, compressed by a codec."""
    if codec:
        records = record_compression.compress_like(codec, memoryview(b""), records)
    return framed(records, count, times_ms, attributes=FROM_YDB | codec)
