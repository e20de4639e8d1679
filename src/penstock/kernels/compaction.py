"""The loops of log compaction: which keys a run of batches has, which records later ones supersede, and what is left of the run.

A *run* is stored batches one after another, uncompressed. `list_batches` gives it a table with a row for each batch; the caller
decides the fate of whole batches there, and `sift` that of single records. What is known of keys is a map of fixed size: rows of
`slots`, each a digest of 16 bytes and the offset after that of the key's latest record, 0 in a row that is free. The digest is
SipHash-2-4 with a secret that the caller draws anew for every map, so that no two keys meet in it by chance or by intent.
"""

from __future__ import annotations

from typing import Final

import cython

from penstock.kernels.record_scan import MalformedRecordsError

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED: Final[bool] = cython.compiled

SLOT_FIELDS: Final = 3

# The columns of the table of a run. The last three are filled by `sift`, which also sets the latest timestamp anew.
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
_KEEP = cython.declare(cython.longlong, 0)
_SIFT = cython.declare(cython.longlong, 2)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_APPEND_TIME = cython.declare(cython.longlong, 0x08)
_CODEC_BYTE = cython.declare(cython.Py_ssize_t, 22)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
# What SipHash starts from.
_START_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
_START_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
_START_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
_START_3 = cython.declare(cython.ulonglong, 0x7465646279746573)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _varint(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The number that begins here and the byte after it, which is -1 if the number does not end before `end`."""
    value: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.ulonglong
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= _WORD  # what a C integer does by itself
            return cython.cast(cython.longlong, value >> 1) ^ -cython.cast(cython.longlong, value & 1), at
        shift += 7
    return 0, -1


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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_number(out: cython.uchar[::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    """Write a signed big-endian number of so many bytes."""
    each: cython.Py_ssize_t
    for each in range(at + size - 1, at - 1, -1):
        out[each] = value & 0xFF
        value >>= 8


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _copy(
    out: cython.uchar[::1],
    to: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    begin: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.void:
    if end > begin:
        if cython.compiled:
            memcpy(cython.address(out[to]), cython.address(data[begin]), end - begin)
        else:
            out[to : to + end - begin] = data[begin:end]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rounds(
    times: cython.int, a: cython.ulonglong, b: cython.ulonglong, c: cython.ulonglong, d: cython.ulonglong
) -> tuple[cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong]:
    """So many rounds of SipHash. What is cut off by `_WORD` a C integer loses by itself."""
    for _ in range(times):
        a = (a + b) & _WORD
        b = (((b << 13) | (b >> 51)) & _WORD) ^ a
        a = ((a << 32) | (a >> 32)) & _WORD
        c = (c + d) & _WORD
        d = (((d << 16) | (d >> 48)) & _WORD) ^ c
        a = (a + d) & _WORD
        d = (((d << 21) | (d >> 43)) & _WORD) ^ a
        c = (c + b) & _WORD
        b = (((b << 17) | (b >> 47)) & _WORD) ^ c
        c = ((c << 32) | (c >> 32)) & _WORD
    return a, b, c, d


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _digest(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    k0: cython.ulonglong,
    k1: cython.ulonglong,
) -> tuple[cython.ulonglong, cython.ulonglong]:
    """SipHash-2-4 of 128 bits."""
    a: cython.ulonglong = k0 ^ _START_0
    b: cython.ulonglong = k1 ^ _START_1 ^ 0xEE
    c: cython.ulonglong = k0 ^ _START_2
    d: cython.ulonglong = k1 ^ _START_3
    word: cython.ulonglong
    first: cython.ulonglong
    step: cython.Py_ssize_t
    whole: cython.Py_ssize_t = size - size % 8
    begin: cython.Py_ssize_t
    for begin in range(at, at + whole, 8):
        word = 0
        for step in range(8):
            word |= cython.cast(cython.ulonglong, data[begin + step]) << (8 * step)
        d ^= word
        a, b, c, d = _rounds(2, a, b, c, d)
        a ^= word
    word = cython.cast(cython.ulonglong, size & 0xFF) << 56
    for step in range(size - whole):
        word |= cython.cast(cython.ulonglong, data[at + whole + step]) << (8 * step)
    d ^= word
    a, b, c, d = _rounds(2, a, b, c, d)
    a ^= word
    c ^= 0xEE
    a, b, c, d = _rounds(4, a, b, c, d)
    first = a ^ b ^ c ^ d
    b ^= 0xDD
    a, b, c, d = _rounds(4, a, b, c, d)
    return first, a ^ b ^ c ^ d


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _slot_of(slots: cython.ulonglong[:, ::1], first: cython.ulonglong, second: cython.ulonglong) -> cython.Py_ssize_t:
    """The slot of a digest: the one it is in, or the free one it would take. There is always a free one."""
    count: cython.Py_ssize_t = slots.shape[0]
    at: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, first % cython.cast(cython.ulonglong, count))
    while slots[at, 2] != 0 and (slots[at, 0] != first or slots[at, 1] != second):
        at += 1
        if at == count:
            at = 0
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _record(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> tuple[cython.Py_ssize_t, cython.longlong, cython.longlong, cython.Py_ssize_t, cython.longlong, cython.longlong]:
    """The end of the record that begins here, its timestamp delta, offset delta, where its key is and how long, and how long its
    value is. The end is -1 if the record does not fit."""
    length: cython.longlong
    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    key_size: cython.longlong
    value_size: cython.longlong
    key_at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    length, at = _varint(data, at, limit)
    if at < 0 or length < 1 or length > limit - at:
        return -1, 0, 0, 0, 0, 0
    end = at + length
    timestamp_delta, at = _varint(data, at + 1, end)
    if at < 0:
        return -1, 0, 0, 0, 0, 0
    offset_delta, at = _varint(data, at, end)
    if at < 0:
        return -1, 0, 0, 0, 0, 0
    key_size, key_at = _varint(data, at, end)
    if key_at < 0 or key_size < -1 or key_size > end - key_at:
        return -1, 0, 0, 0, 0, 0
    at = key_at
    if key_size > 0:
        at += key_size
    value_size, at = _varint(data, at, end)
    if at < 0 or value_size < -1 or value_size > end - at:
        return -1, 0, 0, 0, 0, 0
    return end, timestamp_delta, offset_delta, key_at, key_size, value_size


@cython.boundscheck(False)
@cython.wraparound(False)
def first_keyless(data: cython.const[cython.uchar][::1], count: cython.Py_ssize_t) -> int:
    """Which of the records in `data` is the first without a key; -1 if all `count` have one."""
    at: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    found: cython.Py_ssize_t = -1
    key_size: cython.longlong
    size: cython.Py_ssize_t = len(data)
    with cython.nogil:
        for row in range(count):
            at, _, _, _, key_size, _ = _record(data, at, size)
            if at < 0:
                break
            if key_size < 0:
                found = row
                break
    if at < 0:
        raise MalformedRecordsError(f"record {row} of a batch is cut short or longer than the batch")
    return found


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


@cython.boundscheck(False)
@cython.wraparound(False)
def note_keys(
    run: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][:, ::1],
    from_offset: cython.longlong,
    secret: tuple[int, int],
    slots: cython.ulonglong[:, ::1],
    used: cython.Py_ssize_t,
    used_max: cython.Py_ssize_t,
) -> tuple[int, int]:
    """Put the keys of the batches to sift into the map, of records from an offset on. How many slots are used now, and the
    offset of the first record that found no room; -1 if all did."""
    row: cython.Py_ssize_t
    each: cython.longlong
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    key_size: cython.longlong
    delta: cython.longlong
    offset: cython.longlong
    first: cython.ulonglong
    second: cython.ulonglong
    slot: cython.Py_ssize_t
    k0: cython.ulonglong = secret[0]
    k1: cython.ulonglong = secret[1]
    full_at: cython.longlong = -1
    with cython.nogil:
        for row in range(table.shape[0]):
            if table[row, _FATE] != _SIFT or table[row, _NEXT_OFFSET] <= from_offset:
                continue
            at = table[row, _AT] + _HEADER_SIZE
            end = table[row, _AT] + table[row, _SIZE]
            for each in range(table[row, _COUNT]):
                at, _, delta, key_at, key_size, _ = _record(run, at, end)
                if at < 0:
                    break
                offset = table[row, _BASE_OFFSET] + delta
                if key_size < 0 or offset < from_offset:
                    continue
                first, second = _digest(run, key_at, key_size, k0, k1)
                slot = _slot_of(slots, first, second)
                if slots[slot, 2] == 0:
                    if used == used_max:
                        full_at = offset
                        break
                    used += 1
                    slots[slot, 0] = first
                    slots[slot, 1] = second
                slots[slot, 2] = cython.cast(cython.ulonglong, offset + 1)
            if at < 0 or full_at >= 0:
                break
    if at < 0:
        raise MalformedRecordsError(f"the records of the batch at offset {table[row, _BASE_OFFSET]} are not what its header says")
    return used, full_at


@cython.boundscheck(False)
@cython.wraparound(False)
def sift(
    run: cython.const[cython.uchar][::1],
    table: cython.longlong[:, ::1],
    secret: tuple[int, int],
    slots: cython.ulonglong[:, ::1],
    noted_to: cython.longlong,
    tombstones_to: cython.longlong,
    husk_row: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> tuple[int, int]:
    """Copy what is left of a run to `out`, which is as long as the run: of batches to sift, all records but those that a later
    one of their key before `noted_to` supersedes, and tombstones before `tombstones_to`. The batch of `husk_row` stays as a
    header if none of its records do. How many bytes are left, and how many tombstones. Checksums are not set."""
    row: cython.Py_ssize_t
    each: cython.longlong
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    kept_from: cython.Py_ssize_t
    batch_to: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    key_at: cython.Py_ssize_t
    key_size: cython.longlong
    value_size: cython.longlong
    delta: cython.longlong
    timestamp_delta: cython.longlong
    latest: cython.longlong
    offset: cython.longlong
    kept: cython.longlong
    tombstones: cython.longlong = 0
    is_kept: cython.bint
    first: cython.ulonglong
    second: cython.ulonglong
    slot: cython.Py_ssize_t
    k0: cython.ulonglong = secret[0]
    k1: cython.ulonglong = secret[1]
    with cython.nogil:
        for row in range(table.shape[0]):
            begin = table[row, _AT]
            end = begin + table[row, _SIZE]
            table[row, _NEW_AT] = to
            kept = 0
            if table[row, _FATE] == _KEEP:
                _copy(out, to, run, begin, end)
                to += table[row, _SIZE]
                table[row, _NEW_SIZE] = table[row, _SIZE]
                table[row, _KEPT] = table[row, _COUNT]
                continue
            if table[row, _FATE] == _SIFT:
                batch_to = to
                to += _HEADER_SIZE
                at = kept_from = begin + _HEADER_SIZE
                latest = -1
                for each in range(table[row, _COUNT]):
                    begin = at
                    at, timestamp_delta, delta, key_at, key_size, value_size = _record(run, at, end)
                    if at < 0:
                        break
                    offset = table[row, _BASE_OFFSET] + delta
                    is_kept = True
                    if key_size >= 0 and offset < noted_to:
                        first, second = _digest(run, key_at, key_size, k0, k1)
                        slot = _slot_of(slots, first, second)
                        # A free slot says 0: nothing later is known of the key.
                        is_kept = slots[slot, 2] <= cython.cast(cython.ulonglong, offset + 1)
                        if value_size < 0 and offset < tombstones_to:
                            is_kept = False
                    if is_kept:
                        kept += 1
                        if value_size < 0 and key_size >= 0:
                            tombstones += 1
                        latest = max(latest, table[row, _BASE_TIMESTAMP] + timestamp_delta)
                    else:
                        # What is kept stands in stretches, each copied at once.
                        _copy(out, to, run, kept_from, begin)
                        to += begin - kept_from
                        kept_from = at
                if at < 0:
                    break
                begin = table[row, _AT]
                table[row, _KEPT] = kept
                if kept == table[row, _COUNT] and kept > 0:
                    _copy(out, batch_to, run, begin, end)
                    to = batch_to + table[row, _SIZE]
                    table[row, _NEW_SIZE] = table[row, _SIZE]
                    continue
                if kept > 0:
                    _copy(out, to, run, kept_from, end)
                    to += end - kept_from
                    _copy(out, batch_to, run, begin, begin + _HEADER_SIZE)
                    if not table[row, _ATTRIBUTES] & _APPEND_TIME:
                        table[row, _MAX_TIMESTAMP] = latest
                    table[row, _NEW_SIZE] = to - batch_to
                    _put_number(out, batch_to + 8, 4, to - batch_to - 12)
                    _put_number(out, batch_to + 35, 8, table[row, _MAX_TIMESTAMP])
                    _put_number(out, batch_to + 57, 4, kept)
                    continue
                to = batch_to
            table[row, _KEPT] = 0
            table[row, _NEW_SIZE] = 0
            table[row, _MAX_TIMESTAMP] = -1
            if row == husk_row:
                _copy(out, to, run, begin, begin + _HEADER_SIZE)
                out[to + _CODEC_BYTE] &= 0xF8
                _put_number(out, to + 8, 4, _HEADER_SIZE - 12)
                _put_number(out, to + 35, 8, -1)
                _put_number(out, to + 57, 4, 0)
                table[row, _NEW_SIZE] = _HEADER_SIZE
                to += _HEADER_SIZE
    if at < 0:
        raise MalformedRecordsError(f"the records of the batch at offset {table[row, _BASE_OFFSET]} are not what its header says")
    return to, tombstones


@cython.boundscheck(False)
@cython.wraparound(False)
def digest(data: cython.const[cython.uchar][::1], secret: tuple[int, int]) -> tuple[int, int]:
    """The digest of a key, as the map has it."""
    first: cython.ulonglong
    second: cython.ulonglong
    first, second = _digest(data, 0, len(data), secret[0], secret[1])
    return first, second
