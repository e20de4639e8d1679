"""How a call ended."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview
Parts = Sequence[Buffer]  # a body in pieces of memory that need not be joined; views are of single bytes


class CallStatus(IntEnum):
    """The outcome of a call; the numbers are part of the protocol. Only OK, FAILED and the refusals say for certain whether the
    call took effect: after EXPIRED and BROKEN that is open."""

    OK = 0
    FAILED = 1  # the handler raised; `code` and `reason` are those of its error
    OVERLOADED = 2  # refused: the window of the destination is full
    EXPIRED = 3  # the deadline passed
    UNREACHABLE = 4  # refused: there is no connection, nothing was sent
    BROKEN = 5  # the connection broke, or its heartbeat stopped, after the call was sent
    UNKNOWN_DESTINATION = 6  # refused
    UNKNOWN_METHOD = 7  # refused
    TOO_LARGE = 8  # refused


class Reply(NamedTuple):
    """What a caller gets, always: an error of the link or of the handler is a status too."""

    status: CallStatus
    body: Buffer = b""
    reason: str = ""
    code: str = ""


ERROR_BYTES_MAX = 4000


def pack_error(code: str, reason: str) -> bytes:
    """The body of a reply that is not OK: a code for programs, a line feed, and a text."""
    return f"{code}\n{reason}".encode()[:ERROR_BYTES_MAX]


def unpack_reply(status: int, body: Buffer) -> Reply:
    """A reply off the wire. A status of a later version counts as FAILED."""
    if status == CallStatus.OK:
        return Reply(CallStatus.OK, body)
    code, _, reason = bytes(body[:ERROR_BYTES_MAX]).decode(errors="replace").partition("\n")
    known = CallStatus(status) if status in _NUMBERS else CallStatus.FAILED
    return Reply(known, b"", reason, code)


_NUMBERS = frozenset(int(status) for status in CallStatus)
