"""Looks for records that do not begin with the id of a known schema: in one pass, without an object a record."""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import zigzag_at
else:
    from penstock.core.varint_buffers import zigzag_at

COMPILED: Final[bool] = cython.compiled

_FRAME_SIZE = cython.declare(cython.Py_ssize_t, 5)  # a zero byte and the id in four


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _is_among(ids: cython.const[cython.longlong][::1], wanted: cython.longlong) -> cython.bint:
    """Whether a number is among sorted ones."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(ids) - 1
    middle: cython.Py_ssize_t
    while low <= high:
        middle = (low + high) >> 1
        if ids[middle] == wanted:
            return True
        if ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return False


@cython.boundscheck(False)
@cython.wraparound(False)
def find_unknown(  # noqa: PLR0917 - called for every batch, and names of arguments take time
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    ids: cython.const[cython.longlong][::1],
    of_keys: cython.bint,
    after: cython.Py_ssize_t,
) -> tuple[int, int]:
    """The first of `count` records from byte `at` on, behind the one numbered `after`, whose value or key names no schema of
    `ids`, which are sorted; and the id that it names, -1 if none. Null is no value. (-1, -1) if there is no such record."""
    size: cython.Py_ssize_t = len(data)
    row: cython.Py_ssize_t
    end: cython.Py_ssize_t
    length: cython.longlong
    _skipped: cython.longlong
    found: cython.longlong
    known: cython.longlong = -1
    for row in range(count):
        length, at = zigzag_at(data, at, size)
        if at < 0 or length < 1 or length > size - at:
            return row, -1
        end = at + length
        _skipped, at = zigzag_at(data, at + 1, end)  # the timestamp, behind a byte of attributes
        if at >= 0:
            _skipped, at = zigzag_at(data, at, end)  # the offset
        length = 0
        if at >= 0:
            length, at = zigzag_at(data, at, end)
        if at >= 0 and not of_keys and length <= end - at:
            at += length if length > 0 else 0
            length, at = zigzag_at(data, at, end)
        if at < 0 or length > end - at:
            return row, -1
        if row > after and length >= 0:
            if length < _FRAME_SIZE or data[at] != 0:
                return row, -1
            found = (
                (cython.cast(cython.longlong, data[at + 1]) << 24)
                | (cython.cast(cython.longlong, data[at + 2]) << 16)
                | (cython.cast(cython.longlong, data[at + 3]) << 8)
                | cython.cast(cython.longlong, data[at + 4])
            )
            # Records that follow one another mostly name the same schema.
            if found != known:
                if not _is_among(ids, found):
                    return row, found
                known = found
        at = end
    return -1, -1
