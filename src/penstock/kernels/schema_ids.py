"""The ids of schemas that records name: finds records that name no known one, and lists all, without an object a record."""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import zigzag_at
else:
    from penstock.core.varint_buffers import zigzag_at

COMPILED: Final[bool] = cython.compiled

# The columns of the table of payloads: the number of the record, the id it names, and where the payload behind it is.
PAYLOAD_FIELDS: Final = 4
RECORD, SCHEMA_ID, PAYLOAD_AT, PAYLOAD_SIZE = range(PAYLOAD_FIELDS)

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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field_at(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, of_keys: cython.bint
) -> tuple[cython.longlong, cython.Py_ssize_t, cython.Py_ssize_t]:
    """The size of the value or key of the record that begins here, which is negative for null; the byte it begins at, -1 if it
    does not end within the record; and the end of the record."""
    end: cython.Py_ssize_t
    length: cython.longlong
    _skipped: cython.longlong
    length, at = zigzag_at(data, at, size)
    if at < 0 or length < 1 or length > size - at:
        return 0, -1, -1
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
        return 0, -1, -1
    return length, at, end


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _id_at(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    """The id of the frame that begins here."""
    return (
        (cython.cast(cython.longlong, data[at + 1]) << 24)
        | (cython.cast(cython.longlong, data[at + 2]) << 16)
        | (cython.cast(cython.longlong, data[at + 3]) << 8)
        | cython.cast(cython.longlong, data[at + 4])
    )


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
    found: cython.longlong
    known: cython.longlong = -1
    for row in range(count):
        length, at, end = _field_at(data, at, size, of_keys)
        if at < 0:
            return row, -1
        if row > after and length >= 0:
            if length < _FRAME_SIZE or data[at] != 0:
                return row, -1
            found = _id_at(data, at)
            # Records that follow one another mostly name the same schema.
            if found != known:
                if not _is_among(ids, found):
                    return row, found
                known = found
        at = end
    return -1, -1


@cython.boundscheck(False)
@cython.wraparound(False)
def list_payloads(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    of_keys: cython.bint,
    table: cython.longlong[:, ::1],
) -> int:
    """Fill a row for each of `count` records from byte `at` on whose value or key is framed; returns how many rows that are."""
    size: cython.Py_ssize_t = len(data)
    record: cython.Py_ssize_t
    end: cython.Py_ssize_t
    length: cython.longlong
    rows: cython.Py_ssize_t = 0
    with cython.nogil:
        for record in range(count):
            length, at, end = _field_at(data, at, size, of_keys)
            if at < 0 or rows == table.shape[0]:
                break
            if length >= _FRAME_SIZE and data[at] == 0:
                table[rows, 0] = record
                table[rows, 1] = _id_at(data, at)
                table[rows, 2] = at + _FRAME_SIZE
                table[rows, 3] = length - _FRAME_SIZE
                rows += 1
            at = end
    return rows
