"""Encodes messages of streams as Kafka records, and decodes them.

A message is one record: its data the value, its headers the headers. What the stream knows beyond that is in headers of its own:

     penstock.object_name   where the payload is, if it is not the value: in the payload store, or in one of the publisher's
     penstock.size          the size of a payload in the payload store, in decimal digits
     penstock.crc32c        its checksum, in hexadecimal digits

The value of such a record is the same as JSON, for readers who look at values only. These headers mean this only in batches that
streams have written, and only if the value agrees; that a payload of the payload store is the message's is for that store to say.
A header of another gateway whose name means something here is given to readers under kafka.header.NAME.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.streams.errors import InvalidHeadersError
from penstock.core.record_format import (
    FROM_STREAMS,
    BatchHeader,
    framed,
    header_at,
    packed_record,
    plain_records,
    read_headers,
    without_own,
)
from penstock.kernels.record_scan import find_record
from penstock.queue import scan_batch

OWN_PREFIX: Final = "penstock."
OBJECT_NAME: Final = "penstock.object_name"
SIZE: Final = "penstock.size"
CHECKSUM: Final = "penstock.crc32c"
KEY: Final = "kafka.key"  # the key of a record that a Kafka producer has written
FOREIGN_PREFIX: Final = "kafka.header."
SIZE_DIGITS_MAX: Final = 18
CHECKSUM_DIGITS: Final = 8
HEADERS_BYTES_MAX: Final = 64 << 10
HEADER_OVERHEAD: Final = 12  # of each header, in a record or a message of gRPC, at most
RECORD_OVERHEAD: Final = 256  # of a batch of one record, besides its value and headers
REFERENCE_OVERHEAD: Final = 160  # of a record with a payload elsewhere, besides its name, which it has twice


class Payload(NamedTuple):
    """A payload outside the log. If the publisher stores it elsewhere, its size is -1 and its checksum unknown."""

    object_name: str
    size: int = -1
    crc32c: int | None = None

    @property
    def object_id(self) -> UUID | None:
        """Its id in the payload store; None if its name has none."""
        try:
            return UUID(hex=self.object_name.rpartition("/")[2])
        except ValueError:
            return None


class StoredMessage(NamedTuple):
    """A message in the log of its subject."""

    offset: int
    time_ms: int
    data: bytes
    headers: dict[str, str]
    payload: Payload | None


class Content(NamedTuple):
    """The content of a message: data and headers, or headers and the location of the payload."""

    data: bytes
    headers: Mapping[str, str]
    payload: Payload | None = None


def headers_size(headers: Mapping[str, str]) -> int:
    """The approximate size of headers in a record. Raises InvalidHeadersError if they are not allowed."""
    size = 0
    for name, value in headers.items():
        if not name or name.startswith(OWN_PREFIX):
            raise InvalidHeadersError(f"header {name!r}: a name is not empty, and those that begin with {OWN_PREFIX!r} are ours")
        try:
            size += len(name.encode()) + len(value.encode()) + 6
        except UnicodeEncodeError as error:
            raise InvalidHeadersError(f"header {name!r} is not text in UTF-8; put bytes that are none into the data") from error
    if size > HEADERS_BYTES_MAX:
        raise InvalidHeadersError(f"the headers take {size} bytes; a message has at most {HEADERS_BYTES_MAX} of them")
    return size


def fitting_headers(headers: Mapping[str, str], limit: int, left_out: str) -> dict[str, str]:
    """Headers up to a size. Kafka clients write more than other messages may have; a header of the name `left_out` says how many
    did not fit."""
    fitting: dict[str, str] = {}
    left = limit
    for name, value in headers.items():
        size = len(name.encode()) + len(value.encode()) + HEADER_OVERHEAD
        if size <= left:
            fitting[name] = value
            left -= size
    return fitting if len(fitting) == len(headers) else {**fitting, left_out: str(len(headers) - len(fitting))}


def content_size(content: Content) -> int:
    """An upper bound of the size of a record. Raises InvalidHeadersError if its headers are not allowed."""
    size = len(content.data) + headers_size(content.headers)
    return size if content.payload is None else size + 2 * len(content.payload.object_name.encode()) + REFERENCE_OVERHEAD


def batch_of(contents: Sequence[Content], time_ms: int) -> bytes:
    """One batch with a record for each content, all of one time."""
    records = b"".join([_record(content, delta) for delta, content in enumerate(contents)])
    return framed(records, len(contents), (time_ms, time_ms), attributes=FROM_STREAMS)


def _record(content: Content, delta: int) -> bytes:
    value = content.data
    headers = [(name.encode(), text.encode()) for name, text in content.headers.items()]
    if content.payload is not None:
        fields = _payload_fields(content.payload)
        value = json.dumps(fields).encode()
        headers += [((OWN_PREFIX + name).encode(), text.encode()) for name, text in fields.items()]
    return packed_record(delta, value, headers=headers)


def _payload_fields(payload: Payload) -> dict[str, str]:
    if payload.size < 0 or payload.crc32c is None:
        return {"object_name": payload.object_name}
    return {"object_name": payload.object_name, "size": str(payload.size), "crc32c": f"{payload.crc32c:08x}"}


def messages_of(batch: memoryview, begin: int, end: int, marked_from: int = 0) -> Iterator[StoredMessage]:
    """The messages of a stored batch with begin <= offset < end; none if it is a marker. Batches before `marked_from` do not say
    which gateway wrote them."""
    scanned = scan_batch(batch)
    if scanned is None:
        return
    header, records, table = scanned
    for _, _, time_delta, delta, *places in table.tolist():
        if begin <= header.base_offset + delta < end:
            yield _stored(header, records, delta, (time_delta, *places), marked_from)


def message_at(batch: memoryview, offset: int, marked_from: int = 0) -> StoredMessage | None:
    """The message of a stored batch at an offset; None if it has none there."""
    header = header_at(batch)
    if header.is_control:
        return None
    records = plain_records(batch, header)
    delta = offset - header.base_offset
    place = find_record(records, delta)
    return None if place is None else _stored(header, records, delta, place, marked_from)


def _stored(header: BatchHeader, records: memoryview, delta: int, row: tuple[int, ...], marked_from: int) -> StoredMessage:
    time_delta, key_at, key_size, value_at, value_size, headers_at = row
    data = b"" if value_size < 0 else bytes(records[value_at : value_at + value_size])
    headers, payload = _headers_at(records, headers_at, header, marked_from), None
    if OBJECT_NAME in headers:
        payload = _payload_of(headers)
        if payload is None or json.dumps(_payload_fields(payload)).encode() != data:
            headers, payload = _foreign_names(headers), None
        else:
            data = b""
    if key_size >= 0:
        headers[KEY] = bytes(records[key_at : key_at + key_size]).decode(errors="replace")
    stamp_ms = header.stamp_ms
    time_ms = header.base_ms + time_delta if stamp_ms is None else stamp_ms
    return StoredMessage(header.base_offset + delta, time_ms, data, headers, payload)


def _payload_of(headers: Mapping[str, str]) -> Payload | None:
    """The payload named by internal headers; None if they are invalid."""
    name, size, checksum = headers[OBJECT_NAME], headers.get(SIZE), headers.get(CHECKSUM, "")
    if size is None:
        return Payload(name)
    is_number = size.isascii() and size.isdigit() and len(size) <= SIZE_DIGITS_MAX
    if not is_number or len(checksum) != CHECKSUM_DIGITS:
        return None
    try:
        return Payload(name, int(size), int(checksum, 16))
    except ValueError:
        return None


def _headers_at(raw: memoryview, at: int, header: BatchHeader, marked_from: int) -> dict[str, str]:
    if raw[at] == 0:  # as most
        return {}
    pairs = read_headers(raw, at)
    is_own = header.is_from(FROM_STREAMS, marked_from)
    if not is_own:
        pairs = without_own(pairs, header.own_prefix)
    headers = {name.decode(errors="replace"): (value or b"").decode(errors="replace") for name, value in pairs}
    return headers if is_own else _foreign_names(headers)


def _foreign_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers of another gateway, with reserved names replaced."""
    return {
        FOREIGN_PREFIX + name if name == KEY or name.startswith(OWN_PREFIX) else name: value for name, value in headers.items()
    }
