"""The frames that nodes exchange, to the byte, and their way out of a stream of bytes.

A frame is a header of 44 bytes and a body; all numbers are little-endian.

      0        4        8      9       10     12     20            28      32           36        40            44
     | crc32c | length | kind | flags | code | call | destination | total | timeout_ms | sent_ms | reply_bytes | body ...
     | 4      | 4      | 1    | 1     | 2    | 8    | 8           | 4     | 4          | 4       | 4           | length

    crc32c       of the 40 bytes that follow it and of the body, unless that is SUMMED; 0, and not looked at, where TLS protects
                 the connection
    length       of the body in this frame, 264 KiB at most
    kind         1 HELLO    dialer and acceptor, once each, first on every connection; its body is drawn in `hello.py`
                 2 REFUSED  acceptor, in place of its hello: `code` says why, the body is a text; then it closes the connection
                 3 CALL     dialer: a call and the beginning of its body
                 4 REPLY    acceptor: the reply to `call` and the beginning of its body; replies come in any order
                 5 PIECE    the next bytes of a body that did not fit into one frame
                 6 CANCEL   dialer: `call` is wanted no more; there is no reply to it and none to the call
                 7 PING     dialer: sent back at once as a PONG with the same `call`
                 8 PONG     acceptor
    flags        bit 0, MORE: more pieces of this body follow
                 bit 1, SUMMED: the body has checksums of its own, which its destination compares
    code         CALL: the method; REPLY: the status; REFUSED: the reason; otherwise 0
    call         chosen by the dialer, never used twice on a connection
    destination  CALL: what is called within the node, for example a VDisk; otherwise 0
    total        bytes of the whole body, in CALL and REPLY; what comes in PIECEs adds up to exactly this
    timeout_ms   CALL: milliseconds until the caller gives up, counted from `sent_ms`
    sent_ms      CALL: the caller's monotonic clock modulo 2^32, by which the receiver tells how long the frame was on its way
    reply_bytes  CALL: bytes that the reply may have; 128 KiB are always allowed

The pieces of one body come in order. Frames of other calls may come between them, so a large body does not hold up a small call.
Only the node that made a connection sends calls on it; for calls the other way there is another connection.

A receiver keeps one buffer of fixed size for frames. A body gets memory of its own, of its size and that of a header, only after
`admit` has agreed to it. Large pieces are received straight into it, each with the header of the next frame behind it in the same
read: where the next piece belongs, or behind the end of the body.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from penstock.core.checksum import crc32c
from penstock.interconnect.errors import ProtocolError
from penstock.interconnect.status import Buffer, Parts

HELLO: Final = 1
REFUSED: Final = 2
CALL: Final = 3
REPLY: Final = 4
PIECE: Final = 5
CANCEL: Final = 6
PING: Final = 7
PONG: Final = 8
MORE: Final = 1
SUMMED: Final = 2
ALL_KINDS: Final = frozenset(range(HELLO, PONG + 1))

HEADER_BYTES: Final = 44
CRC_BYTES: Final = 4
WHOLE_BYTES_MAX: Final = 128 << 10  # a body of at most so many bytes is never cut, and always allowed as a reply
PIECE_BYTES_MAX: Final = 264 << 10  # so that a quarter of a blob of 1 MiB is one piece, with what stands before it
BUFFER_BYTES: Final = 64 << 10
DIRECT_BYTES_MIN: Final = 8 << 10  # a piece of at least so many bytes that is not complete is received into its body

_HEADER: Final = Struct("<IIBBHQQIIII")
_NUMBERED: Final = Struct("<IBBHQQIIII")
_CRC: Final = Struct("<I")
_START_OF_BODY: Final = (CALL, REPLY)


class Frame(NamedTuple):
    """What one frame, or a frame and its pieces, said."""

    kind: int
    code: int
    call: int
    destination: int
    timeout_ms: int
    sent_ms: int
    reply_bytes: int
    body: Buffer


Admit = Callable[[Frame, int], bool]  # the first frame, without its body, and the size of that: whether the body is wanted


def pack_header(
    kind: int,
    code: int,
    call: int,
    body: Parts,
    length: int,
    *,
    checked: bool,
    flags: int = 0,
    destination: int = 0,
    total: int = 0,
    timeout_ms: int = 0,
    sent_ms: int = 0,
    reply_bytes: int = 0,
) -> bytes:
    """The header of a frame with this body, whose parts have `length` bytes together."""
    numbers = _NUMBERED.pack(length, kind, flags, code, call, destination, total, timeout_ms, sent_ms, reply_bytes)
    if not checked:
        return b"\0\0\0\0" + numbers
    crc = crc32c(numbers)
    if not flags & SUMMED:
        for part in body:
            crc = crc32c(part, crc)
    return _CRC.pack(crc) + numbers


class _Body:
    """A body that is being received."""

    __slots__ = ("filled", "frame", "memory", "view")

    def __init__(self, frame: Frame, total: int) -> None:
        self.frame = frame
        # Memory that is not cleared first, which would take as long as a sixth of receiving it.
        self.memory = np.empty(total + HEADER_BYTES, np.uint8).data
        self.view = self.memory[:total]
        self.filled = 0


class _DirectPiece:
    """A piece of `length` bytes that is being received straight into its place; `body` is None if it is discarded. `view` may be
    longer by a header, for that of the next frame; `left` is negative by as much as has come of that."""

    __slots__ = ("body", "crc", "crc_begun", "flags", "left", "length", "view")

    def __init__(  # noqa: PLR0917 - compiled, keywords make it slower
        self, view: memoryview, length: int, body: _Body | None, flags: int, crc: int, crc_begun: int
    ) -> None:
        self.view = view
        self.length = length
        self.left = length
        self.body = body
        self.flags = flags
        self.crc = crc
        self.crc_begun = crc_begun


class FrameReader:
    """Cuts received bytes into frames and puts bodies together. Pure."""

    __slots__ = (
        "_admit",
        "_bodies",
        "_body_max",
        "_buffer",
        "_checked",
        "_direct",
        "_end",
        "_expected",
        "_scratch",
        "_start",
        "_view",
        "_was_large",
    )

    def __init__(
        self,
        admit: Admit,
        *,
        checked: bool,
        body_bytes_max: int,
        expected: frozenset[int] = ALL_KINDS,
        capacity: int = BUFFER_BYTES,
    ) -> None:
        self._admit = admit
        self._expected = expected
        self._checked = checked
        self._body_max = body_bytes_max
        self._buffer = bytearray(capacity)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._bodies: dict[int, _Body] = {}
        self._direct: _DirectPiece | None = None
        self._scratch = bytearray(0)
        self._was_large = False  # whether the last frame was received into its body

    def enlarge(self, body_bytes_max: int, expected: frozenset[int], capacity: int = BUFFER_BYTES) -> None:
        """Accept larger bodies and other kinds of frames from now on, into a larger buffer; what was received stays."""
        self._expected = expected
        held = bytes(self._view[self._start : self._end])
        self._buffer = bytearray(capacity)
        self._view = memoryview(self._buffer)
        self._view[: len(held)] = held
        self._start, self._end = 0, len(held)
        self._body_max = body_bytes_max

    def space(self) -> memoryview:
        """The memory to receive into; never empty."""
        direct = self._direct
        if direct is not None:
            return direct.view[direct.length - direct.left :]
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            # Most likely a large piece comes next. With its header alone in the buffer it is received straight into the body;
            # what came with the header would be copied.
            return self._view[:HEADER_BYTES] if self._bodies or self._was_large else self._view
        if self._was_large and end < HEADER_BYTES:
            return self._view[end:HEADER_BYTES]
        if start and len(self._view) - end < HEADER_BYTES + DIRECT_BYTES_MIN:
            held = bytes(self._view[start:end])
            self._view[: end - start] = held
            self._start, self._end = 0, end - start
        return self._view[self._end :]

    def received(self, count: int) -> list[Frame]:
        """Takes note of bytes in `space` and returns the frames that are complete now. Raises ProtocolError."""
        found: list[Frame] = []
        direct = self._direct
        if direct is not None:
            direct.left -= count
            if direct.left > 0:
                return found
            self._direct = None
            self._finish_direct(direct, found)
            count = -direct.left
            self._view[:count] = direct.view[direct.length : direct.length + count]
            if count < HEADER_BYTES:
                self._end = count
                return found
        self._was_large = direct is not None
        end = self._end = self._end + count
        at = self._start
        view = self._view
        while end - at >= HEADER_BYTES:
            (crc, length, kind, flags, code, call, destination, total, timeout_ms, sent_ms, reply_bytes) = _HEADER.unpack_from(
                view, at
            )
            if length > PIECE_BYTES_MAX or total > self._body_max or kind not in self._expected:
                raise self._unwanted(kind, length, total)
            stop = at + HEADER_BYTES + length
            if stop > end:
                if length >= DIRECT_BYTES_MIN:
                    frame = Frame(kind, code, call, destination, timeout_ms, sent_ms, reply_bytes, b"")
                    self._start_direct(frame, flags, length, total, crc=crc, at=at)
                    return found
                break
            if self._checked and crc32c(view[at + CRC_BYTES : at + HEADER_BYTES if flags & SUMMED else stop]) != crc:
                raise ProtocolError(f"the checksum of a frame of {length} bytes is wrong: it was damaged on its way")
            data = view[at + HEADER_BYTES : stop]
            at = stop
            if kind == PIECE or flags & MORE:
                body = self._body_of(Frame(kind, code, call, destination, timeout_ms, sent_ms, reply_bytes, b""), total)
                if body is not None:
                    self._fill(body, length)[:] = data
                    self._finish(body, flags, found)
            elif total != length:
                raise ProtocolError(f"a body of {total} bytes ended after {length}")
            else:
                found.append(Frame(kind, code, call, destination, timeout_ms, sent_ms, reply_bytes, bytes(data)))
        self._start = at
        return found

    def discard(self, call: int) -> None:
        """Forget the body of a call that is not complete; its other pieces are skipped."""
        self._bodies.pop(call, None)
        # A piece on its way into that body is received to its end; the body is freed with it.

    def _unwanted(self, kind: int, length: int, total: int) -> ProtocolError:
        if kind not in self._expected:
            return ProtocolError(f"a frame of kind {kind} is not expected here, only {sorted(self._expected)}")
        limit = min(self._body_max, PIECE_BYTES_MAX) if length > PIECE_BYTES_MAX else self._body_max
        return ProtocolError(f"a body of {max(total, length)} bytes; at most {limit} are allowed here")

    def _body_of(self, frame: Frame, total: int) -> _Body | None:
        """The body that a frame belongs to; None if it is to be skipped."""
        if frame.kind == PIECE:
            return self._bodies.get(frame.call)
        if frame.kind not in _START_OF_BODY or frame.call in self._bodies:
            raise ProtocolError(f"a frame of kind {frame.kind} begins a second body of call {frame.call}, or may not have pieces")
        if not self._admit(frame, total):
            return None
        body = self._bodies[frame.call] = _Body(frame, total)
        return body

    def _fill(self, body: _Body, length: int) -> memoryview:
        at = body.filled
        if at + length > len(body.view):
            raise ProtocolError(f"a body of {len(body.view)} bytes has more pieces than that")
        body.filled = at + length
        return body.view[at : at + length]

    def _start_direct(self, frame: Frame, flags: int, length: int, total: int, *, crc: int, at: int) -> None:
        """The frame at `at` is not complete: have the rest of it received into the body that it belongs to."""
        if frame.kind != PIECE and not flags & MORE and total != length:
            raise ProtocolError(f"a body of {total} bytes ended after {length}")
        begun = crc32c(self._view[at + CRC_BYTES : at + HEADER_BYTES]) if self._checked else 0
        if self._checked and flags & SUMMED and begun != crc:
            raise ProtocolError(f"the checksum of the header of a frame of {length} bytes is wrong: it was damaged on its way")
        body = self._body_of(frame, total)
        if body is not None:
            begin = body.filled
            self._fill(body, length)
            view = body.memory[begin : begin + length + HEADER_BYTES]
        else:
            self._scratch = bytearray(length)
            view = memoryview(self._scratch)
        held = self._view[at + HEADER_BYTES : self._end]
        view[: len(held)] = held
        self._direct = _DirectPiece(view, length, body, flags, crc, begun)
        self._direct.left -= len(held)
        self._start = self._end = 0

    def _finish_direct(self, direct: _DirectPiece, found: list[Frame]) -> None:
        if self._checked and not direct.flags & SUMMED and crc32c(direct.view[: direct.length], direct.crc_begun) != direct.crc:
            raise ProtocolError(f"the checksum of a frame of {direct.length} bytes is wrong: it was damaged on its way")
        self._scratch = bytearray(0)
        self._was_large = True
        if direct.body is not None:
            self._finish(direct.body, direct.flags, found)

    def _finish(self, body: _Body, flags: int, found: list[Frame]) -> None:
        """After a piece: hand the body over if that was its last."""
        if flags & MORE:
            return
        if body.filled != len(body.view):
            raise ProtocolError(f"a body of {len(body.view)} bytes ended after {body.filled}")
        if self._bodies.pop(body.frame.call, None) is body:
            found.append(body.frame._replace(body=body.view))
