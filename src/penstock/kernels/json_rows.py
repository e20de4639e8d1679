"""Rows of scalars that are stored as JSON objects, scanned and checked against the columns of their table in one pass.

A row is plain if it is {"column":value,...} with nothing but columns of its table, each once and of its type: a string whose
escapes are of ASCII, a whole number within the limits of its column, a number with a fraction or an exponent, true, false or
null. Spaces may stand between. Whatever is not plain is for others to read.
"""

from __future__ import annotations

from typing import Final

import cython

COMPILED: Final[bool] = cython.compiled

# What a column has: where its name is as JSON has it, and as YSON has it with a = behind, its kind, and whether it must be there.
COLUMN_FIELDS: Final = 6
NAME_AT, NAME_SIZE, YSON_AT, YSON_SIZE, KIND, IS_REQUIRED = range(COLUMN_FIELDS)
STRING, SIGNED, UNSIGNED, DOUBLE, BOOLEAN, OTHER = range(6)

# What a row has: where it is, and its weight.
ROW_FIELDS: Final = 3
START, SIZE, WEIGHT = range(ROW_FIELDS)
# What is found of the value of a column: its state, where it is, and its bytes without escapes.
VALUE_FIELDS: Final = 4

# The same as numbers of C.
_NAME_AT = cython.declare(cython.Py_ssize_t, 0)
_NAME_SIZE = cython.declare(cython.Py_ssize_t, 1)
_KIND = cython.declare(cython.Py_ssize_t, 4)
_IS_REQUIRED = cython.declare(cython.Py_ssize_t, 5)
_STRING = cython.declare(cython.longlong, 0)
_SIGNED = cython.declare(cython.longlong, 1)
_UNSIGNED = cython.declare(cython.longlong, 2)
_DOUBLE = cython.declare(cython.longlong, 3)
_BOOLEAN = cython.declare(cython.longlong, 4)
_START = cython.declare(cython.Py_ssize_t, 0)
_SIZE = cython.declare(cython.Py_ssize_t, 1)
_WEIGHT = cython.declare(cython.Py_ssize_t, 2)
_STATE = cython.declare(cython.Py_ssize_t, 0)
_AT = cython.declare(cython.Py_ssize_t, 1)
_LENGTH = cython.declare(cython.Py_ssize_t, 2)
_PLAIN = cython.declare(cython.Py_ssize_t, 3)
_ABSENT = cython.declare(cython.longlong, 0)
_NULL = cython.declare(cython.longlong, 1)
_THERE = cython.declare(cython.longlong, 2)
_VALUE_AT = cython.declare(cython.Py_ssize_t, 6)
_VALUE_SIZE = cython.declare(cython.Py_ssize_t, 7)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _past_spaces(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    while at < end and data[at] == 0x20:
        at += 1
    return at


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _character(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """How many bytes a character of UTF-8 beyond ASCII takes; 0 if it is none."""
    first: cython.int = data[at]
    size: cython.Py_ssize_t = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    low: cython.int = 0x80
    high: cython.int = 0xBF
    place: cython.Py_ssize_t
    if first < 0xC2 or first > 0xF4 or at + size > end:
        return 0
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if data[at + 1] < low or data[at + 1] > high:
        return 0
    for place in range(at + 2, at + size):
        if data[place] & 0xC0 != 0x80:
            return 0
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _escape(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """How many bytes an escape takes that stands for one of ASCII; 0 if it does not."""
    byte: cython.int
    if at + 1 >= end:
        return 0
    byte = data[at + 1]
    if byte in (0x22, 0x5C, 0x2F, 0x6E, 0x74, 0x72, 0x62, 0x66):
        return 2
    if byte != 0x75 or at + 5 >= end or data[at + 2] != 0x30 or data[at + 3] != 0x30 or not 0x30 <= data[at + 4] <= 0x37:
        return 0
    byte = data[at + 5]
    return 6 if 0x30 <= byte <= 0x39 or 0x61 <= byte | 0x20 <= 0x66 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _past_text(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Pass ASCII that stands for itself, by so many bytes at a time that the compiler looks at them all at once."""
    place: cython.Py_ssize_t
    byte: cython.uchar
    is_other: cython.uchar
    while at + 32 <= end:
        is_other = 0
        for place in range(32):
            byte = data[at + place]
            is_other |= (byte < 0x20) | (byte > 0x7F) | (byte == 0x22) | (byte == 0x5C)
        if is_other:
            break
        at += 32
    return at


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _string(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    found: cython.longlong[:, ::1],
    place: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Find a string whose first quote is at a byte; the byte after the last one, or -1."""
    size: cython.Py_ssize_t
    begin: cython.Py_ssize_t = at + 1
    saved: cython.Py_ssize_t = 0  # bytes of escapes beyond those they stand for
    byte: cython.int
    at = _past_text(data, begin, end)
    while at < end:
        byte = data[at]
        if byte == 0x22:
            found[place, _AT] = begin
            found[place, _LENGTH] = at - begin
            found[place, _PLAIN] = at - begin - saved
            return at + 1
        if byte == 0x5C:
            size = _escape(data, at, end)
            if size == 0:
                return -1
            saved += size - 1
            at += size
        elif byte < 0x20:
            return -1
        elif byte < 0x80:
            at += 1
        else:
            size = _character(data, at, end)
            if size == 0:
                return -1
            at += size
    return -1


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _whole(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    low: cython.ulonglong,
    high: cython.ulonglong,
) -> cython.Py_ssize_t:
    """The byte after a whole number from -low to high; -1 if it is none."""
    value: cython.ulonglong = 0
    digit: cython.ulonglong
    begin: cython.Py_ssize_t
    is_negative: cython.bint = data[at] == 0x2D
    at += is_negative
    begin = at
    while at < end and 0x30 <= data[at] <= 0x39:
        digit = data[at] - 0x30
        if value > 1844674407370955161 or (value == 1844674407370955161 and digit > 5):
            return -1
        value = value * 10 + digit
        at += 1
    if at == begin or (data[begin] == 0x30 and (at > begin + 1 or is_negative)):
        return -1
    return at if value <= (low if is_negative else high) else -1


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _double(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The byte after a number with a fraction, or an exponent of at most two digits; -1 if it is none."""
    begin: cython.Py_ssize_t
    is_whole: cython.bint = True
    at += data[at] == 0x2D
    begin = at
    while at < end and 0x30 <= data[at] <= 0x39:
        at += 1
    if at == begin or (data[begin] == 0x30 and at > begin + 1):
        return -1
    if at < end and data[at] == 0x2E:
        is_whole = False
        begin = at = at + 1
        while at < end and 0x30 <= data[at] <= 0x39:
            at += 1
        if at == begin:
            return -1
    if at < end and data[at] | 0x20 == 0x65:
        is_whole = False
        at += 1
        at += at < end and (data[at] == 0x2B or data[at] == 0x2D)
        begin = at
        while at < end and 0x30 <= data[at] <= 0x39:
            at += 1
        if at == begin or at > begin + 2:
            return -1
    return -1 if is_whole else at


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _value(  # noqa: PLR0917 - a function of C has no keywords
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    columns: cython.const[cython.longlong][:, ::1],
    limits: cython.const[cython.ulonglong][:, ::1],
    column: cython.Py_ssize_t,
    found: cython.longlong[:, ::1],
    place: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Find the value of a column; the byte after it, or -1."""
    kind: cython.longlong = columns[column, _KIND]
    after: cython.Py_ssize_t = -1
    if at + 4 > end:
        # Even the shortest value has the end of its row behind it, which takes no more than this.
        if at + 2 > end:
            return -1
    elif data[at] == 0x6E and data[at + 1] == 0x75 and data[at + 2] == 0x6C and data[at + 3] == 0x6C:
        found[place, _STATE] = _NULL
        return at + 4
    found[place, _STATE] = _THERE
    if kind == _STRING:
        return _string(data, at, end, found, place) if data[at] == 0x22 else -1
    if kind in (_SIGNED, _UNSIGNED):
        after = _whole(data, at, end, limits[column, 0], limits[column, 1])
    elif kind == _DOUBLE:
        after = _double(data, at, end)
    elif kind == _BOOLEAN and at + 5 <= end:
        if data[at] == 0x74 and data[at + 1] == 0x72 and data[at + 2] == 0x75 and data[at + 3] == 0x65:
            after = at + 4
        elif data[at] == 0x66 and data[at + 1] == 0x61 and data[at + 2] == 0x6C and data[at + 3] == 0x73 and data[at + 4] == 0x65:
            after = at + 5
    found[place, _AT] = at
    found[place, _LENGTH] = after - at
    return after


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _column(  # noqa: PLR0917 - a function of C has no keywords
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    columns: cython.const[cython.longlong][:, ::1],
    names: cython.const[cython.uchar][::1],
    guess: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """The column with a name, looked for from a guess on; -1 if there is none."""
    count: cython.Py_ssize_t = len(columns)
    _tried: cython.Py_ssize_t
    place: cython.Py_ssize_t
    name_at: cython.Py_ssize_t
    for _tried in range(count):
        if guess >= count:
            guess = 0
        if columns[guess, _NAME_SIZE] == size:
            name_at = columns[guess, _NAME_AT]
            place = 0
            while place < size and data[at + place] == names[name_at + place]:
                place += 1
            if place == size:
                return guess
        guess += 1
    return -1


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _row(  # noqa: PLR0917 - a function of C has no keywords
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    columns: cython.const[cython.longlong][:, ::1],
    limits: cython.const[cython.ulonglong][:, ::1],
    names: cython.const[cython.uchar][::1],
    found: cython.longlong[:, ::1],
    first: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Find the values of a row that begins at a byte, and put them from the row `first` of `found` on; the byte after it, or -1
    if it is not plain."""
    column: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    guess: cython.Py_ssize_t = 0
    for column in range(first, first + len(columns)):
        found[column, _STATE] = _ABSENT
    if at >= end or data[at] != 0x7B:
        return -1
    at = _past_spaces(data, at + 1, end)
    if at < end and data[at] == 0x7D:
        return at + 1
    while at < end and data[at] == 0x22:
        begin = at = at + 1
        while at < end and data[at] != 0x22:
            at += 2 if data[at] == 0x5C else 1
        if at >= end:
            return -1
        column = _column(data, begin, at - begin, columns, names, guess)
        if column < 0 or found[first + column, _STATE] != _ABSENT:
            return -1
        guess = column + 1
        at = _past_spaces(data, at + 1, end)
        if at >= end or data[at] != 0x3A:
            return -1
        at = _value(data, _past_spaces(data, at + 1, end), end, columns, limits, column, found, first + column)
        if at < 0:
            return -1
        at = _past_spaces(data, at, end)
        if at >= end or data[at] != 0x2C:
            return at + 1 if at < end and data[at] == 0x7D else -1
        at = _past_spaces(data, at + 1, end)
    return -1


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _after_row(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The byte after an object, plain or not, of proper JSON."""
    end: cython.Py_ssize_t = len(data)
    depth: cython.Py_ssize_t = 0
    byte: cython.int
    while at < end:
        byte = data[at]
        at += 1
        if byte == 0x22:
            while at < end and data[at] != 0x22:
                at += 2 if data[at] == 0x5C else 1
            at += 1
        elif byte in (0x7B, 0x5B):
            depth += 1
        elif byte in (0x7D, 0x5D):
            depth -= 1
            if depth == 0:
                break
    return at


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _weight(
    columns: cython.const[cython.longlong][:, ::1], found: cython.longlong[:, ::1], base: cython.longlong
) -> cython.longlong:
    """The weight of the row that was found; -1 if it has nulls, or not what it must have."""
    column: cython.Py_ssize_t
    for column in range(len(columns)):
        if found[column, _STATE] == _ABSENT:
            if columns[column, _IS_REQUIRED]:
                return -1
        elif found[column, _STATE] == _NULL:
            return -1
        elif columns[column, _KIND] == _STRING:
            base += found[column, _PLAIN]
        else:
            base += 1 if columns[column, _KIND] == _BOOLEAN else 8
    return base


@cython.boundscheck(False)
@cython.wraparound(False)
def measure_rows(
    data: cython.const[cython.uchar][::1],
    rows: cython.longlong[:, ::1],
    found: cython.longlong[:, ::1],
    *,
    columns: cython.const[cython.longlong][:, ::1],
    limits: cython.const[cython.ulonglong][:, ::1],
    names: cython.const[cython.uchar][::1],
    base_weight: cython.longlong,
) -> None:
    """Fill `rows` for a list of objects in proper JSON without spaces; the weight of one that is not plain, has nulls, or lacks
    what it must have, is -1. `found` is room for one row of values."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 1
    after: cython.Py_ssize_t
    for row in range(len(rows)):
        after = _row(data, at, len(data), columns, limits, names, found, 0)
        rows[row, _WEIGHT] = -1 if after < 0 else _weight(columns, found, base_weight)
        if after < 0:
            after = _after_row(data, at)
        rows[row, _START] = at
        rows[row, _SIZE] = after - at
        at = after + 1


@cython.boundscheck(False)
@cython.wraparound(False)
def scan_rows(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][:, ::1],
    found: cython.longlong[:, ::1],
    *,
    columns: cython.const[cython.longlong][:, ::1],
    limits: cython.const[cython.ulonglong][:, ::1],
    names: cython.const[cython.uchar][::1],
) -> int:
    """Find the values of the rows that records hold, by the table that record_scan has made of these; how many there are before
    the first that is not plain. `found` has a row for each column of each."""
    row: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    for row in range(len(table)):
        begin = table[row, _VALUE_AT]
        end = begin + table[row, _VALUE_SIZE]
        if end < begin or _row(data, begin, end, columns, limits, names, found, row * len(columns)) != end:
            return row
    return len(table)
