"""How far a chunk's bytes are sound records, verified in one pass. The format is drawn in blob/record.py."""

from __future__ import annotations

from typing import Final

import cython

from penstock.core.checksum import crc32c

if cython.compiled:
    from cython.cimports.penstock.kernels.checksums import crc_of_part
    from cython.cimports.penstock.kernels.varints import unsigned_at
else:
    from penstock.core.varint_buffers import unsigned_at

    def crc_of_part(data: bytes, start: int, end: int) -> int:
        """As the compiled kernel has it."""
        return crc32c(memoryview(data)[start:end])


COMPILED: Final[bool] = cython.compiled

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 64)
_CHECKED_SIZE = cython.declare(cython.Py_ssize_t, 60)  # of the header, by its own checksum
_SHORT_MAX = cython.declare(cython.Py_ssize_t, 16 << 10)  # the checksum of more bytes is sooner computed by the crc32c package
_BLOCK_SIZE = cython.declare(cython.Py_ssize_t, 64 << 10)  # a longer body has a table
_START = cython.declare(cython.longlong, 0x50454E72_01)  # the magic and the version


def sound_to(data: bytes, chunk: cython.longlong, offset: cython.longlong) -> int:
    """Returns how many bytes at the front of `data`, which were read at this place, are whole records that are sound and have no
    table."""
    at: cython.Py_ssize_t = 0
    body: cython.Py_ssize_t
    length: cython.Py_ssize_t
    checksum: cython.longlong
    while at + _HEADER_SIZE <= len(data):
        if (
            unsigned_at(data, at, 5) != _START
            or unsigned_at(data, at + 16, 4) != chunk
            or unsigned_at(data, at + 20, 4) != offset + at
        ):
            break
        if unsigned_at(data, at + _CHECKED_SIZE, 4) != crc_of_part(data, at, at + _CHECKED_SIZE):
            break
        length = unsigned_at(data, at + 8, 4)
        body = at + _HEADER_SIZE
        if length > _BLOCK_SIZE or body + length > len(data):
            break
        is_short: cython.bint = length <= _SHORT_MAX
        checksum = crc_of_part(data, body, body + length) if is_short else crc32c(memoryview(data)[body : body + length])
        if unsigned_at(data, at + 12, 4) != checksum:
            break
        at = body + length
    return at
