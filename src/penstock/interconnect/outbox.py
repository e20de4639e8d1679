"""What a connection has to send: small frames at once, large bodies piece by piece and in turns. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.interconnect.frames import CALL, HEADER_BYTES, MORE, PIECE, PIECE_BYTES_MAX, WHOLE_BYTES_MAX, pack_header
from penstock.interconnect.status import Buffer, Parts


class _Start(NamedTuple):
    """What the first frame of a large body says beside it."""

    kind: int
    code: int
    flags: int
    destination: int
    total: int
    timeout_ms: int
    sent_ms: int
    reply_bytes: int


class _LargeBody:
    """A body of which pieces are left to send."""

    __slots__ = ("_offset", "_parts", "is_begun", "left", "piece", "start")

    def __init__(self, start: _Start, parts: Parts) -> None:
        self.start = start
        self.is_begun = False  # whether the first of them was sent
        self.left = start.total
        # All of one size: a short one at the end would take as many reads as a long one.
        self.piece = -(-start.total // -(-start.total // PIECE_BYTES_MAX))
        self._parts = iter([memoryview(part) for part in parts])
        self._offset = memoryview(b"")

    def cut(self) -> tuple[list[Buffer], int]:
        """The next piece, as views, and its bytes."""
        found: list[Buffer] = []
        size = 0
        while size < self.piece:
            if not self._offset:
                following = next(self._parts, None)
                if following is None:
                    break
                self._offset = following
                continue
            view = self._offset[: self.piece - size]
            self._offset = self._offset[len(view) :]
            found.append(view)
            size += len(view)
        self.left -= size
        return found, size


class Outbox:
    """The frames of one connection that wait to be written. `bytes` is how much they hold."""

    __slots__ = ("_checked", "_full", "_large", "_small", "_small_bytes", "bytes")

    def __init__(self, *, checked: bool) -> None:
        self._checked = checked
        self._full: deque[tuple[list[Buffer], int]] = deque()  # small frames in portions of a write each, but for the last
        self._small: list[Buffer] = []
        self._small_bytes = 0
        self._large: dict[int, _LargeBody] = {}
        self.bytes = 0

    def add(self, kind: int, code: int = 0, call: int = 0, parts: Parts = ()) -> None:
        """Add a frame other than a call; with pieces if its body is large."""
        self.add_call(code, call, parts, sum(map(len, parts)), kind=kind)

    def add_call(
        self,
        code: int,
        call: int,
        parts: Parts,
        size: int,
        *,
        destination: int = 0,
        timeout_ms: int = 0,
        sent_ms: int = 0,
        reply_bytes: int = 0,
        kind: int = CALL,
        flags: int = 0,
    ) -> None:
        """Add a call of method `code` whose body has `size` bytes; `flags` may be SUMMED."""
        self.bytes += HEADER_BYTES + size
        if size > WHOLE_BYTES_MAX:
            self._large[call] = _LargeBody(_Start(kind, code, flags, destination, size, timeout_ms, sent_ms, reply_bytes), parts)
            return
        header = pack_header(
            kind,
            code,
            call,
            parts,
            size,
            checked=self._checked,
            flags=flags,
            destination=destination,
            total=size,
            timeout_ms=timeout_ms,
            sent_ms=sent_ms,
            reply_bytes=reply_bytes,
        )
        if self._small_bytes >= WHOLE_BYTES_MAX:
            self._full.append((self._small, self._small_bytes))
            self._small, self._small_bytes = [], 0
        self._small.append(header)
        self._small += parts
        self._small_bytes += HEADER_BYTES + size

    def drop(self, call: int) -> None:
        """Send no more pieces of a body."""
        body = self._large.pop(call, None)
        if body is not None:
            self.bytes -= body.left + (0 if body.is_begun else HEADER_BYTES)

    def take(self, limit: int) -> tuple[list[Buffer], int]:
        """Buffers to write now, of about `limit` bytes: small frames first, but at least one piece if there is any."""
        if self._full:
            buffers, size = self._full.popleft()
        else:
            buffers, size = self._small, self._small_bytes
            self._small, self._small_bytes = [], 0
        large = self._large
        if large:
            while True:
                call = next(iter(large))
                body = large.pop(call)
                header, piece, length = self._next_frame(call, body)
                buffers.append(header)
                buffers += piece
                size += length + HEADER_BYTES
                if body.left:
                    large[call] = body
                if size >= limit or not large:
                    break
        self.bytes -= size
        return buffers, size

    def _next_frame(self, call: int, body: _LargeBody) -> tuple[bytes, list[Buffer], int]:
        """The header and the bytes of the next piece of a body, and how many those are."""
        piece, length = body.cut()
        start = body.start
        flags = start.flags | (MORE if body.left else 0)
        if body.is_begun:
            self.bytes += HEADER_BYTES
            return pack_header(PIECE, 0, call, piece, length, checked=self._checked, flags=flags), piece, length
        body.is_begun = True
        header = pack_header(
            start.kind,
            start.code,
            call,
            piece,
            length,
            checked=self._checked,
            flags=flags,
            destination=start.destination,
            total=start.total,
            timeout_ms=start.timeout_ms,
            sent_ms=start.sent_ms,
            reply_bytes=start.reply_bytes,
        )
        return header, piece, length

    def __bool__(self) -> bool:
        return bool(self._small or self._large or self._full)
