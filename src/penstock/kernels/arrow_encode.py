"""Rows of Arrow columns to the records of batches, and to the partitions that Kafka's clients would choose for them.

Each function goes over many rows in one call; a column is given as the buffers Arrow keeps it in (see `BinaryColumn`).
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.varints import put_zigzag, zigzag_size
else:
    from penstock.core.varint_buffers import put_zigzag, zigzag_size

COMPILED: Final[bool] = cython.compiled


@cython.cclass
class BinaryColumn:
    """A column of strings or binaries: 4-byte offsets, the bytes, and one validity bit a row (no bits: no nulls). `first` is the
    place of its first row in those buffers."""

    offsets: cython.const[cython.int][::1]
    data: cython.const[cython.uchar][::1]
    validity: cython.const[cython.uchar][::1]
    first: cython.Py_ssize_t
    has_nulls: cython.bint

    def __init__(
        self,
        offsets: cython.const[cython.int][::1],
        data: cython.const[cython.uchar][::1],
        validity: cython.const[cython.uchar][::1],
        first: cython.Py_ssize_t,
    ) -> None:
        self.offsets = offsets
        self.data = data
        self.validity = validity
        self.first = first
        self.has_nulls = len(validity) > 0


@cython.cclass
class HeaderColumn:
    """A column of lists of headers: where the list of each row begins, and the keys and values of all lists one after another.
    A null list is an empty one."""

    offsets: cython.const[cython.int][::1]
    first: cython.Py_ssize_t
    keys: BinaryColumn
    values: BinaryColumn

    def __init__(
        self, offsets: cython.const[cython.int][::1], first: cython.Py_ssize_t, keys: BinaryColumn, values: BinaryColumn
    ) -> None:
        self.offsets = offsets
        self.first = first
        self.keys = keys
        self.values = values


@cython.cclass
class RecordColumns:
    """The columns that records are made of."""

    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumn | None

    def __init__(self, keys: BinaryColumn, values: BinaryColumn, headers: HeaderColumn | None = None) -> None:
        self.keys = keys
        self.values = values
        self.headers = headers


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _size_of(column: BinaryColumn, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The size of a field; -1 if it is null."""
    at: cython.Py_ssize_t = row + column.first
    if column.has_nulls and not (column.validity[at >> 3] >> (at & 7)) & 1:
        return -1
    return cython.cast(cython.Py_ssize_t, column.offsets[at + 1] - column.offsets[at])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_field(out: cython.uchar[::1], at: cython.Py_ssize_t, column: BinaryColumn, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write the length and the bytes of a field; the byte after it."""
    size: cython.Py_ssize_t = _size_of(column, row)
    at = put_zigzag(out, at, size)
    if size <= 0:
        return at
    begin: cython.Py_ssize_t = column.offsets[row + column.first]
    data: cython.const[cython.uchar][::1] = column.data
    index: cython.Py_ssize_t
    for index in range(size):
        out[at + index] = data[begin + index]
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _field_size(column: BinaryColumn, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The bytes of a field with its length."""
    size: cython.Py_ssize_t = _size_of(column, row)
    return zigzag_size(size) + max(size, 0)


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _headers_size(headers: HeaderColumn, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    begin: cython.Py_ssize_t = headers.offsets[row + headers.first]
    end: cython.Py_ssize_t = headers.offsets[row + headers.first + 1]
    size: cython.Py_ssize_t = zigzag_size(end - begin)
    one: cython.Py_ssize_t
    for one in range(begin, end):
        size += _field_size(headers.keys, one) + _field_size(headers.values, one)
    return size


@cython.cfunc
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_headers(
    out: cython.uchar[::1], at: cython.Py_ssize_t, headers: HeaderColumn, row: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    begin: cython.Py_ssize_t = headers.offsets[row + headers.first]
    end: cython.Py_ssize_t = headers.offsets[row + headers.first + 1]
    at = put_zigzag(out, at, end - begin)
    one: cython.Py_ssize_t
    for one in range(begin, end):
        at = _put_field(out, at, headers.keys, one)
        at = _put_field(out, at, headers.values, one)
    return at


@cython.boundscheck(False)
@cython.wraparound(False)
def encode_records(
    columns: RecordColumns, rows: cython.const[cython.longlong][::1], begin: cython.Py_ssize_t, out: cython.uchar[::1]
) -> tuple[int, int]:
    """Write the rows named in `rows` from `begin` on as records, as many as fit into `out`: the index after the last one, and the
    bytes written. Their timestamps are that of the batch."""
    keys: BinaryColumn = columns.keys
    values: BinaryColumn = columns.values
    headers: HeaderColumn | None = columns.headers
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t = begin
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    while index < len(rows):
        row = rows[index]
        size = 2 + zigzag_size(index - begin) + _field_size(keys, row) + _field_size(values, row)
        size += 1 if headers is None else _headers_size(headers, row)
        if at + zigzag_size(size) + size > len(out):
            break
        at = put_zigzag(out, at, size)
        out[at] = 0  # attributes
        out[at + 1] = 0  # timestamp delta
        at = put_zigzag(out, at + 2, index - begin)
        at = _put_field(out, at, keys, row)
        at = _put_field(out, at, values, row)
        if headers is None:
            out[at] = 0
            at += 1
        else:
            at = _put_headers(out, at, headers, row)
        index += 1
    return index, at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _murmur2(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.ulonglong:
    """The hash that Kafka's clients choose a partition by. 64 bits wide, so that plain Python can compute it in the same way."""
    mask: cython.ulonglong = 0xFFFFFFFF
    factor: cython.ulonglong = 0x5BD1E995
    found: cython.ulonglong = (0x9747B28C ^ size) & mask
    part: cython.ulonglong
    while size >= 4:
        part = data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (cython.cast(cython.ulonglong, data[at + 3]) << 24)
        part = (part * factor) & mask
        part = ((part ^ (part >> 24)) * factor) & mask
        found = ((found * factor) & mask) ^ part
        at += 4
        size -= 4
    if size > 0:
        if size == 3:
            found ^= data[at + 2] << 16
        if size >= 2:
            found ^= data[at + 1] << 8
        found = ((found ^ data[at]) * factor) & mask
    found = ((found ^ (found >> 13)) * factor) & mask
    return found ^ (found >> 15)


@cython.boundscheck(False)
@cython.wraparound(False)
def choose_partitions(keys: BinaryColumn, partitions: cython.int, without_key: cython.int, chosen: cython.int[::1]) -> None:
    """The partition of each row by the hash of its key; rows without one go to `without_key`."""
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    for row in range(len(chosen)):
        size = _size_of(keys, row)
        if size < 0:
            chosen[row] = without_key
        else:
            chosen[row] = (_murmur2(keys.data, keys.offsets[row + keys.first], size) & 0x7FFFFFFF) % partitions
