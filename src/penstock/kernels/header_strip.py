"""Records without the headers that a gateway has added for itself, in one pass.

A record is as in record_scan.py; a header is the length of its name, the name, the length of its value, the value.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import put_zigzag, zigzag_at, zigzag_size
else:
    from penstock.core.varint_buffers import put_zigzag, zigzag_at, zigzag_size

COMPILED: Final[bool] = cython.compiled

# The columns of a table filled by record_scan.
_START = cython.declare(cython.Py_ssize_t, 0)
_END = cython.declare(cython.Py_ssize_t, 1)
_HEADERS_AT = cython.declare(cython.Py_ssize_t, 8)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _after_header(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, prefix: cython.const[cython.uchar][::1]
) -> tuple[cython.bint, cython.Py_ssize_t]:
    """Whether the name of the header that begins here has a prefix, and the byte after it; -1 if it does not end before `end`."""
    size: cython.longlong
    place: cython.Py_ssize_t
    is_own: cython.bint
    size, at = zigzag_at(data, at, end)
    if at < 0 or size < 0 or size > end - at:
        return False, -1
    is_own = size >= len(prefix)
    for place in range(len(prefix)):
        if not is_own:
            break
        is_own = data[at + place] == prefix[place]
    size, at = zigzag_at(data, at + size, end)
    if at < 0 or size > end - at:
        return False, -1
    return is_own, at + max(size, 0)


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _kept(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, prefix: cython.const[cython.uchar][::1]
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """How many headers of those that begin here stay, and the bytes of these; -1 if they do not fill the record."""
    count: cython.longlong
    left: cython.longlong
    kept: cython.longlong = 0
    size: cython.Py_ssize_t = 0
    after: cython.Py_ssize_t
    is_own: cython.bint
    count, at = zigzag_at(data, at, end)
    if at < 0:
        return -1, 0
    left = count
    while left > 0:
        is_own, after = _after_header(data, at, end, prefix)
        if after < 0:
            return -1, 0
        if not is_own:
            kept += 1
            size += after - at
        at = after
        left -= 1
    if at != end:
        return -1, 0
    return kept, size


@cython.boundscheck(False)
@cython.wraparound(False)
def strip_headers(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][:, ::1],
    prefix: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
) -> int:
    """Put the records of a table filled by record_scan into `out`, which is as long as `data`, without headers whose names begin
    with `prefix`; the bytes that they take, or -1 if a record is not what it should be."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    place: cython.Py_ssize_t
    after: cython.Py_ssize_t
    headers_at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    kept: cython.longlong
    is_own: cython.bint
    for row in range(len(table)):
        end = table[row, _END]
        headers_at = table[row, _HEADERS_AT]
        begin = zigzag_at(data, table[row, _START], end)[1]
        kept, size = _kept(data, headers_at, end, prefix)
        if kept < 0 or begin < 0:
            return -1
        at = put_zigzag(out, at, headers_at - begin + zigzag_size(kept) + size)
        out[at : at + headers_at - begin] = data[begin:headers_at]
        at = put_zigzag(out, at + headers_at - begin, kept)
        place = zigzag_at(data, headers_at, end)[1]
        while kept > 0:
            is_own, after = _after_header(data, place, end, prefix)
            if not is_own:
                out[at : at + after - place] = data[place:after]
                at += after - place
                kept -= 1
            place = after
    return at
