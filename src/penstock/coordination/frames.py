"""Messages between a worker and the supervisor that serves its coordination store, over a Unix socket.

    length   4 bytes, big-endian, of what follows
    body     MessagePack: [call, method, arguments] from the worker, [call, kind, payload] from the supervisor

A call has a number of the worker's choice; its answer is of kind `done` or `failed`. A watch is answered by any number of
`events` before it fails, and ended by a request `cancel` with its number.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.coordination.port import (
    Change,
    CompactedError,
    Compare,
    CoordinationUnavailableError,
    Delete,
    Event,
    Put,
    RolledBackError,
    Snapshot,
)
from penstock.core.errors import ClosedError, InvalidRequestError, PenstockError

FRAME_BYTES_MAX: Final = 64 << 20
"""A listing of all keys must fit; a request is far smaller."""
REQUEST_BYTES_MAX: Final = 4 << 20
DONE: Final = "done"
FAILED: Final = "failed"
EVENTS: Final = "events"
_LENGTH: Final = struct.Struct(">I")
_ERRORS: Final[dict[str, type[PenstockError]]] = {
    kind.code: kind for kind in (CompactedError, CoordinationUnavailableError, InvalidRequestError, RolledBackError)
}


class RequestFrame(msgspec.Struct, array_like=True):
    """What a worker sends."""

    call: int
    method: str
    arguments: list[Any]


class AnswerFrame(msgspec.Struct, array_like=True):
    """What it is answered; the payload of a failure is a code and a message."""

    call: int
    kind: str
    payload: Any


def pack(frame: RequestFrame | AnswerFrame) -> bytes:
    """A frame with its length."""
    body = msgspec.msgpack.encode(frame)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    """The body of the next frame. IncompleteReadError at the end, ValueError if it is too long."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > bytes_max:
        raise ValueError(f"a frame of {length} bytes; at most {bytes_max} are allowed")
    return await reader.readexactly(length)


def failure(error: PenstockError) -> list[str]:
    """An error as a payload."""
    known = error.code if error.code in _ERRORS else CoordinationUnavailableError.code
    return [CoordinationUnavailableError.code if isinstance(error, ClosedError) else known, str(error)]


def error_of(payload: Any) -> PenstockError:
    """The error that a payload tells."""
    code, text = msgspec.convert(payload, tuple[str, str])
    return _ERRORS.get(code, CoordinationUnavailableError)(text)


def plain_transaction(compares: Sequence[Compare], changes: Sequence[Change]) -> list[Any]:
    """A transaction as arguments; a change without a value is a deletion."""
    return [
        [[compare.key, compare.revision] for compare in compares],
        [[change.key, change.value, change.lease] if isinstance(change, Put) else [change.key, None, 0] for change in changes],
    ]


def transaction_of(arguments: Any) -> tuple[list[Compare], list[Change]]:
    """The transaction that arguments describe."""
    compares, changes = msgspec.convert(arguments, tuple[list[tuple[str, int]], list[tuple[str, bytes | None, int]]])
    return (
        [Compare(key, revision) for key, revision in compares],
        [Delete(key) if value is None else Put(key, value, lease) for key, value, lease in changes],
    )


def snapshot_of(payload: Any) -> Snapshot:
    """A snapshot that was sent."""
    return msgspec.convert(payload, Snapshot)


def events_of(payload: Any) -> tuple[Event, ...]:
    """The events of one revision that were sent."""
    return msgspec.convert(payload, tuple[Event, ...])
