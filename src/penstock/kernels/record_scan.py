"""Where everything is in the records of one batch: found in one pass, without an object a record.

A record is: length | attributes 1 | timestamp delta | offset delta | key length | key | value length | value | header count |
headers, the numbers as zigzag varints; a length of -1 is null.
"""

from __future__ import annotations

from typing import Final

import cython

from penstock.core.errors import CorruptionError

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import zigzag_at
else:
    from penstock.core.varint_buffers import zigzag_at

COMPILED: Final[bool] = cython.compiled

# The columns of the table that a scan fills.
FIELDS: Final = 9
START, END, TIMESTAMP_DELTA, OFFSET_DELTA, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT = range(FIELDS)

# The same as numbers of the compiler, which finds a place in the table by them without asking the interpreter.
_START = cython.declare(cython.Py_ssize_t, 0)
_END = cython.declare(cython.Py_ssize_t, 1)
_TIMESTAMP_DELTA = cython.declare(cython.Py_ssize_t, 2)
_OFFSET_DELTA = cython.declare(cython.Py_ssize_t, 3)
_KEY_AT = cython.declare(cython.Py_ssize_t, 4)
_KEY_SIZE = cython.declare(cython.Py_ssize_t, 5)
_VALUE_AT = cython.declare(cython.Py_ssize_t, 6)
_VALUE_SIZE = cython.declare(cython.Py_ssize_t, 7)
_HEADERS_AT = cython.declare(cython.Py_ssize_t, 8)
_HEADER = cython.declare(cython.Py_ssize_t, 61)  # of a batch
_CODEC_OR_CONTROL = cython.declare(cython.uchar, 0x27)  # bits of its attributes
_LONG = cython.declare(cython.Py_ssize_t, 65536)  # over more bytes than this, others may run meanwhile


class MalformedRecordsError(CorruptionError):
    """The records of a batch are not what its header says."""

    code = "malformed_records"


@cython.cfunc
@cython.exceptval(check=False)
def _skip_field(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The length of the key or value whose length begins here, and the byte its content begins at; -1 if it does not fit."""
    size: cython.longlong
    size, at = zigzag_at(data, at, end)
    if at < 0 or size < -1 or size > end - at:
        return 0, -1
    return size, at


def scan_records(data: cython.const[cython.uchar][::1], table: cython.longlong[:, ::1]) -> int:
    """Fill one row of `table` for each of its rows from the records in `data`, one after another; the byte after the last."""
    return _scan(data, 0, len(data), table)


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(-1)
def _scan(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, table: cython.longlong[:, ::1]
) -> cython.Py_ssize_t:
    """Fill one row of `table` for each of its rows from the records that begin at a byte and end before `size`."""
    row: cython.Py_ssize_t
    end: cython.Py_ssize_t
    length: cython.longlong
    for row in range(len(table)):
        table[row, _START] = at
        length, at = zigzag_at(data, at, size)
        if at < 0 or length < 1 or length > size - at:
            raise MalformedRecordsError(f"record {row} of a batch is cut short or longer than the batch")
        end = at + length
        at += 1  # the attributes of a record are not used
        table[row, _TIMESTAMP_DELTA], at = zigzag_at(data, at, end)
        if at >= 0:
            table[row, _OFFSET_DELTA], at = zigzag_at(data, at, end)
        if at >= 0:
            table[row, _KEY_SIZE], at = _skip_field(data, at, end)
        if at >= 0:
            table[row, _KEY_AT] = at
            at += max(table[row, _KEY_SIZE], 0)
            table[row, _VALUE_SIZE], at = _skip_field(data, at, end)
        if at < 0:
            raise MalformedRecordsError(f"a part of record {row} of a batch does not fit into it")
        table[row, _VALUE_AT] = at
        table[row, _HEADERS_AT] = at + max(table[row, _VALUE_SIZE], 0)
        table[row, _END] = at = end
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _unsigned(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian number of so many bytes."""
    value: cython.longlong = 0
    each: cython.Py_ssize_t
    for each in range(at, at + size):
        value = (value << 8) | data[each]
    return value


@cython.boundscheck(False)
@cython.wraparound(False)
def count_run(run: cython.const[cython.uchar][::1]) -> int:
    """How many records the batches have that stand one after another in a run; -1 if one of them is compressed or a marker."""
    size: cython.Py_ssize_t = len(run)
    at: cython.Py_ssize_t = 0
    length: cython.longlong
    count: cython.longlong = 0
    is_plain: cython.bint = True
    while at < size:
        length = _unsigned(run, at + 8, 4) + 12 if size - at >= _HEADER else 0
        if length < _HEADER or length > size - at:
            raise MalformedRecordsError(f"the batch at byte {at} of a run of {size} does not end within it")
        is_plain = is_plain and run[at + 22] & _CODEC_OR_CONTROL == 0
        count += _unsigned(run, at + 57, 4)
        at += length
    return count if is_plain and count <= size else -1


@cython.boundscheck(False)
@cython.wraparound(False)
def scan_run(run: cython.const[cython.uchar][::1], table: cython.longlong[:, ::1]) -> None:
    """Fill `table`, a row for each record that `count_run` has counted, as `scan_records` does for a batch; OFFSET_DELTA is the
    offset itself."""
    size: cython.Py_ssize_t = len(run)
    at: cython.Py_ssize_t = 0
    first: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    offset: cython.longlong
    while at < size:
        end = at + 12 + _unsigned(run, at + 8, 4)
        offset = _unsigned(run, at, 8)
        count = _unsigned(run, at + 57, 4)
        _scan(run, at + _HEADER, end, table[first : first + count])
        for row in range(first, first + count):
            table[row, _OFFSET_DELTA] += offset
        first += count
        at = end


def find_record(
    data: cython.const[cython.uchar][::1], offset_delta: cython.longlong
) -> tuple[int, int, int, int, int, int] | None:
    """What a row has from TIMESTAMP_DELTA on, without OFFSET_DELTA, of the record with an offset delta; None if there is none.
    Those before it are only passed."""
    size: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = 0
    key_at: cython.Py_ssize_t
    length: cython.longlong
    time_delta: cython.longlong
    delta: cython.longlong = -1
    key_size: cython.longlong
    value_size: cython.longlong
    while end < size and delta < offset_delta:
        length, at = zigzag_at(data, end, size)
        if at < 0 or length < 1 or length > size - at:
            raise MalformedRecordsError(f"the record at byte {end} of a batch is cut short or longer than the batch")
        end = at + length
        time_delta, at = zigzag_at(data, at + 1, end)  # the attributes of a record are not used
        if at >= 0:
            delta, at = zigzag_at(data, at, end)
        if at < 0:
            raise MalformedRecordsError(f"a part of the record that ends at byte {end} of a batch does not fit into it")
    if delta != offset_delta or end == 0:
        return None
    value_size = 0
    key_size, key_at = _skip_field(data, at, end)
    at = key_at
    if at >= 0:
        value_size, at = _skip_field(data, key_at + max(key_size, 0), end)
    if at < 0:
        raise MalformedRecordsError(f"a part of the record that ends at byte {end} of a batch does not fit into it")
    return time_delta, key_at, key_size, at, value_size, at + max(value_size, 0)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _number_at(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The number of 32 bits that begins here and the byte after it; -1 if it is not there. Readers take five bytes at most."""
    return zigzag_at(data, at, end if end - at < 5 else at + 5)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _past_octets(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, least: cython.longlong
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The length of the key, value or name that begins here, and the byte after it; -1 if it does not fit or is below `least`."""
    size: cython.longlong
    size, at = _number_at(data, at, end)
    if at < 0 or size < least or size > end - at:
        return 0, -1
    return size, at + size if size > 0 else at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _check_record(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, number: cython.longlong
) -> tuple[cython.Py_ssize_t, cython.longlong, cython.longlong]:
    """The byte after the record that begins here, its timestamp delta and the length of its key; the byte is -1 if it is not
    whole, and -2 if it has another number than this."""
    length: cython.longlong
    time_delta: cython.longlong = 0
    delta: cython.longlong = 0
    key_size: cython.longlong = 0
    headers: cython.longlong = 0
    end: cython.Py_ssize_t
    length, at = _number_at(data, at, size)
    if at < 0 or length < 1 or length > size - at:
        return -1, 0, 0
    end = at + length
    time_delta, at = zigzag_at(data, at + 1, end)  # the attributes of a record are not used
    if at >= 0:
        delta, at = _number_at(data, at, end)
    if at >= 0:
        key_size, at = _past_octets(data, at, end, -1)
    if at >= 0:
        _, at = _past_octets(data, at, end, -1)
    if at >= 0:
        headers, at = _number_at(data, at, end)
    if headers < 0:
        at = -1
    while headers > 0 and at >= 0:
        _, at = _past_octets(data, at, end, 0)
        if at >= 0:
            _, at = _past_octets(data, at, end, -1)
        headers -= 1
    if at != end:
        return -1, 0, 0
    if delta != number:
        return -2, 0, 0
    return end, time_delta, key_size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def check_all(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, count: cython.Py_ssize_t
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong, cython.longlong, cython.Py_ssize_t]:
    """The byte after the last record, or below 0 as of `_check_record`; how many are whole; the least and the largest timestamp
    delta; which is the first without a key."""
    row: cython.Py_ssize_t = 0
    keyless: cython.Py_ssize_t = -1
    delta: cython.longlong
    key_size: cython.longlong
    least: cython.longlong = 0
    most: cython.longlong = 0
    while row < count:
        at, delta, key_size = _check_record(data, at, size, row)
        if at < 0:
            break
        if row == 0 or delta < least:
            least = delta
        if row == 0 or delta > most:
            most = delta
        if key_size < 0 and keyless < 0:
            keyless = row
        row += 1
    return at, row, least, most, keyless


def check_records(
    data: cython.const[cython.uchar][::1], begin: cython.Py_ssize_t, count: cython.Py_ssize_t
) -> tuple[int, int, int]:
    """Check that the bytes from `begin` on are `count` records, each whole and numbered through from 0, and nothing else. The
    least and the largest timestamp delta, and which record is the first without a key: -1 if all have one."""
    at: cython.Py_ssize_t
    row: cython.Py_ssize_t
    least: cython.longlong
    most: cython.longlong
    keyless: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(data)
    if size - begin > _LONG:
        with cython.nogil:
            at, row, least, most, keyless = check_all(data, begin, size, count)
    else:
        at, row, least, most, keyless = check_all(data, begin, size, count)
    if at == -2:
        raise MalformedRecordsError(f"record {row} of a batch of {count} has another offset in it than {row}")
    if at < 0:
        raise MalformedRecordsError(f"record {row} of a batch of {count} is cut short, or a part of it does not fit into it")
    if at != size:
        raise MalformedRecordsError(f"{size - at} bytes are left over after the last of {count} records of a batch")
    return least, most, keyless
