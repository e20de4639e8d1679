"""Frames out of a stream of bytes. A frame is found in the buffer it was received into, so that nothing is copied.

     size 4 | that many bytes

Bytes are received into a buffer that holds several frames. It is used again when all of it is consumed, unless views of it were
handed out that may still be in use: then the next bytes go to a new buffer, and the old one lives as long as its views. When what
is left of a buffer does not hold the next frame, the beginning of that frame moves to the front, or to a larger buffer.
"""

from __future__ import annotations

from typing import Final

import cython

from penstock.core.errors import InvalidRequestError

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import signed_at
else:
    from penstock.core.varint_buffers import signed_at

COMPILED: Final[bool] = cython.compiled

SIZE_BYTES: Final = 4
BUFFER_FIRST: Final = 16 << 10
BUFFER_MAX: Final = 1 << 20
# The buffer of a huge frame grows as its bytes come, so that a mere size does not take the memory.
AT_ONCE_MAX: Final = 16 << 20

# The same as numbers of the compiler.
_SIZE_BYTES = cython.declare(cython.Py_ssize_t, SIZE_BYTES)
_BUFFER_MAX = cython.declare(cython.Py_ssize_t, BUFFER_MAX)
_AT_ONCE_MAX = cython.declare(cython.Py_ssize_t, AT_ONCE_MAX)
_TAIL_MIN = cython.declare(cython.Py_ssize_t, 4 << 10)


class FrameTooLargeError(InvalidRequestError):
    """A frame that is larger than the listener takes, or that has no sensible size at all."""

    code = "frame_too_large"


@cython.final
@cython.cclass
class FrameReader:
    """Receives bytes and cuts them into frames. Pure."""

    def __init__(self, frame_bytes_max: cython.longlong) -> None:
        self._frame_max = frame_bytes_max
        self._size = BUFFER_FIRST
        self.begin = self.end = 0
        self.api_key = -1
        self.release()

    @property
    def pending(self) -> cython.Py_ssize_t:
        """Bytes that were received and not taken."""
        return self._stop - self._start

    @property
    def capacity(self) -> cython.Py_ssize_t:
        """The size of the buffer."""
        return len(self.buffer)

    @property
    def wanted(self) -> cython.Py_ssize_t:
        """Bytes of the next frame with its size, as far as they are known."""
        return self._wanted()

    def allow(self, frame_bytes_max: cython.longlong) -> None:
        """Sets the largest frame that is accepted."""
        self._frame_max = frame_bytes_max

    def space(self, sizehint: cython.longlong = -1) -> object:
        """Returns a view of the buffer to receive into, whatever size the transport would like."""
        held: cython.Py_ssize_t = self._stop - self._start
        wanted: cython.Py_ssize_t = self._wanted()
        free: cython.Py_ssize_t = len(self.buffer) - self._stop
        is_short: cython.bint = wanted - held > free and (len(self.buffer) < _AT_ONCE_MAX or free == 0)
        if held == 0 and not self._is_shared:
            self._start = self._stop = 0
            if len(self.buffer) < self._size or len(self.buffer) > _BUFFER_MAX:
                self._renew(0, wanted)
        elif is_short or (held == 0 and free < _TAIL_MIN):
            if not self._is_shared and wanted <= len(self.buffer):
                self.buffer[:held] = self.buffer[self._start : self._stop]
                self._start, self._stop = 0, held
            else:
                self._renew(held, wanted)
        return self._view if self._stop == 0 else self._view[self._stop :]

    def received(self, count: cython.Py_ssize_t) -> cython.bint:
        """Counts bytes that were received into `space`. Returns whether they are the first of a frame."""
        is_first: cython.bint = self._stop == self._start
        self._stop += count
        if self._stop == len(self.buffer) and self._size < _BUFFER_MAX:
            self._size *= 2
        return is_first

    def fits(self, size: cython.Py_ssize_t) -> cython.bint:
        """Returns whether the buffer is of this size, and the next frame, as far as it is known, not larger."""
        return len(self.buffer) == size and self._wanted() <= size

    def find(self) -> cython.bint:
        """Returns whether the next frame is complete; it stays the next until `take`. Raises FrameTooLargeError."""
        begin: cython.Py_ssize_t = self._start + _SIZE_BYTES
        if begin > self._stop:
            return False
        end: cython.Py_ssize_t = self._start + self._wanted()
        if end > self._stop:
            return False
        self.begin, self.end = begin, end
        self.api_key = signed_at(self.buffer, begin, 2) if end - begin >= 2 else -1
        return True

    def frame(self) -> object:
        """Returns a view of the frame that was found."""
        return self._view[self.begin : self.end]

    def take(self, is_shared: cython.bint = True) -> None:
        """Consumes the frame that was found. Says whether views of it may be used after the next call of `space`."""
        self._start = self.end
        if is_shared:
            self._is_shared = True
            if self._start == len(self.buffer):
                self.release()

    def release(self) -> None:
        """Drops the buffer and its contents."""
        self.buffer = bytearray(0)
        self._view = memoryview(self.buffer)
        self._start = self._stop = 0
        self._is_shared = False

    @cython.cfunc
    def _wanted(self) -> cython.Py_ssize_t:
        if self._stop - self._start < _SIZE_BYTES:
            return _SIZE_BYTES
        size: cython.longlong = signed_at(self.buffer, self._start, 4)
        if not 0 < size <= self._frame_max:
            raise FrameTooLargeError(f"a frame of {size} bytes was announced; this listener takes 1 to {self._frame_max}")
        return _SIZE_BYTES + size

    @cython.cfunc
    def _renew(self, held: cython.Py_ssize_t, wanted: cython.Py_ssize_t) -> object:
        """Receives into a new buffer from now on, which begins with the bytes that are not taken."""
        size: cython.Py_ssize_t = self._size if wanted <= self._size else min(wanted, max(_AT_ONCE_MAX, 2 * held))
        buffer: bytearray = bytearray(size)
        if held:
            buffer[:held] = self._view[self._start : self._stop]
        self.buffer = buffer
        self._view = memoryview(buffer)
        self._start, self._stop = 0, held
        self._is_shared = False
        return None
