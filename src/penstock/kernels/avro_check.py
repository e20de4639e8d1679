"""Whether Avro values match their schema: a program, made from the schema, is run over the bytes of each, without an object.

A program is a table of steps, (operation, a, b), in the order in which the parts of a value stand; a record, an item of an array
and a branch of a union are runs of steps that end with RETURN. Calls are kept in a table of bounded depth, so neither a value nor
a schema that leads to itself goes deeper than that, and every byte that is read is before the end of the value.
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

# Operations. A run of steps whose values take no bytes is not called: its place is -1.
RETURN, BOOLEAN, INT, LONG, RAW, BYTES, STRING, ENUM, UNION, RECORD, ARRAY, MAP = range(12)
# Of each step: RAW: a bytes as they are. ENUM: a symbols. UNION: a branches, whose runs are listed from b on. RECORD, ARRAY and
# MAP: the run at a, of the fields, an item or a value.
STEP_FIELDS: Final = 3

# Why a value does not match.
MATCHES, TOO_SHORT, TOO_LONG, NO_BOOLEAN, NO_INT, BAD_LENGTH, NO_TEXT, NO_SYMBOL, NO_BRANCH, TOO_DEEP, BAD_BLOCK = range(11)

# A call: the step it came from, what is left of the block of an array or map, and where that block ends, or -1.
CALL_FIELDS: Final = 3

# A row of the table of payloads that kernels.schema_ids fills.
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, 2)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, 3)

_RETURN = cython.declare(cython.longlong, 0)
_BOOLEAN = cython.declare(cython.longlong, 1)
_INT = cython.declare(cython.longlong, 2)
_LONG = cython.declare(cython.longlong, 3)
_RAW = cython.declare(cython.longlong, 4)
_BYTES = cython.declare(cython.longlong, 5)
_STRING = cython.declare(cython.longlong, 6)
_ENUM = cython.declare(cython.longlong, 7)
_UNION = cython.declare(cython.longlong, 8)
_RECORD = cython.declare(cython.longlong, 9)
_MAP = cython.declare(cython.longlong, 11)

_MATCHES = cython.declare(cython.int, 0)
_TOO_SHORT = cython.declare(cython.int, 1)
_TOO_LONG = cython.declare(cython.int, 2)
_NO_BOOLEAN = cython.declare(cython.int, 3)
_NO_INT = cython.declare(cython.int, 4)
_BAD_LENGTH = cython.declare(cython.int, 5)
_NO_TEXT = cython.declare(cython.int, 6)
_NO_SYMBOL = cython.declare(cython.int, 7)
_NO_BRANCH = cython.declare(cython.int, 8)
_TOO_DEEP = cython.declare(cython.int, 9)
_BAD_BLOCK = cython.declare(cython.int, 10)
# In a block of items that take no bytes: no value needs more, and readers make a list of them.
_EMPTY_ITEMS_MAX = cython.declare(cython.longlong, 1 << 20)
_COUNT_MAX = cython.declare(cython.longlong, 1 << 62)
_HIGH_BITS = cython.declare(cython.ulonglong, 0x8080808080808080)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _is_text(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Whether bytes are UTF-8, as strictly as Python's decoder has it: no surrogates, and no number in more bytes than needed."""
    first: cython.uchar
    least: cython.uchar
    most: cython.uchar
    more: cython.Py_ssize_t
    word: cython.ulonglong = 0
    while at < end:
        if cython.compiled and end - at >= 8:
            memcpy(cython.address(word), cython.address(data[at]), 8)
            if not word & _HIGH_BITS:
                at += 8
                continue
        first = data[at]
        at += 1
        if first < 0x80:
            continue
        least, most = 0x80, 0xBF  # of the second byte
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            least = 0xA0 if first == 0xE0 else 0x80
            most = 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            more = 3
            least = 0x90 if first == 0xF0 else 0x80
            most = 0x8F if first == 0xF4 else 0xBF
        else:
            return False
        if more > end - at or data[at] < least or data[at] > most:
            return False
        at += 1
        while more > 1:
            if data[at] & 0xC0 != 0x80:
                return False
            at += 1
            more -= 1
    return True


@cython.final
@cython.cclass
class AvroProgram:
    """The steps of a schema, from 0 on, and the runs of all branches of its unions."""

    _steps: cython.const[cython.longlong][:, ::1]
    _branches: cython.const[cython.longlong][::1]

    def __init__(self, steps, branches) -> None:  # type: ignore[no-untyped-def]
        self._steps = steps
        self._branches = branches

    def find_invalid(
        self,
        data: cython.const[cython.uchar][::1],
        payloads: cython.const[cython.longlong][:, ::1],
        first: cython.Py_ssize_t,
        calls: cython.longlong[:, ::1],
    ) -> tuple[int, int, int, list[int]]:
        """The first of some payloads, from the one numbered `first` on, that does not match: its number, -1 if there is none; why
        not; at which of its bytes; and the steps that lead there, the outermost first. `calls` is room for as many calls as a
        value may be deep."""
        number: cython.Py_ssize_t = first
        count: cython.Py_ssize_t = payloads.shape[0]
        reason: cython.int = _MATCHES
        at: cython.Py_ssize_t = 0
        step: cython.Py_ssize_t = 0
        depth: cython.Py_ssize_t = 0
        with cython.nogil:
            while number < count:
                at = payloads[number, _PAYLOAD_AT]
                reason, at, step, depth = self._run(data, at, at + payloads[number, _PAYLOAD_SIZE], calls)
                if reason != _MATCHES:
                    break
                number += 1
        if reason == _MATCHES:
            return -1, MATCHES, 0, []
        return number, reason, at - payloads[number, _PAYLOAD_AT], [*(calls[level, 0] for level in range(depth)), step]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _run(
        self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, calls: cython.longlong[:, ::1]
    ) -> tuple[cython.int, cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t]:
        """Run the program over one value: MATCHES, or why it does not, at which byte, in which step, and how deep in calls."""
        step: cython.Py_ssize_t = 0
        depth: cython.Py_ssize_t = 0
        depth_max: cython.Py_ssize_t = calls.shape[0]
        operation: cython.longlong
        called: cython.longlong
        reason: cython.int = _MATCHES
        while reason == _MATCHES:
            operation = self._steps[step, 0]
            if operation < _UNION and operation != _RETURN:
                reason, at = self._check_plain(step, data, at, end)
                step += reason == _MATCHES
                continue
            if operation == _RETURN:
                if depth == 0:
                    return (_MATCHES if at == end else _TOO_LONG), at, step, 0
                depth -= 1
                step = calls[depth, 0]
                operation = self._steps[step, 0]
                if operation in (_UNION, _RECORD):
                    step += 1
                    continue
                calls[depth, 1] -= 1
            else:
                called = self._steps[step, 1]
                if operation == _UNION:
                    reason, at, called = self._branch(step, data, at, end)
                    if reason != _MATCHES or called < 0:
                        step += reason == _MATCHES
                        continue
                if depth == depth_max:
                    return _TOO_DEEP, at, step, depth
                calls[depth, 0], calls[depth, 1], calls[depth, 2] = step, 0, -1
                if operation in (_UNION, _RECORD):
                    depth += 1
                    step = called
                    continue
            # The next item of an array or map, or what comes after it.
            reason, at = self._next_item(step, data, at, end, calls, depth)
            if reason == _MATCHES and calls[depth, 1]:
                depth += 1
                step = self._steps[step, 1]
            else:
                step += reason == _MATCHES
        return reason, at, step, depth

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _branch(
        self, step: cython.Py_ssize_t, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> tuple[cython.int, cython.Py_ssize_t, cython.longlong]:
        """Read which branch of a union is taken: the run of its steps, -1 if it takes no bytes."""
        number: cython.longlong
        number, at = zigzag_at(data, at, end)
        if at < 0:
            return _TOO_SHORT, end, -1
        if number < 0 or number >= self._steps[step, 1]:
            return _NO_BRANCH, at, -1
        return _MATCHES, at, self._branches[self._steps[step, 2] + number]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _next_item(  # noqa: PLR0917 - called for every item
        self,
        step: cython.Py_ssize_t,
        data: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        calls: cython.longlong[:, ::1],
        call: cython.Py_ssize_t,
    ) -> tuple[cython.int, cython.Py_ssize_t]:
        """Read up to the next item, with the key that it has in a map, or to the end of all blocks, which leaves 0 items."""
        count: cython.longlong
        size: cython.longlong
        reason: cython.int
        is_map: cython.bint = self._steps[step, 0] == _MAP
        while not calls[call, 1]:
            if calls[call, 2] >= 0 and calls[call, 2] != at:
                return _BAD_BLOCK, at
            calls[call, 2] = -1
            count, at = zigzag_at(data, at, end)
            if at < 0:
                return _TOO_SHORT, end
            if count == 0:
                return _MATCHES, at
            if count < 0:
                if count < -_COUNT_MAX:
                    return _BAD_BLOCK, at
                count = -count
                size, at = zigzag_at(data, at, end)
                if at < 0:
                    return _TOO_SHORT, end
                if size < 0 or size > end - at:
                    return _BAD_BLOCK, at
                calls[call, 2] = at + size
            if not is_map and self._steps[step, 1] < 0:
                if count > _EMPTY_ITEMS_MAX:
                    return _BAD_BLOCK, at
            elif count > end - at:
                return _TOO_SHORT, at  # each takes at least a byte
            elif self._steps[step, 1] >= 0:
                calls[call, 1] = count
            else:
                while count:
                    reason, at = _check_octets(data, at, end, True)
                    if reason != _MATCHES:
                        return reason, at
                    count -= 1
        return _check_octets(data, at, end, True) if is_map else (_MATCHES, at)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _check_plain(
        self, step: cython.Py_ssize_t, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> tuple[cython.int, cython.Py_ssize_t]:
        """Check a part that has no parts."""
        operation: cython.longlong = self._steps[step, 0]
        number: cython.longlong
        if operation in (_STRING, _BYTES):
            return _check_octets(data, at, end, operation == _STRING)
        if operation == _RAW:
            if self._steps[step, 1] > end - at:
                return _TOO_SHORT, end
            return _MATCHES, at + self._steps[step, 1]
        if operation == _BOOLEAN:
            if at >= end:
                return _TOO_SHORT, end
            return (_MATCHES if data[at] <= 1 else _NO_BOOLEAN), at + 1
        number, at = zigzag_at(data, at, end)
        if at < 0:
            return _TOO_SHORT, end
        if operation == _INT and (number < -0x80000000 or number > 0x7FFFFFFF):
            return _NO_INT, at
        if operation == _ENUM and (number < 0 or number >= self._steps[step, 1]):
            return _NO_SYMBOL, at
        return _MATCHES, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _check_octets(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, is_text: cython.bint
) -> tuple[cython.int, cython.Py_ssize_t]:
    """Check a length and as many bytes."""
    size: cython.longlong
    size, at = zigzag_at(data, at, end)
    if at < 0:
        return _TOO_SHORT, end
    if size < 0:
        return _BAD_LENGTH, at
    if size > end - at:
        return _TOO_SHORT, end
    if is_text and not _is_text(data, at, at + size):
        return _NO_TEXT, at
    return _MATCHES, at + size
