"""Avro values into the buffers of Arrow columns: a small program, made from the schema, is run over each of many values.

A program is a table of steps, (operation, column, a, b), in the order in which the parts of a value stand. NULLABLE reads which
branch of a union is taken; if it is null, the next `b` steps are not run and their columns get null.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.penstock.kernels.varints import zigzag_at
else:
    from penstock.core.varint_buffers import zigzag_at

COMPILED: Final[bool] = cython.compiled

# Operations: b is unused unless said otherwise.
NULLABLE: Final = 0  # a: the branch that is null; b: steps to skip; column: validity of a record, or -1
BOOLEAN: Final = 1
INTEGER: Final = 2  # a: what to multiply with; b: 1 if it must fit 32 bits
RAW: Final = 3  # a: bytes to copy as they are
OCTETS: Final = 4  # a length, then bytes
FIXED: Final = 5  # a: bytes, into a column of strings
ENUM: Final = 6  # a: the first of its symbols; b: how many it has
FIELDS: Final = 4

# Widths of columns that do not have a fixed number of bytes a row.
STRINGS: Final = -1
BITS: Final = -2
NO_DATA: Final = -3


@cython.final
@cython.cclass
class AvroColumn:
    """Memory for one column: `width` bytes a row, or strings with `offsets`, or bits, or only the bits that say what is null.
    There must be room for as many rows, and bytes of strings, as the values can make."""

    width: cython.int
    data: cython.uchar[::1]
    offsets: cython.int[::1]
    validity: cython.uchar[::1]
    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    used = cython.declare(cython.Py_ssize_t, visibility="readonly")
    nulls = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(self, width, validity, data, offsets) -> None:  # type: ignore[no-untyped-def]
        self.width = width
        self.validity, self.data, self.offsets = validity, data, offsets
        self.rows = self.used = self.nulls = 0
        self.offsets[0] = 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def end_row(self, valid: cython.bint) -> cython.void:
        """Count the row whose content, if it has any, has been written."""
        if valid:
            self.validity[self.rows >> 3] |= 1 << (self.rows & 7)
        else:
            self.nulls += 1
            if self.width > 0:
                self.used += self.width
        self.rows += 1
        if self.width == STRINGS:
            self.offsets[self.rows] = cython.cast(cython.int, self.used)

    @cython.cfunc
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def take_back(self, rows: cython.Py_ssize_t) -> cython.void:
        """Forget the row after the first `rows`, if there is one."""
        if self.rows == rows:
            return
        self.rows = rows
        bit: cython.int = 1 << (rows & 7)
        if self.validity[rows >> 3] & bit:
            self.validity[rows >> 3] ^= bit
        else:
            self.nulls -= 1
        if self.width == STRINGS:
            self.used = self.offsets[rows]
        elif self.width == BITS:
            self.data[rows >> 3] &= 255 - bit
        elif self.width > 0:
            self.used = rows * self.width

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def put_integer(self, value: cython.longlong) -> cython.void:
        """A number in as many bytes as the column is wide."""
        byte: cython.int
        for byte in range(self.width):
            self.data[self.used + byte] = cython.cast(cython.uchar, (value >> (8 * byte)) & 0xFF)
        self.used += self.width

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def put(self, source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.void:
        """Some bytes as they are."""
        if size > 0:
            if cython.compiled:
                memcpy(cython.address(self.data[self.used]), cython.address(source[at]), size)
            else:
                self.data[self.used : self.used + size] = source[at : at + size]
            self.used += size


@cython.final
@cython.cclass
class AvroDecoder:
    """Runs a program over values. `symbols` are those of all enums, one after another; `symbol_starts` says where each begins."""

    _steps: cython.const[cython.longlong][:, ::1]
    _columns: list
    _symbols: cython.const[cython.uchar][::1]
    _symbol_starts: cython.const[cython.int][::1]

    def __init__(self, steps, columns, symbols, symbol_starts) -> None:  # type: ignore[no-untyped-def]
        self._steps = steps
        self._columns = list(columns)
        self._symbols = memoryview(symbols)
        self._symbol_starts = symbol_starts

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def decode(
        self,
        data: cython.const[cython.uchar][::1],
        starts: cython.const[cython.int][::1],
        validity: cython.uchar[::1],
    ) -> cython.Py_ssize_t:
        """One row of every column for each value between two of `starts`. `validity` says which are there; values that are
        malformed are taken out of it. Returns the first malformed one, or -1."""
        row: cython.Py_ssize_t
        first: cython.Py_ssize_t = -1
        bit: cython.int
        column: AvroColumn
        for row in range(len(starts) - 1):
            bit = 1 << (row & 7)
            if validity[row >> 3] & bit:
                if self._run(data, starts[row], starts[row + 1]):
                    continue
                validity[row >> 3] ^= bit
                first = row if first < 0 else first
            for column in self._columns:
                column.take_back(row)
                column.end_row(False)
        return first

    @cython.cfunc
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _run(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """One value; False if it is malformed, with some columns a row ahead."""
        step: cython.Py_ssize_t = 0
        skipped: cython.Py_ssize_t
        number: cython.longlong
        column: AvroColumn
        while step < len(self._steps):
            if self._steps[step, 0] == NULLABLE:
                number, at = zigzag_at(data, at, end)
                if at < 0 or number < 0 or number > 1:
                    return False
                if number == self._steps[step, 2]:
                    for skipped in range(step, step + 1 + self._steps[step, 3]):
                        if self._steps[skipped, 1] >= 0:
                            column = self._columns[self._steps[skipped, 1]]
                            column.end_row(False)
                    step += self._steps[step, 3]
                elif self._steps[step, 1] >= 0:
                    column = self._columns[self._steps[step, 1]]
                    column.end_row(True)
            else:
                at = self._read(step, data, at, end)
                if at < 0:
                    return False
            step += 1
        return at == end

    @cython.cfunc
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _read(
        self, step: cython.Py_ssize_t, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """One part of a value; the byte after it, or -1 if it is malformed."""
        operation: cython.longlong = self._steps[step, 0]
        a: cython.longlong = self._steps[step, 2]
        b: cython.longlong = self._steps[step, 3]
        column: AvroColumn = self._columns[self._steps[step, 1]]
        number: cython.longlong = a
        if operation in (INTEGER, OCTETS, ENUM):
            number, at = zigzag_at(data, at, end)
            if at < 0:
                return -1
        if operation == INTEGER:
            if b and not -0x80000000 <= number <= 0x7FFFFFFF:
                return -1
            if a != 1 and not -9223372036854775 <= number <= 9223372036854775:
                return -1
            column.put_integer(number * a)
        elif operation == ENUM:
            if number < 0 or number >= b:
                return -1
            number += a
            column.put(self._symbols, self._symbol_starts[number], self._symbol_starts[number + 1] - self._symbol_starts[number])
        elif operation == BOOLEAN:
            if at >= end or data[at] > 1:
                return -1
            column.data[column.rows >> 3] |= data[at] << (column.rows & 7)
            at += 1
        else:
            if number < 0 or number > end - at:
                return -1
            column.put(data, at, number)
            at += number
        column.end_row(True)
        return at
