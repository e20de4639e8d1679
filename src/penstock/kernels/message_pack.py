"""Records made into messages of YDB's protocol in one pass, as long as they are plain: nothing in their headers but whose they
are and their number, or no headers at all.

A message is: 08 offset | 10 seqno | 1a created_at | 2a data | 30 size | 3a group | 42 the key, if any, as metadata item __key;
each number as varint, each of the others behind its length. It is put behind 0a and its own length, as a batch has it.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import put_varint, varint_size
else:
    from penstock.core.varint_buffers import put_varint, varint_size

COMPILED: Final[bool] = cython.compiled

# What is told of a pass: the row it stopped at, messages, bytes of keys and data, and whether that row is not plain.
NEXT_ROW, MESSAGES, DATA_BYTES, IS_OTHER = range(4)
OVERHEAD: Final = 112  # a message has at most this many bytes beside its data, its key and the name of its group

# The same as numbers of C, and the columns of a table filled by record_scan.
_NEXT_ROW = cython.declare(cython.Py_ssize_t, 0)
_MESSAGES = cython.declare(cython.Py_ssize_t, 1)
_DATA_BYTES = cython.declare(cython.Py_ssize_t, 2)
_IS_OTHER = cython.declare(cython.Py_ssize_t, 3)
_END = cython.declare(cython.Py_ssize_t, 1)
_TIMESTAMP_DELTA = cython.declare(cython.Py_ssize_t, 2)
_OFFSET_DELTA = cython.declare(cython.Py_ssize_t, 3)
_KEY_AT = cython.declare(cython.Py_ssize_t, 4)
_KEY_SIZE = cython.declare(cython.Py_ssize_t, 5)
_VALUE_AT = cython.declare(cython.Py_ssize_t, 6)
_VALUE_SIZE = cython.declare(cython.Py_ssize_t, 7)
_HEADERS_AT = cython.declare(cython.Py_ssize_t, 8)
_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 19)


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _seqno(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    prefix: cython.const[cython.uchar][::1],
) -> cython.longlong:
    """The number in headers that are `prefix`, its length and its digits, and nothing else; -1 if they are not."""
    size: cython.Py_ssize_t = len(prefix)
    digits: cython.Py_ssize_t
    place: cython.Py_ssize_t
    number: cython.longlong = 0
    if end - at <= size + 1:
        return -1
    for place in range(size):
        if data[at + place] != prefix[place]:
            return -1
    at += size
    digits = data[at] >> 1
    at += 1
    if digits < 1 or digits >= _DIGITS_MAX or at + digits != end:
        return -1
    for place in range(at, end):
        if data[place] < 48 or data[place] > 57:
            return -1
        number = number * 10 + (data[place] - 48)
    return number


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_field(out: cython.uchar[::1], at: cython.Py_ssize_t, tag: cython.uchar, number: cython.ulonglong) -> cython.Py_ssize_t:
    """Write a tag and a varint; the byte after them."""
    out[at] = tag
    return put_varint(out, at + 1, number)


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_message(  # noqa: PLR0917 - a function of C has no keywords
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    offset: cython.longlong,
    seqno: cython.longlong,
    time_ms: cython.longlong,
    value: cython.const[cython.uchar][::1],
    group: cython.const[cython.uchar][::1],
    key_bytes: cython.longlong,
) -> cython.Py_ssize_t:
    """Write a message up to its key, whose item has `key_bytes`; the byte after it."""
    seconds: cython.ulonglong = cython.cast(cython.ulonglong, time_ms // 1000)
    nanos: cython.ulonglong = cython.cast(cython.ulonglong, time_ms % 1000 * 1000000)
    size: cython.Py_ssize_t = len(value)
    group_size: cython.Py_ssize_t = len(group)
    stamp: cython.longlong = 2 + varint_size(seconds) + varint_size(nanos)
    body: cython.longlong = 6 + varint_size(offset) + varint_size(seqno) + stamp + 2 * varint_size(size) + size
    if group_size:
        body += 1 + varint_size(group_size) + group_size
    if key_bytes:
        body += 1 + varint_size(key_bytes) + key_bytes
    at = _put_field(out, at, 0x0A, body)
    at = _put_field(out, at, 0x08, offset)
    at = _put_field(out, at, 0x10, seqno)
    at = _put_field(out, at, 0x1A, stamp)
    at = _put_field(out, at, 0x08, seconds)
    at = _put_field(out, at, 0x10, nanos)
    at = _put_field(out, at, 0x2A, size)
    out[at : at + size] = value
    at = _put_field(out, at + size, 0x30, size)
    if group_size:
        at = _put_field(out, at, 0x3A, group_size)
        out[at : at + group_size] = group
        at += group_size
    return at


@cython.cfunc
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_key(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    key: cython.const[cython.uchar][::1],
    key_item: cython.const[cython.uchar][::1],
) -> cython.Py_ssize_t:
    """Write the metadata item of a key; the byte after it."""
    size: cython.Py_ssize_t = len(key)
    item_size: cython.Py_ssize_t = len(key_item)
    at = _put_field(out, at, 0x42, item_size + varint_size(size) + size)
    out[at : at + item_size] = key_item
    at = put_varint(out, at + item_size, size)
    out[at : at + size] = key
    return at + size


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _number_of(
    data: cython.const[cython.uchar][::1],
    record: cython.longlong[::1],
    prefix: cython.const[cython.uchar][::1],
    first_seqno: cython.longlong,
) -> cython.longlong:
    """The number of a record; -1 if it is not plain."""
    if first_seqno < 0:
        return _seqno(data, record[_HEADERS_AT], record[_END], prefix)
    if record[_END] - record[_HEADERS_AT] == 1 and data[record[_HEADERS_AT]] == 0:
        return first_seqno + record[_OFFSET_DELTA]
    return -1


@cython.boundscheck(False)
@cython.wraparound(False)
def pack_messages(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[:, ::1],
    first_row: cython.Py_ssize_t,
    out: cython.uchar[::1],
    told: cython.longlong[::1],
    *,
    prefix: cython.const[cython.uchar][::1],
    first_seqno: cython.longlong,
    base: cython.longlong[::1],
    group: cython.const[cython.uchar][::1],
    key_item: cython.const[cython.uchar][::1],
    limit: cython.longlong,
) -> int:
    """Put messages of rows from `first_row` on into `out`, as many as have `limit` bytes of keys and data, but at least one; the
    bytes that they take. `base` is the base offset, the base time in milliseconds, 1 or 0 as records have times of their own, and
    the offset before which rows are passed over. Without headers a message has the number `first_seqno` plus its offset delta; if
    that is -1, headers are as `prefix` begins. `key_item` is what stands in a metadata item before the length of a key."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    key_bytes: cython.longlong
    taken: cython.longlong
    offset: cython.longlong
    seqno: cython.longlong
    time_ms: cython.longlong
    told[_MESSAGES] = told[_DATA_BYTES] = told[_IS_OTHER] = 0
    told[_NEXT_ROW] = len(table)
    for row in range(first_row, len(table)):
        offset = base[0] + table[row, _OFFSET_DELTA]
        if offset < base[3]:
            continue
        size = max(table[row, _VALUE_SIZE], 0)
        key_size = table[row, _KEY_SIZE]
        taken = told[_DATA_BYTES] + size + max(key_size, 0)
        seqno = _number_of(data, table[row], prefix, first_seqno)
        time_ms = base[1] + table[row, _TIMESTAMP_DELTA] * base[2]
        if seqno < 0 or time_ms < 0 or (told[_MESSAGES] and taken > limit):
            told[_NEXT_ROW] = row
            told[_IS_OTHER] = seqno < 0 or time_ms < 0
            break
        key_bytes = len(key_item) + varint_size(key_size) + key_size if key_size >= 0 else 0
        value_at, key_at = table[row, _VALUE_AT], table[row, _KEY_AT]
        at = _put_message(out, at, offset, seqno, time_ms, data[value_at : value_at + size], group, key_bytes)
        if key_size >= 0:
            at = _put_key(out, at, data[key_at : key_at + key_size], key_item)
        told[_MESSAGES] += 1
        told[_DATA_BYTES] = taken
    return at
