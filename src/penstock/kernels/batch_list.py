"""A table of a run of stored batches, one row each: what their headers say, and what compaction decides about them."""

from __future__ import annotations

from typing import Final

import cython

from penstock.kernels.record_scan import MalformedRecordsError

COMPILED: Final[bool] = cython.compiled

# The columns of the table of a run. The last three are filled by `sift`, which also updates the latest timestamp.
BATCH_FIELDS: Final = 13
AT, SIZE, BASE_OFFSET, NEXT_OFFSET, ATTRIBUTES, COUNT, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER = range(9)
FATE, NEW_AT, NEW_SIZE, KEPT = range(9, BATCH_FIELDS)
KEEP, DROP, SIFT = range(3)

# The same as numbers of the compiler, for what runs without the interpreter.
_AT = cython.declare(cython.Py_ssize_t, 0)
_SIZE = cython.declare(cython.Py_ssize_t, 1)
_BASE_OFFSET = cython.declare(cython.Py_ssize_t, 2)
_NEXT_OFFSET = cython.declare(cython.Py_ssize_t, 3)
_ATTRIBUTES = cython.declare(cython.Py_ssize_t, 4)
_COUNT = cython.declare(cython.Py_ssize_t, 5)
_BASE_TIMESTAMP = cython.declare(cython.Py_ssize_t, 6)
_MAX_TIMESTAMP = cython.declare(cython.Py_ssize_t, 7)
_PRODUCER = cython.declare(cython.Py_ssize_t, 8)
_FATE = cython.declare(cython.Py_ssize_t, 9)
_NEW_AT = cython.declare(cython.Py_ssize_t, 10)
_NEW_SIZE = cython.declare(cython.Py_ssize_t, 11)
_KEPT = cython.declare(cython.Py_ssize_t, 12)
_SIFT = cython.declare(cython.longlong, 2)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _number(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """The signed big-endian number of so many bytes."""
    value: cython.longlong = data[at]
    each: cython.Py_ssize_t
    if value >= 0x80:
        value -= 0x100
    for each in range(at + 1, at + size):
        value = (value << 8) | data[each]
    return value


@cython.boundscheck(False)
@cython.wraparound(False)
def count_batches(run: cython.const[cython.uchar][::1]) -> int:
    """How many batches a run has."""
    at: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = len(run)
    length: cython.longlong
    while at < size:
        length = _number(run, at + 8, 4) + 12 if size - at >= 61 else 0
        if length < 61 or length > size - at:
            raise MalformedRecordsError(f"the batch at byte {at} of a run of {size} does not end within it")
        at += length
        count += 1
    return count


@cython.boundscheck(False)
@cython.wraparound(False)
def list_batches(run: cython.const[cython.uchar][::1], table: cython.longlong[:, ::1]) -> None:
    """Fill a row for each batch of a run that `count_batches` has gone over; the fate of all is SIFT."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    with cython.nogil:
        for row in range(table.shape[0]):
            table[row, _AT] = at
            table[row, _SIZE] = _number(run, at + 8, 4) + 12
            table[row, _BASE_OFFSET] = _number(run, at, 8)
            table[row, _NEXT_OFFSET] = table[row, _BASE_OFFSET] + _number(run, at + 23, 4) + 1
            table[row, _ATTRIBUTES] = _number(run, at + 21, 2)
            table[row, _COUNT] = _number(run, at + 57, 4)
            table[row, _BASE_TIMESTAMP] = _number(run, at + 27, 8)
            table[row, _MAX_TIMESTAMP] = _number(run, at + 35, 8)
            table[row, _PRODUCER] = _number(run, at + 43, 8)
            table[row, _FATE] = _SIFT
            table[row, _NEW_AT] = table[row, _NEW_SIZE] = table[row, _KEPT] = 0
            at += table[row, _SIZE]
