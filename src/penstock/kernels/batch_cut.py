"""Whole batches out of pieces of a partition that are in memory, found in one pass: from the one that holds an offset, up to so
many bytes, and none that begins from another offset on.

     batch:  base offset 8 | length of rest 4 | 11 bytes | last offset delta 4 | ...

A piece is several buffers that follow one another, with marks: every few kilobytes, which offset begins at which byte. The first
bytes of a batch are within one buffer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import cython

from penstock.core.errors import CorruptionError

COMPILED: Final[bool] = cython.compiled

_LENGTH_FROM = cython.declare(cython.Py_ssize_t, 12)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)


@cython.cfunc
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
def _number_at(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """The number of so many bytes at this byte, which is not negative."""
    value: cython.longlong = 0
    place: cython.Py_ssize_t
    for place in range(size):
        value = value << 8 | data[at + place]
    return value


def cut_batches(
    pieces: object, offset: cython.longlong, size_max: cython.longlong, until: cython.longlong, at_least_one: cython.bint
) -> tuple:
    """Batches of pieces that follow one another, of which one holds the offset: the buffers they are in, their bytes in all, and
    the offset after them. They are `size_max` bytes at most, though with `at_least_one` the first is there in any case."""
    found: list = []
    size: cython.longlong = 0
    next_offset: cython.longlong = offset
    start: cython.longlong
    end: cython.longlong
    piece_size: cython.longlong
    count: cython.Py_ssize_t = len(pieces)
    at: cython.Py_ssize_t = count - 1
    while at > 0 and pieces[at].first_offset > offset:
        at -= 1
    while at < count and next_offset < until:
        piece = pieces[at]
        piece_size = piece.size
        start, end, next_offset = _cut(piece, next_offset, size_max - size, until, at_least_one and size == 0)
        _add_views(found, piece, start, end)
        size += end - start
        if end < piece_size:
            break
        at += 1
    return found, size, next_offset


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _cut(
    piece: object, offset: cython.longlong, size_max: cython.longlong, until: cython.longlong, at_least_one: cython.bint
) -> tuple:
    """The first byte of the batches of a piece, the byte after them, and the offset after them."""
    buffers: list = piece.buffers
    starts: list = piece.starts
    piece_size: cython.longlong = piece.size
    which: cython.Py_ssize_t = -1
    begin: cython.longlong = 0  # of the buffer
    after: cython.longlong = 0
    base: cython.longlong
    length: cython.longlong
    delta: cython.longlong
    start: cython.longlong = -1
    end: cython.longlong = _mark_before(piece, offset)
    view: cython.const[cython.uchar][::1] = b""
    while end < piece_size:
        if end >= after or which < 0:
            which = bisect_right(starts, end) - 1
            begin = starts[which]
            view = buffers[which]
            after = begin + len(view)
        if end + _HEADER_SIZE > after:
            raise CorruptionError(f"a batch of the piece from offset {piece.first_offset} has no whole header at byte {end}")
        base = _number_at(view, end - begin, 8)
        length = _number_at(view, end - begin + 8, 4) + _LENGTH_FROM
        delta = _number_at(view, end - begin + 23, 4)
        if length < _HEADER_SIZE:
            raise CorruptionError(f"the batch at offset {base} has a length of {length} bytes")
        if start < 0:
            if base + delta < offset:
                end += length
                continue
            if base >= until:
                return end, end, until
            start = end
            end = max(_last_mark(piece, start + size_max, until), start)
            if end > start:
                continue
        elif base >= until:
            return start, end, base
        if end + length - start > size_max and not (at_least_one and end == start):
            return start, end, base
        end += length
    if start < 0:
        raise CorruptionError(f"offset {offset} is in no batch of the piece {piece.first_offset} to {piece.next_offset}")
    return start, end, piece.next_offset


@cython.cfunc
def _mark_before(piece: object, offset: cython.longlong) -> cython.longlong:
    """The last byte with a mark that is not behind the batch of an offset."""
    marks: object = piece.marks
    return marks.positions[max(bisect_right(marks.offsets, offset) - 1, 0)]


@cython.cfunc
def _last_mark(piece: object, position: cython.longlong, until: cython.longlong) -> cython.longlong:
    """The last byte with a mark up to a position, and with batches only before it that begin before an offset; what lies before
    it need not be looked at. -1 if there is none."""
    marks: object = piece.marks
    at: cython.Py_ssize_t = bisect_right(marks.positions, position) - 1
    if until < piece.next_offset:
        at = min(at, bisect_left(marks.offsets, until) - 1)
    return marks.positions[at] if at >= 0 else -1


@cython.cfunc
def _add_views(found: list, piece: object, start: cython.longlong, end: cython.longlong) -> object:
    """Adds the bytes from one to the other, in the buffers they are in."""
    buffers: list = piece.buffers
    starts: list = piece.starts
    which: cython.Py_ssize_t = bisect_right(starts, start) - 1
    begin: cython.longlong
    low: cython.longlong
    high: cython.longlong
    size: cython.longlong
    while start < end:
        buffer = buffers[which]
        begin = starts[which]
        size = len(buffer)
        low = start - begin
        high = min(end - begin, size)
        found.append(buffer if high - low == size else memoryview(buffer)[low:high])
        start = begin + high
        which += 1
    return None
