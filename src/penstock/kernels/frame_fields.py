"""The fields that requests and replies consist of: numbers, counts, texts and ids, in the form of older versions and in the
flexible one.

Lengths and counts are numbers of two or four bytes in older versions, varints of one more in flexible ones, with tagged fields
behind every structure.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import put_number, put_varint_in, signed_at, text_at, varint_at
else:
    from penstock.core.varint_buffers import put_number, signed_at, varint_at
    from penstock.core.varint_buffers import put_varint as put_varint_in

    def text_at(data: bytearray, at: int, end: int) -> str:
        """As the compiled kernel has it."""
        return data[at:end].decode()


COMPILED: Final[bool] = cython.compiled

_ID_SIZE = cython.declare(cython.Py_ssize_t, 16)


@cython.cclass
class FrameFields:
    """Reads the fields of a request one after another, and writes those of its reply. Once a field is not there, `at` is -1, and
    so are the numbers that follow, or they are 0."""

    @cython.cfunc
    def number(self, buffer: bytearray, size: cython.Py_ssize_t) -> cython.longlong:
        """The next number of so many bytes."""
        at: cython.Py_ssize_t = self.at
        if at < 0 or size > self.end - at:
            self.at = -1
            return 0
        self.at = at + size
        return signed_at(buffer, at, size)

    @cython.cfunc
    def varint(self, buffer: bytearray) -> cython.longlong:
        """The next varint; -1 if there is none."""
        value: cython.longlong
        if self.at < 0:
            return -1
        value, self.at = varint_at(buffer, self.at, self.end)
        return value if self.at >= 0 else -1

    @cython.cfunc
    def count(self, buffer: bytearray) -> cython.longlong:
        """The next count of items or bytes; negative for null or if there is none."""
        return self.varint(buffer) - 1 if self.is_flexible else self.number(buffer, 4)

    @cython.cfunc
    def pass_tags(self, buffer: bytearray) -> cython.void:
        """Passes tagged fields, of which there must be none."""
        if self.is_flexible and self.varint(buffer) != 0:
            self.at = -1

    @cython.cfunc
    def text(self, buffer: bytearray, size: cython.longlong) -> object:
        """The next string, of so many bytes."""
        at: cython.Py_ssize_t = self.at
        if at < 0 or size < 0 or size > self.end - at:
            self.at = -1
            return None
        self.at = at + size
        try:
            return text_at(buffer, at, at + size)
        except UnicodeDecodeError:
            self.at = -1
            return None

    @cython.cfunc
    def short_text(self, buffer: bytearray) -> object:
        """The next string with its length in front."""
        return self.text(buffer, self.varint(buffer) - 1 if self.is_flexible else self.number(buffer, 2))

    @cython.cfunc
    def id(self, buffer: bytearray) -> object:
        """The next id."""
        at: cython.Py_ssize_t = self.at
        if at < 0 or self.end - at < _ID_SIZE:
            self.at = -1
            return None
        self.at = at + _ID_SIZE
        return bytes(buffer[at : at + _ID_SIZE])

    @cython.cfunc
    def put_count(self, out: bytearray, at: cython.Py_ssize_t, count: cython.longlong) -> cython.Py_ssize_t:
        """Writes a count of items or bytes. Returns where the next field begins."""
        return put_varint_in(out, at, count + 1) if self.is_flexible else put_number(out, at, count, 4)

    @cython.cfunc
    def put_short_count(self, out: bytearray, at: cython.Py_ssize_t, count: cython.longlong) -> cython.Py_ssize_t:
        """Writes the length of a string. Returns where it begins."""
        return put_varint_in(out, at, count + 1) if self.is_flexible else put_number(out, at, count, 2)
