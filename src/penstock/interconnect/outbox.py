"""What a connection has to send: small frames at once, large bodies piece by piece and in turns. Pure."""

from __future__ import annotations

from collections import deque

from penstock.interconnect.frames import CALL, HEADER_BYTES, MORE, PIECE, PIECE_BYTES_MAX, pack_header
from penstock.interconnect.status import Buffer, Parts


class _LargeBody:
    """A body of which pieces are left to send; `header` is that of its first frame until it is sent."""

    __slots__ = ("_offset", "_parts", "header", "left")

    def __init__(self, header: bytes, parts: Parts, size: int) -> None:
        self.header = header
        self.left = size
        self._parts = iter([memoryview(part) for part in parts])
        self._offset = memoryview(b"")

    def cut(self) -> tuple[list[Buffer], int]:
        """The next piece, as views, and its bytes."""
        found: list[Buffer] = []
        size = 0
        while size < PIECE_BYTES_MAX:
            if not self._offset:
                following = next(self._parts, None)
                if following is None:
                    break
                self._offset = following
                continue
            view = self._offset[: PIECE_BYTES_MAX - size]
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
    ) -> None:
        """Add a call of method `code` whose body has `size` bytes."""
        is_large = size > PIECE_BYTES_MAX
        header = pack_header(
            kind,
            code,
            call,
            () if is_large else parts,
            0 if is_large else size,
            checked=self._checked,
            flags=MORE if is_large else 0,
            destination=destination,
            total=size,
            timeout_ms=timeout_ms,
            sent_ms=sent_ms,
            reply_bytes=reply_bytes,
        )
        self.bytes += HEADER_BYTES + size
        if is_large:
            self._large[call] = _LargeBody(header, parts, size)
            return
        if self._small_bytes >= PIECE_BYTES_MAX:
            self._full.append((self._small, self._small_bytes))
            self._small, self._small_bytes = [], 0
        self._small.append(header)
        self._small += parts
        self._small_bytes += HEADER_BYTES + size

    def drop(self, call: int) -> None:
        """Send no more pieces of a body."""
        body = self._large.pop(call, None)
        if body is not None:
            self.bytes -= body.left + len(body.header)

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
                if body.header:
                    buffers.append(body.header)
                    size += HEADER_BYTES
                    body.header = b""
                piece, length = body.cut()
                flags = MORE if body.left else 0
                buffers.append(pack_header(PIECE, 0, call, piece, length, checked=self._checked, flags=flags))
                buffers += piece
                size += length + HEADER_BYTES
                self.bytes += HEADER_BYTES
                if flags:
                    large[call] = body
                if size >= limit or not large:
                    break
        self.bytes -= size
        return buffers, size

    def __bool__(self) -> bool:
        return bool(self._small or self._large or self._full)
