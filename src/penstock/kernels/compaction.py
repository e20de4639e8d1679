"""The loops of log compaction: which keys a run of batches has, which records later ones supersede, and what is left of the run.

A *run* is stored batches one after another, uncompressed. In its table (see batch_list.py) the caller decides the fate of whole
batches, and `sift` that of single records. What is known of keys is a map of fixed size: rows of
`slots`, each a digest of 16 bytes and the offset after that of the key's latest record, 0 in a row that is free. The digest is
SipHash-2-4 with a secret that the caller draws for every map, so that keys do not collide, by chance or by intent.
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

SLOT_FIELDS: Final = 3

# The columns of the table of a run, as numbers of the compiler, for what runs without the interpreter (see batch_list.py).
_AT = cython.declare(cython.Py_ssize_t, 0)
_SIZE = cython.declare(cython.Py_ssize_t, 1)
_BASE_OFFSET = cython.declare(cython.Py_ssize_t, 2)
_NEXT_OFFSET = cython.declare(cython.Py_ssize_t, 3)
_ATTRIBUTES = cython.declare(cython.Py_ssize_t, 4)
_COUNT = cython.declare(cython.Py_ssize_t, 5)
_BASE_TIMESTAMP = cython.declare(cython.Py_ssize_t, 6)
_MAX_TIMESTAMP = cython.declare(cython.Py_ssize_t, 7)
_FATE = cython.declare(cython.Py_ssize_t, 9)
_NEW_AT = cython.declare(cython.Py_ssize_t, 10)
_NEW_SIZE = cython.declare(cython.Py_ssize_t, 11)
_KEPT = cython.declare(cython.Py_ssize_t, 12)
_KEEP = cython.declare(cython.longlong, 0)
_SIFT = cython.declare(cython.longlong, 2)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_TIME_MAX = cython.declare(cython.longlong, 1 << 61)  # two of them are still a number of 64 bits
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


@cython.final
@cython.cclass
class KeySlots:
    """The map of keys, in memory that its caller has set aside: `slots` for more keys than it may have, all zero."""

    slots: cython.ulonglong[:, ::1]
    k0: cython.ulonglong
    k1: cython.ulonglong
    noted_to: cython.longlong
    tombstones_to: cython.longlong
    used = cython.declare(cython.Py_ssize_t, visibility="readonly")
    used_max = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(self, slots, secret, used_max) -> None:  # type: ignore[no-untyped-def]
        self.slots = slots
        self.k0, self.k1 = secret
        self.noted_to = self.tombstones_to = 0
        self.used = 0
        self.used_max = min(used_max, len(slots) - 1)  # one is always free: there the search for a key ends

    def bound(self, noted_to: cython.longlong, tombstones_to: cython.longlong) -> None:
        """From one offset on the map knows of no record, and tombstones go before the other."""
        self.noted_to = noted_to
        self.tombstones_to = tombstones_to

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _slot_of(self, first: cython.ulonglong, second: cython.ulonglong) -> cython.Py_ssize_t:
        """The slot of a digest: the one it is in, or the free one it would take."""
        count: cython.Py_ssize_t = self.slots.shape[0]
        at: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, first % cython.cast(cython.ulonglong, count))
        while self.slots[at, 2] != 0 and (self.slots[at, 0] != first or self.slots[at, 1] != second):
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
    def _put(
        self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, offset: cython.longlong
    ) -> cython.bint:
        """The latest record of this key is at `offset`; False if there is no room for it."""
        first: cython.ulonglong
        second: cython.ulonglong
        first, second = _digest(data, at, size, self.k0, self.k1)
        slot: cython.Py_ssize_t = self._slot_of(first, second)
        if self.slots[slot, 2] == 0:
            if self.used >= self.used_max:
                return False
            self.used += 1
            self.slots[slot, 0] = first
            self.slots[slot, 1] = second
        self.slots[slot, 2] = cython.cast(cython.ulonglong, offset + 1)
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _supersedes(
        self,
        data: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        offset: cython.longlong,
        is_tombstone: cython.bint,
    ) -> cython.bint:
        """Whether a record goes: a later one of its key is known, or it is a tombstone that has stayed for long enough."""
        first: cython.ulonglong
        second: cython.ulonglong
        if offset >= self.noted_to:
            return False
        if is_tombstone and offset < self.tombstones_to:
            return True
        first, second = _digest(data, at, size, self.k0, self.k1)
        # A free slot says 0.
        return self.slots[self._slot_of(first, second), 2] > cython.cast(cython.ulonglong, offset + 1)


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
    length, at = zigzag_at(data, at, limit)
    if at < 0 or length < 1 or length > limit - at:
        return -1, 0, 0, 0, 0, 0
    end = at + length
    timestamp_delta, at = zigzag_at(data, at + 1, end)
    if at < 0:
        return -1, 0, 0, 0, 0, 0
    offset_delta, at = zigzag_at(data, at, end)
    if at < 0:
        return -1, 0, 0, 0, 0, 0
    key_size, key_at = zigzag_at(data, at, end)
    if key_at < 0 or key_size < -1 or key_size > end - key_at:
        return -1, 0, 0, 0, 0, 0
    at = key_at
    if key_size > 0:
        at += key_size
    value_size, at = zigzag_at(data, at, end)
    if at < 0 or value_size < -1 or value_size > end - at:
        return -1, 0, 0, 0, 0, 0
    return end, timestamp_delta, offset_delta, key_at, key_size, value_size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _note_batch(
    run: cython.const[cython.uchar][::1], batch: cython.longlong[::1], from_offset: cython.longlong, keys: KeySlots
) -> cython.longlong:
    """Put the keys of a batch into the map: -1 if all found room, else the first offset that did not. From where its records are
    not what they should be, it has none."""
    at: cython.Py_ssize_t = batch[_AT] + _HEADER_SIZE
    end: cython.Py_ssize_t = batch[_AT] + batch[_SIZE]
    key_at: cython.Py_ssize_t
    key_size: cython.longlong
    delta: cython.longlong
    for _ in range(batch[_COUNT]):
        at, _, delta, key_at, key_size, _ = _record(run, at, end)
        if at < 0 or delta < 0 or delta >= batch[_NEXT_OFFSET] - batch[_BASE_OFFSET]:
            return -1
        if key_size < 0 or batch[_BASE_OFFSET] + delta < from_offset:
            continue
        if not keys._put(run, key_at, key_size, batch[_BASE_OFFSET] + delta):
            return batch[_BASE_OFFSET] + delta
    return -1


@cython.boundscheck(False)
@cython.wraparound(False)
def note_keys(
    run: cython.const[cython.uchar][::1], table: cython.longlong[:, ::1], from_offset: cython.longlong, keys: KeySlots
) -> int:
    """Put the keys of the batches to sift into the map, of records from an offset on. The offset of the first record that found
    no room; -1 if all did."""
    row: cython.Py_ssize_t
    full_at: cython.longlong = -1
    with cython.nogil:
        for row in range(table.shape[0]):
            if table[row, _FATE] != _SIFT or table[row, _NEXT_OFFSET] <= from_offset:
                continue
            full_at = _note_batch(run, table[row], from_offset, keys)
            if full_at != -1:
                break
    return full_at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _sift_batch(
    run: cython.const[cython.uchar][::1],
    batch: cython.longlong[::1],
    keys: KeySlots,
    out: cython.uchar[::1],
) -> cython.longlong:
    """Copy the records of a batch that stay, behind room for its header, and note how many bytes and records that is; how many
    of them are tombstones, -1 if they are not what they should be."""
    to: cython.Py_ssize_t = batch[_NEW_AT] + _HEADER_SIZE
    at: cython.Py_ssize_t = batch[_AT] + _HEADER_SIZE
    kept_from: cython.Py_ssize_t = at
    end: cython.Py_ssize_t = batch[_AT] + batch[_SIZE]
    latest: cython.longlong = -1
    tombstones: cython.longlong = 0
    begin: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    key_size: cython.longlong
    value_size: cython.longlong
    delta: cython.longlong
    timestamp_delta: cython.longlong
    offset: cython.longlong
    if batch[_BASE_TIMESTAMP] > _TIME_MAX or batch[_BASE_TIMESTAMP] < -_TIME_MAX:
        return -1
    for _ in range(batch[_COUNT]):
        begin = at
        at, timestamp_delta, delta, key_at, key_size, value_size = _record(run, at, end)
        if at < 0 or delta < 0 or delta >= batch[_NEXT_OFFSET] - batch[_BASE_OFFSET]:
            return -1
        if timestamp_delta > _TIME_MAX or timestamp_delta < -_TIME_MAX:
            return -1
        offset = batch[_BASE_OFFSET] + delta
        if key_size >= 0 and keys._supersedes(run, key_at, key_size, offset, value_size < 0):
            # What is kept stands in stretches, each copied at once.
            _copy(out, to, run, kept_from, begin)
            to += begin - kept_from
            kept_from = at
            continue
        batch[_KEPT] += 1
        tombstones += value_size < 0 and key_size >= 0
        latest = max(latest, batch[_BASE_TIMESTAMP] + timestamp_delta)
    _copy(out, to, run, kept_from, end)
    batch[_NEW_SIZE] = to + end - kept_from - batch[_NEW_AT]
    if not batch[_ATTRIBUTES] & _APPEND_TIME:
        batch[_MAX_TIMESTAMP] = latest
    return tombstones


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _put_header(run: cython.const[cython.uchar][::1], batch: cython.longlong[::1], out: cython.uchar[::1]) -> cython.void:
    """Write the header of a batch that has lost records in front of what is left of it."""
    to: cython.Py_ssize_t = batch[_NEW_AT]
    _copy(out, to, run, batch[_AT], batch[_AT] + _HEADER_SIZE)
    if batch[_KEPT] == 0:
        batch[_MAX_TIMESTAMP] = -1
        out[to + _CODEC_BYTE] &= 0xF8
    _put_number(out, to + 8, 4, batch[_NEW_SIZE] - 12)
    _put_number(out, to + 35, 8, batch[_MAX_TIMESTAMP])
    _put_number(out, to + 57, 4, batch[_KEPT])


@cython.boundscheck(False)
@cython.wraparound(False)
def sift(
    run: cython.const[cython.uchar][::1],
    table: cython.longlong[:, ::1],
    keys: KeySlots,
    husk_row: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> tuple[int, int]:
    """Copy what is left of a run to `out`, which is as long as the run: of batches to sift, all records but those that a later
    one of their key supersedes, within the bounds of the map. The batch of `husk_row` stays as a header if none of its records
    do. How many bytes are left, and how many tombstones. Checksums are not set."""
    row: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    found: cython.longlong = 0
    tombstones: cython.longlong = 0
    with cython.nogil:
        for row in range(table.shape[0]):
            table[row, _NEW_AT] = to
            if table[row, _FATE] == _SIFT:
                found = _sift_batch(run, table[row], keys, out)
                if found < 0:
                    table[row, _FATE] = _KEEP  # not decodable: its consumers may know what it is
                else:
                    tombstones += found
            if table[row, _FATE] == _KEEP:
                table[row, _KEPT] = table[row, _COUNT]
            if table[row, _KEPT] > 0 and table[row, _KEPT] == table[row, _COUNT]:
                table[row, _NEW_SIZE] = table[row, _SIZE]
                _copy(out, to, run, table[row, _AT], table[row, _AT] + table[row, _SIZE])
            elif table[row, _KEPT] > 0:
                _put_header(run, table[row], out)
            elif row == husk_row:
                table[row, _NEW_SIZE] = _HEADER_SIZE
                _put_header(run, table[row], out)
            else:
                table[row, _NEW_SIZE] = 0
            to += table[row, _NEW_SIZE]
    return to, tombstones


@cython.boundscheck(False)
@cython.wraparound(False)
def digest(data: cython.const[cython.uchar][::1], secret: tuple[int, int]) -> tuple[int, int]:
    """The digest of a key, as the map has it."""
    first: cython.ulonglong
    second: cython.ulonglong
    first, second = _digest(data, 0, len(data), secret[0], secret[1])
    return first, second
