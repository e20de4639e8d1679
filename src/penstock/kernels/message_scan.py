"""Messages of a writer of YDB's protocol found in a request, and made into records, in one pass each.

A request is messages, each behind 0a and its length, then 10 and a codec. A message is: 08 seqno | 12 created_at | 1a data |
20 size | 2a group; one that has more to it, or a request that does, is for others to read. A record is as in record_scan.py.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import put_zigzag, zigzag_size
else:
    from penstock.core.varint_buffers import put_zigzag, zigzag_size

COMPILED: Final[bool] = cython.compiled

# What a row has: the number of a message, its time in milliseconds, and where its data is.
ROW_FIELDS: Final = 4
SEQNO, TIME_MS, DATA_AT, DATA_SIZE = range(ROW_FIELDS)
OVERHEAD: Final = 72  # a record has at most this many bytes beside its value and the headers that all have

_SEQNO = cython.declare(cython.Py_ssize_t, 0)
_TIME_MS = cython.declare(cython.Py_ssize_t, 1)
_DATA_AT = cython.declare(cython.Py_ssize_t, 2)
_DATA_SIZE = cython.declare(cython.Py_ssize_t, 3)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _number(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The varint that begins here and the byte after it, which is -1 if it does not end before `end` or takes 63 bits or more."""
    value: cython.longlong = 0
    shift: cython.int = 0
    byte: cython.longlong
    while at < end and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


@cython.boundscheck(False)
@cython.wraparound(False)
def count_messages(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> tuple[int, int]:
    """How many messages a request has that begins at a byte, and its codec; (-1, 0) if there is something else in it."""
    count: cython.Py_ssize_t = 0
    codec: cython.longlong = 0
    size: cython.longlong
    tag: cython.int
    end: cython.Py_ssize_t = len(data)
    while at < end:
        tag = data[at]
        size, at = _number(data, at + 1, end)
        if at < 0:
            return -1, 0
        if tag == 0x0A and size <= end - at:
            count += 1
            at += size
        elif tag == 0x10:
            codec = size
        else:
            return -1, 0
    return count, codec


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _time_ms(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """The time in a timestamp: 08 seconds | 10 nanoseconds; -1 if it is something else."""
    number: cython.longlong
    tag: cython.int
    time_ms: cython.longlong = 0
    while at < end:
        tag = data[at]
        number, at = _number(data, at + 1, end)
        if at < 0 or number > 1 << 40:
            return -1
        if tag == 0x08:
            time_ms += number * 1000
        elif tag == 0x10:
            time_ms += number // 1000000
        else:
            return -1
    return time_ms


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _message(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, row: cython.longlong[::1]
) -> cython.bint:
    """Fill the row of a message; whether it is plain."""
    number: cython.longlong
    tag: cython.int
    row[_SEQNO] = row[_TIME_MS] = row[_DATA_AT] = row[_DATA_SIZE] = 0
    while at < end:
        tag = data[at]
        number, at = _number(data, at + 1, end)
        if at < 0:
            return False
        if tag == 0x08:
            row[_SEQNO] = number
            continue
        if tag == 0x20:
            continue
        if number > end - at:
            return False
        if tag == 0x12:
            row[_TIME_MS] = _time_ms(data, at, at + number)
            if row[_TIME_MS] < 0:
                return False
        elif tag == 0x1A:
            row[_DATA_AT] = at
            row[_DATA_SIZE] = number
        elif tag != 0x2A:
            return False
        at += number
    return True


@cython.boundscheck(False)
@cython.wraparound(False)
def scan_messages(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, table: cython.longlong[:, ::1]) -> bool:
    """Fill a row of `table` for each message of a request that `count_messages` has counted; whether all are plain."""
    row: cython.Py_ssize_t = 0
    number: cython.longlong
    tag: cython.int
    end: cython.Py_ssize_t = len(data)
    while at < end:
        tag = data[at]
        number, at = _number(data, at + 1, end)
        if tag == 0x0A:
            if row >= len(table) or not _message(data, at, at + number, table[row]):
                return False
            row += 1
            at += number
    return row == len(table)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_digits(
    out: cython.uchar[::1], at: cython.Py_ssize_t, digits: cython.Py_ssize_t, number: cython.longlong
) -> cython.Py_ssize_t:
    """Write a number in decimal digits; the byte after it."""
    place: cython.Py_ssize_t = at + digits
    while place > at:
        place -= 1
        out[place] = cython.cast(cython.uchar, 48 + number % 10)
        number //= 10
    return at + digits


@cython.boundscheck(False)
@cython.wraparound(False)
def pack_records(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[:, ::1],
    out: cython.uchar[::1],
    *,
    headers: cython.const[cython.uchar][::1],
    headers_after: cython.const[cython.uchar][::1],
) -> int:
    """Make a record of each row, one after another in `out`; the bytes that they take. `headers` are the count of all headers and
    those up to the length of the number, `headers_after` those behind it."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    digits: cython.Py_ssize_t
    rest: cython.longlong
    size: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    time_delta: cython.longlong
    before: cython.Py_ssize_t = len(headers)
    after: cython.Py_ssize_t = len(headers_after)
    for row in range(len(table)):
        digits = 1
        rest = table[row, _SEQNO]
        while rest > 9:
            rest //= 10
            digits += 1
        size = table[row, _DATA_SIZE]
        value_at = table[row, _DATA_AT]
        time_delta = table[row, _TIME_MS] - table[0, _TIME_MS]
        at = put_zigzag(
            out, at, 3 + zigzag_size(time_delta) + zigzag_size(row) + zigzag_size(size) + size + before + digits + after
        )
        out[at] = 0
        at = put_zigzag(out, at + 1, time_delta)
        at = put_zigzag(out, at, row)
        out[at] = 1
        at = put_zigzag(out, at + 1, size)
        out[at : at + size] = data[value_at : value_at + size]
        at += size
        out[at : at + before] = headers
        at += before
        out[at] = cython.cast(cython.uchar, digits << 1)
        at = _put_digits(out, at + 1, digits, table[row, _SEQNO])
        out[at : at + after] = headers_after
        at += after
    return at
