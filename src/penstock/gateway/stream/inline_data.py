"""Decides which data is sent with its message and which has to be downloaded, by the same rule for all writers and stores.

If data and headers together fit a limit, they are sent with the message, without headers of ours. Otherwise the message is sent
without data but with `penstock.object_name`, `penstock.size` and, if it is known, `penstock.crc32c`; `Download` returns the data.
The limit is the node's setting `stream_inline_bytes`, or less if the caller sends `penstock-inline-bytes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from penstock.blob import Buffer
from penstock.broker.streams import (
    CHECKSUM,
    HEADER_OVERHEAD,
    HEADERS_BYTES_MAX,
    OBJECT_NAME,
    SIZE,
    Payload,
    StreamEngine,
    StreamMessage,
    UnknownMessageError,
    fitting_headers,
)
from penstock.core.checksum import crc32c
from penstock.core.errors import InvalidRequestError

INLINE_HEADER: Final = "penstock-inline-bytes"  # metadata of gRPC, header of HTTP
LEFT_OUT: Final = "penstock.headers_left_out"  # how many headers did not fit
_PAYLOAD_HEADERS: Final = frozenset({OBJECT_NAME, SIZE, CHECKSUM})

Throttle = Callable[[AsyncIterator[Buffer]], AsyncIterator[Buffer]]  # passes on the parts of a payload, perhaps later


def inline_limit(requested: str | None, limit: int) -> int:
    """How many bytes are sent with a message: what the caller requests, up to the limit of the node."""
    if requested is None:
        return limit
    if not requested.isascii() or not requested.isdigit():
        raise InvalidRequestError(f"{INLINE_HEADER} is {requested[:100]!r}; it must be a whole number of bytes")
    return min(int(requested[:19]), limit)


async def with_data(
    streams: StreamEngine, message: StreamMessage, limit: int, throttle: Throttle | None = None
) -> StreamMessage | None:
    """The message as it is sent: with its data if that fits, else with the headers that a download needs. Returns None if it has
    expired meanwhile."""
    if message.payload is not None and message.payload.size < 0:
        message = await streams.locate_payload(message)
    payload = message.payload
    headers = fitting_headers(message.headers, max(limit, HEADERS_BYTES_MAX), LEFT_OUT)
    room = limit - _size(headers)
    if payload is None:
        if len(message.data) <= room or not message.data:
            return message._replace(headers=headers)
        payload = Payload(message.object_name, len(message.data), crc32c(message.data))
    own = {name: value for name, value in headers.items() if name not in _PAYLOAD_HEADERS}
    if not 0 <= payload.size <= room:
        return message._replace(data=b"", headers=own | _payload_headers(payload), payload=payload)
    parts = streams.read_payload(message)
    try:
        data = b"".join([bytes(part) async for part in (parts if throttle is None else throttle(parts))])
    except UnknownMessageError:
        if await streams.get_message(message.sequence) is None:
            return None  # retention deleted it after it was read
        raise
    return message._replace(data=data, headers=own, payload=None)


def _payload_headers(payload: Payload) -> dict[str, str]:
    headers = {OBJECT_NAME: payload.object_name}
    if payload.size >= 0:
        headers[SIZE] = str(payload.size)
    if payload.crc32c is not None:
        headers[CHECKSUM] = f"{payload.crc32c:08x}"
    return headers


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) + HEADER_OVERHEAD for name, value in headers.items())
