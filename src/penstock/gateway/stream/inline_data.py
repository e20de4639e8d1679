"""Which data comes with a message, and which is downloaded: one rule, whatever wrote the message and wherever its payload is.

Data and headers that together take up to a limit come with the message, without headers of ours. Of more, the message comes
without data but with `penstock.object_name`, `penstock.size` and, if it is known, `penstock.crc32c`; `Download` gives the data.
The limit is the node's setting `stream_inline_bytes`, or less if the caller says so by `penstock-inline-bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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


def inline_limit(asked: str | None, limit: int) -> int:
    """What a caller is sent with a message: what it asks for, up to the limit of the node."""
    if asked is None:
        return limit
    if not asked.isascii() or not asked.isdigit():
        raise InvalidRequestError(f"{INLINE_HEADER} is {asked[:100]!r}; it must be a whole number of bytes")
    return min(int(asked[:19]), limit)


async def with_data(streams: StreamEngine, message: StreamMessage, limit: int) -> StreamMessage | None:
    """A message as it is sent: with its data if that fits, else with what a download needs. None if it has expired meanwhile."""
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
    try:
        data = b"".join([bytes(part) async for part in streams.read_payload(message)])
    except UnknownMessageError:
        if await streams.get_message(message.sequence) is None:
            return None  # its time was over while it was on its way
        raise
    return message._replace(data=data, headers=own, payload=None)


def _payload_headers(payload: Payload) -> dict[str, str]:
    found = {OBJECT_NAME: payload.object_name}
    if payload.size >= 0:
        found[SIZE] = str(payload.size)
    if payload.crc32c is not None:
        found[CHECKSUM] = f"{payload.crc32c:08x}"
    return found


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) + HEADER_OVERHEAD for name, value in headers.items())
