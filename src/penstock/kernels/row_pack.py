"""Rows that json_rows has scanned, written: as records, and as binary YSON.

A record is as in record_scan.py. In binary YSON a string is a 1, its length and its bytes; numbers may stand as text.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import put_zigzag, zigzag_size
else:
    from penstock.core.varint_buffers import put_zigzag, zigzag_size

COMPILED: Final[bool] = cython.compiled

RECORD_OVERHEAD: Final = 24  # a record has at most this many bytes beside its value
ROW_OVERHEAD: Final = 64  # what a row has beside its columns, what it begins and what it ends with
COLUMN_OVERHEAD: Final = 16  # what a column has beside its name and its value

# Numbers of C: those of json_rows, and the columns of a table filled by record_scan.
_YSON_AT = cython.declare(cython.Py_ssize_t, 2)
_YSON_SIZE = cython.declare(cython.Py_ssize_t, 3)
_KIND = cython.declare(cython.Py_ssize_t, 4)
_STRING = cython.declare(cython.longlong, 0)
_UNSIGNED = cython.declare(cython.longlong, 2)
_BOOLEAN = cython.declare(cython.longlong, 4)
_START = cython.declare(cython.Py_ssize_t, 0)
_SIZE = cython.declare(cython.Py_ssize_t, 1)
_STATE = cython.declare(cython.Py_ssize_t, 0)
_AT = cython.declare(cython.Py_ssize_t, 1)
_LENGTH = cython.declare(cython.Py_ssize_t, 2)
_PLAIN = cython.declare(cython.Py_ssize_t, 3)
_THERE = cython.declare(cython.longlong, 2)
_OFFSET_DELTA = cython.declare(cython.Py_ssize_t, 3)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _copy(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    begin: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy so many bytes; the byte after them."""
    place: cython.Py_ssize_t
    for place in range(size):
        out[at + place] = data[begin + place]
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_digits(out: cython.uchar[::1], at: cython.Py_ssize_t, number: cython.ulonglong) -> cython.Py_ssize_t:
    """Write a number in decimal digits; the byte after it."""
    rest: cython.ulonglong = number
    after: cython.Py_ssize_t = at + 1
    place: cython.Py_ssize_t
    while rest > 9:
        rest //= 10
        after += 1
    place = after
    while place > at:
        place -= 1
        out[place] = cython.cast(cython.uchar, 0x30 + number % 10)
        number //= 10
    return after


@cython.boundscheck(False)
@cython.wraparound(False)
def pack_row_records(
    data: cython.const[cython.uchar][::1],
    rows: cython.const[cython.longlong][:, ::1],
    first_delta: cython.longlong,
    out: cython.uchar[::1],
) -> int:
    """Make a record without a key and headers of each row, one after another in `out`; the bytes that they take."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    delta: cython.longlong
    for row in range(len(rows)):
        size = rows[row, _SIZE]
        delta = first_delta + row
        at = put_zigzag(out, at, 4 + zigzag_size(delta) + zigzag_size(size) + size)
        out[at] = 0
        out[at + 1] = 0
        at = put_zigzag(out, at + 2, delta)
        out[at] = 1
        at = put_zigzag(out, at + 1, size)
        at = _copy(out, at, data, rows[row, _START], size)
        out[at] = 0
        at += 1
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _escaped(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
    """The byte that an escape of plain JSON stands for."""
    byte: cython.int = data[at + 1]
    if byte == 0x6E:
        return 0x0A
    if byte == 0x74:
        return 0x09
    if byte == 0x72:
        return 0x0D
    if byte == 0x62:
        return 0x08
    if byte == 0x66:
        return 0x0C
    if byte != 0x75:
        return byte
    byte = data[at + 5]
    return (data[at + 4] - 0x30) << 4 | (byte & 0x0F) + (9 if byte > 0x39 else 0)


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_string(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    found: cython.const[cython.longlong][:, ::1],
    place: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a string as binary YSON has it; the byte after it."""
    begin: cython.Py_ssize_t = found[place, _AT]
    end: cython.Py_ssize_t = begin + found[place, _LENGTH]
    out[at] = 1
    at = put_zigzag(out, at + 1, found[place, _PLAIN])
    if found[place, _PLAIN] == found[place, _LENGTH]:
        return _copy(out, at, data, begin, end - begin)
    while begin < end:
        if data[begin] == 0x5C:
            out[at] = cython.cast(cython.uchar, _escaped(data, begin))
            begin += 6 if data[begin + 1] == 0x75 else 2
        else:
            out[at] = data[begin]
            begin += 1
        at += 1
    return at


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_value(  # noqa: PLR0917 - a function of C has no keywords
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    kind: cython.longlong,
    found: cython.const[cython.longlong][:, ::1],
    place: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the value of a column and what ends it; the byte after them. Numbers stand as text."""
    if found[place, _STATE] != _THERE:
        out[at] = 0x23
        at += 1
    elif kind == _STRING:
        at = _put_string(out, at, data, found, place)
    else:
        if kind == _BOOLEAN:
            out[at] = 0x25
            at += 1
        at = _copy(out, at, data, found[place, _AT], found[place, _LENGTH])
        if kind == _UNSIGNED:
            out[at] = 0x75
            at += 1
    out[at] = 0x3B
    return at + 1


@cython.boundscheck(False)
@cython.wraparound(False)
def write_yson(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][:, ::1],
    found: cython.const[cython.longlong][:, ::1],
    out: cython.uchar[::1],
    *,
    columns: cython.const[cython.longlong][:, ::1],
    names: cython.const[cython.uchar][::1],
    base_offset: cython.longlong,
    before: cython.const[cython.uchar][::1],
    after: cython.const[cython.uchar][::1],
    weights: cython.const[cython.longlong][::1],
) -> int:
    """Write rows that `scan_rows` has scanned; the bytes that they take. A row is `before`, its offset, all columns, `after`, and
    its weight if there are any."""
    row: cython.Py_ssize_t
    column: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(columns)
    at: cython.Py_ssize_t = 0
    for row in range(len(table)):
        at = _copy(out, at, before, 0, len(before))
        at = _put_digits(out, at, base_offset + table[row, _OFFSET_DELTA])
        out[at] = 0x3B
        at += 1
        for column in range(count):
            at = _copy(out, at, names, columns[column, _YSON_AT], columns[column, _YSON_SIZE])
            at = _put_value(out, at, data, columns[column, _KIND], found, row * count + column)
        at = _copy(out, at, after, 0, len(after))
        if len(weights):
            at = _put_digits(out, at, weights[row])
            out[at] = 0x3B
            at += 1
        out[at] = 0x7D
        out[at + 1] = 0x3B
        at += 2
    return at
