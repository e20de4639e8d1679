"""Frames out of a stream of bytes. A frame is a view of the buffer it was received into, so that nothing is copied.

     size 4 | that many bytes

Bytes are received into a buffer that holds several frames. When what is left of it does not hold the next one, a new buffer is
made, large enough, and the beginning of that frame moves there. A buffer lives as long as a view of it does.
"""

from __future__ import annotations

from struct import Struct

from penstock.core.errors import InvalidRequestError

SIZE_BYTES = 4
BUFFER_FIRST = 16 << 10
BUFFER_MAX = 1 << 20
TAIL_MIN = 4 << 10
# The buffer of a huge frame grows as its bytes come, so that a mere size does not take the memory.
AT_ONCE_MAX = 16 << 20

_SIZE = Struct(">i")


class FrameTooLargeError(InvalidRequestError):
    """A frame that is larger than the listener takes, or that has no sensible size at all."""

    code = "frame_too_large"


class FrameReader:
    """Receives bytes and cuts them into frames. Pure."""

    __slots__ = ("_buffer", "_end", "_frame_max", "_next", "_size", "_start", "_view")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_max = frame_bytes_max
        self._size = BUFFER_FIRST
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._next = 0  # where the frame that was looked at last ends
        self._end = 0

    @property
    def pending(self) -> int:
        """Bytes that were received and not taken."""
        return self._end - self._start

    @property
    def capacity(self) -> int:
        """The size of the buffer."""
        return len(self._view)

    @property
    def wanted(self) -> int:
        """Bytes of the next frame with its size, as far as they are known."""
        return SIZE_BYTES if self._end - self._start < SIZE_BYTES else self._frame_end() - self._start

    def allow(self, frame_bytes_max: int) -> None:
        """Sets the largest frame that is accepted."""
        self._frame_max = frame_bytes_max

    def space(self) -> memoryview:
        """Returns the buffer to receive into."""
        held = self._end - self._start
        wanted = self.wanted
        free = len(self._view) - self._end
        is_short = wanted - held > free and (len(self._view) < AT_ONCE_MAX or free == 0)
        if is_short or (held == 0 and free < TAIL_MIN):
            self._renew(held, wanted)
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Counts bytes that were received into `space`."""
        self._end += count
        if self._end == len(self._view) and self._size < BUFFER_MAX:
            self._size *= 2

    def frame(self) -> memoryview | None:
        """Returns the next frame, or None if it is not complete; it stays the next until `take`. Raises FrameTooLargeError."""
        begin = self._start + SIZE_BYTES
        if begin > self._end:
            return None
        end = self._frame_end()
        if end > self._end:
            return None
        self._next = end
        return self._view[begin:end]

    def take(self) -> None:
        """Consumes the frame that `frame` returned, and releases a buffer that is used up."""
        self._start = self._next
        if self._next == len(self._view):
            self.release()

    def release(self) -> None:
        """Drops the buffer and its contents."""
        self._view = memoryview(b"")
        self._buffer = bytearray(0)
        self._start = self._end = 0

    def _frame_end(self) -> int:
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        if not 0 < size <= self._frame_max:
            raise FrameTooLargeError(f"a frame of {size} bytes was announced; this listener takes 1 to {self._frame_max}")
        return self._start + SIZE_BYTES + size

    def _renew(self, held: int, wanted: int) -> None:
        size = self._size if wanted <= self._size else min(wanted, max(AT_ONCE_MAX, 2 * held))
        buffer = bytearray(size)
        view = memoryview(buffer)
        view[:held] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, held
