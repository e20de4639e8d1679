"""Stored batches into the buffers of Arrow columns, in one pass: every byte is copied once, and no object is made for a record.

A `BatchDecoder` is fed what a fetch returned and fills `ArrowRoom`s, memory that its caller has set aside; it stops within a
batch when a room is full. Nothing a batch says about itself is believed before it is held against the bytes that are there.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import cython

from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.record_format import ORIGIN_MASK, OWN_PREFIXES

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.penstock.kernels.varints import zigzag_at
else:
    from penstock.core.varint_buffers import zigzag_at

COMPILED: Final[bool] = cython.compiled

HEADER_SIZE: Final = 61
MAGIC: Final = 2
CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
# Milliseconds that are still microseconds in 64 bits; a producer may claim any time.
TIMESTAMP_MAX = cython.declare(cython.longlong, 9223372036854775)

_HEADER: Final = Struct(">qiibIhiqqqhii")
_MARKER: Final = Struct(">hh")
_NO_PREFIX: Final = memoryview(b"")
_OWN_PREFIXES: Final = {origin: memoryview(prefix) for origin, prefix in OWN_PREFIXES.items()}


class MalformedBatchError(CorruptionError):
    """A batch is damaged, or not what its header says."""

    code = "malformed_batch"


@cython.final
@cython.cclass
class OctetsRoom:
    """Memory for a column of byte strings: `offsets` for one more than its rows, a bit a row, and the bytes themselves.

    With a wrapping each value stands between two strings, and a null is written out as the third, so that the column reads as
    one text.
    """

    offsets: cython.int[::1]
    validity: cython.uchar[::1]
    data: cython.uchar[::1]
    prefix: cython.const[cython.uchar][::1]
    suffix: cython.const[cython.uchar][::1]
    null: cython.const[cython.uchar][::1]
    is_wrapped: cython.bint
    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    rows_max = cython.declare(cython.Py_ssize_t, visibility="readonly")
    used = cython.declare(cython.Py_ssize_t, visibility="readonly")
    nulls = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(self, offsets, validity, data, wrapping=None) -> None:  # type: ignore[no-untyped-def]
        self.offsets = offsets
        self.validity = validity
        self.data = data
        self.prefix, self.suffix, self.null = map(memoryview, wrapping or (b"", b"", b""))
        self.is_wrapped = wrapping is not None
        self.rows = self.used = self.nulls = 0
        self.rows_max = min(len(offsets) - 1, len(validity) * 8)
        self.offsets[0] = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def fits(self, rows: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Whether so many more rows with so many bytes in all have room."""
        if self.is_wrapped:
            size += rows * (self.prefix.shape[0] + self.suffix.shape[0] + self.null.shape[0])
        return self.rows + rows <= self.rows_max and self.used + size <= self.data.shape[0]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def append(self, source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.longlong) -> cython.void:
        """One more row, for which `fits` has said yes; a negative size is null."""
        if self.is_wrapped:
            self._copy(self.prefix, 0, self.prefix.shape[0])
            if size < 0:
                self._copy(self.null, 0, self.null.shape[0])
        if size >= 0:
            self.validity[self.rows >> 3] |= 1 << (self.rows & 7)
            self._copy(source, at, size)
        else:
            self.nulls += 1
        if self.is_wrapped:
            self._copy(self.suffix, 0, self.suffix.shape[0])
        self.rows += 1
        self.offsets[self.rows] = cython.cast(cython.int, self.used)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _copy(self, source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.void:
        if size > 0:
            if cython.compiled:
                memcpy(cython.address(self.data[self.used]), cython.address(source[at]), size)
            else:
                self.data[self.used : self.used + size] = source[at : at + size]
            self.used += size


@cython.final
@cython.cclass
class ArrowRoom:
    """Memory for the columns of some rows: offsets, times and kinds of times; keys, values and headers unless left out."""

    offsets: cython.longlong[::1]
    timestamps: cython.longlong[::1]
    timestamp_types: cython.int[::1]
    keys: OctetsRoom
    values: OctetsRoom
    header_offsets: cython.int[::1]
    header_validity: cython.uchar[::1]
    header_keys: OctetsRoom
    header_values: OctetsRoom
    has_keys: cython.bint
    has_values: cython.bint
    has_headers: cython.bint
    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    rows_max = cython.declare(cython.Py_ssize_t, visibility="readonly")
    header_nulls = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(self, numbers, keys=None, values=None, headers=None) -> None:  # type: ignore[no-untyped-def]
        self.offsets, self.timestamps, self.timestamp_types = numbers
        self.keys, self.values = keys, values
        self.has_keys, self.has_values, self.has_headers = keys is not None, values is not None, headers is not None
        self.rows = self.header_nulls = 0
        self.rows_max = min(map(len, numbers))
        if headers is not None:
            self.header_offsets, self.header_validity, self.header_keys, self.header_values = headers
            self.header_offsets[0] = 0
            self.rows_max = min(self.rows_max, len(self.header_offsets) - 1, len(self.header_validity) * 8)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def fits(
        self, key: cython.longlong, value: cython.longlong, headers: cython.longlong, header_bytes: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether a record with parts of these sizes has room."""
        if self.rows >= self.rows_max:
            return False
        if self.has_keys and not self.keys.fits(1, max(key, 0)):
            return False
        if self.has_values and not self.values.fits(1, max(value, 0)):
            return False
        if not self.has_headers or headers == 0:
            return True
        return self.header_keys.fits(headers, header_bytes) and self.header_values.fits(headers, header_bytes)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def append_headers(
        self,
        data: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        own: cython.const[cython.uchar][::1],
    ) -> cython.bint:
        """The headers of the next row, but not those whose names begin with `own`, if that is anything; False if they are not
        what they say. A record without any has null for them."""
        size: cython.longlong
        part: cython.int
        place: cython.Py_ssize_t
        kept: cython.longlong = 0
        is_own: cython.bint = False
        for _ in range(count):
            for part in range(2):
                size, at = zigzag_at(data, at, end)
                if at < 0 or size > end - at or size < -part:  # a key is never null
                    return False
                if part == 0:
                    is_own = 0 < own.shape[0] <= size
                    for place in range(own.shape[0]):
                        is_own = is_own and data[at + place] == own[place]
                    if not is_own:
                        kept += 1
                        self.header_keys.append(data, at, size)
                elif not is_own:
                    self.header_values.append(data, at, size)
                at += max(size, 0)
        if kept == 0:
            self.header_nulls += 1
        else:
            self.header_validity[self.rows >> 3] |= 1 << (self.rows & 7)
        self.header_offsets[self.rows + 1] = cython.cast(cython.int, self.header_keys.rows)
        return True


@cython.final
@cython.cclass
class BatchDecoder:
    """The records of one partition from offset `start` up to `stop`, out of what fetches of it returned.

    `decompress` takes a codec and a view of compressed records; what it returns is used before it is called again. With
    `is_committed` records of transactions that were aborted are left out.
    """

    next_offset = cython.declare(cython.longlong, visibility="readonly")
    """Where the next fetch begins, once all of this one is decoded."""
    needed = cython.declare(cython.Py_ssize_t, visibility="readonly")
    """The bytes of the record for which there was no room."""
    used = cython.declare(cython.Py_ssize_t, visibility="readonly")
    """The bytes that whole batches of this fetch took so far."""
    _start: cython.longlong
    _stop: cython.longlong
    _data: cython.const[cython.uchar][::1]
    _records: cython.const[cython.uchar][::1]
    _at: cython.Py_ssize_t
    _left: cython.longlong
    _base_offset: cython.longlong
    _base_timestamp: cython.longlong
    _append_time: cython.longlong
    _is_append_time: cython.bint
    _own: cython.const[cython.uchar][::1]
    _view: object
    _decompress: object
    _is_committed: cython.bint
    _checks: cython.bint
    _aborted: object
    _dropped: object

    def __init__(self, start, stop, decompress, is_committed=False, checks=True) -> None:  # type: ignore[no-untyped-def]
        self._start, self._stop, self.next_offset = start, stop, start
        self._decompress = decompress
        self._is_committed, self._checks = is_committed, checks
        self.feed(b"", ())

    def feed(self, data, aborted=(), start=0) -> None:  # type: ignore[no-untyped-def]
        """Decode this next: batches one after another, and the transactions that were aborted, by producer and first offset.
        Records before `start` are not wanted any more, though a batch may still hold them."""
        self._start = max(self._start, start)
        self._view = memoryview(data)
        self._data = self._view
        self._records = self._view
        self._own = _NO_PREFIX
        self._aborted = sorted(aborted, key=lambda one: -one[1])
        self._dropped = set()
        self.used = self._left = self.needed = self._at = 0

    @property
    def is_done(self) -> bool:
        """Whether everything before `stop` has been decoded."""
        return self._left == 0 and self.next_offset >= self._stop

    def fill(self, room: ArrowRoom) -> bool:
        """Decode into a room; True if it is full and there is more, False if all of the fetch is used up."""
        outcome: cython.int
        self.needed = 0
        while True:
            if self._left > 0:
                with cython.nogil:
                    outcome = self._decode_records(room)
                if outcome < 0:
                    raise MalformedBatchError(
                        f"a record of the batch at offset {self._base_offset} is cut short or does not fit into it"
                    )
                if outcome > 0:
                    return True
            if self.is_done or not self._open_batch():
                return False

    def _open_batch(self) -> bool:
        """Go to the next batch that has records to decode; False if there is none that is whole."""
        view = self._view
        while len(view) - self.used >= HEADER_SIZE:
            base, length, _, magic, checksum, attributes, delta, first, latest, producer, _, _, count = _HEADER.unpack_from(
                view, self.used
            )
            end = self.used + 12 + length
            if magic != MAGIC:
                raise MalformedBatchError(f"the batch at offset {base} has format {magic}; only version {MAGIC} can be read")
            if length < HEADER_SIZE - 12 or delta < 0 or count < 0:
                raise MalformedBatchError(f"the batch at offset {base} says it has {length} bytes and {count} records")
            if end > len(view):
                return False  # cut off at the end; it comes again, whole
            if self._checks and crc32c(view[self.used + 21 : end]) != checksum:
                raise MalformedBatchError(f"the batch at offset {base} does not match its checksum")
            records = view[self.used + HEADER_SIZE : end]
            self.used = end
            is_wanted = self._is_wanted(base, attributes, producer, records)
            if base + delta >= self._start:
                self.next_offset = max(self.next_offset, base + delta + 1)
            if is_wanted and base + delta >= self._start and base < self._stop and count:
                self._base_offset, self._base_timestamp, self._append_time = base, first, latest
                self._is_append_time = bool(attributes & APPEND_TIME)
                self._own = _OWN_PREFIXES.get(attributes & ORIGIN_MASK, _NO_PREFIX)
                self._records = memoryview(self._plain(base, attributes & CODEC, records))
                self._at, self._left = 0, count
                return True
            if base >= self._stop:
                return False
        return False

    def _is_wanted(self, base, attributes, producer, records) -> bool:  # type: ignore[no-untyped-def]
        """Whether a batch holds data that counts: it is no marker, and its transaction was not aborted."""
        while self._aborted and self._aborted[-1][1] <= base:
            self._dropped.add(self._aborted.pop()[0])
        if attributes & CONTROL:
            if producer in self._dropped and _is_abort(records):
                self._dropped.discard(producer)
            return False
        return not (self._is_committed and attributes & TRANSACTIONAL and producer in self._dropped)

    def _plain(self, base, codec, records):  # type: ignore[no-untyped-def]
        if not codec:
            return records
        try:
            return self._decompress(codec, records)
        except ValueError as error:
            raise MalformedBatchError(f"the batch at offset {base} does not decompress: {error}") from error

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _decode_records(self, room: ArrowRoom) -> cython.int:
        """The rest of the batch, as far as it has room: 0 if that was all of it, 1 if not, -1 if it is malformed."""
        size: cython.Py_ssize_t = self._records.shape[0]
        cython.declare(at=cython.Py_ssize_t, end=cython.Py_ssize_t, key_at=cython.Py_ssize_t, value_at=cython.Py_ssize_t)
        cython.declare(length=cython.longlong, offset=cython.longlong, timestamp=cython.longlong)
        cython.declare(key=cython.longlong, value=cython.longlong, headers=cython.longlong)
        while self._left > 0:
            length, at = zigzag_at(self._records, self._at, size)
            if at < 0 or length < 1 or length > size - at:
                return -1
            end = at + length
            timestamp, at = zigzag_at(self._records, at + 1, end)
            if at >= 0:
                offset, at = zigzag_at(self._records, at, end)
            if at >= 0:
                key, key_at = zigzag_at(self._records, at, end)
                at = -1 if key_at < 0 or key < -1 or key > end - key_at else key_at + max(key, 0)
            if at >= 0:
                value, value_at = zigzag_at(self._records, at, end)
                at = -1 if value_at < 0 or value < -1 or value > end - value_at else value_at + max(value, 0)
            if at < 0 or offset < 0 or offset > 0x7FFFFFFF:
                return -1
            offset += self._base_offset
            if offset >= self._stop:
                self._left = 0
                return 0
            if offset >= self._start:
                headers = 0
                if room.has_headers:
                    headers, at = zigzag_at(self._records, at, end)
                    if at < 0 or headers < 0 or headers > end - at:
                        return -1
                if not room.fits(key, value, headers, end - at):
                    self.needed = end - self._at
                    return 1
                if room.has_headers and not room.append_headers(self._records, at, end, headers, self._own):
                    return -1
                self._append(room, offset, timestamp)
                if room.has_keys:
                    room.keys.append(self._records, key_at, key)
                if room.has_values:
                    room.values.append(self._records, value_at, value)
            self._at = end
            self._left -= 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _append(self, room: ArrowRoom, offset: cython.longlong, timestamp: cython.longlong) -> cython.void:
        """The numbers of one row; times in microseconds."""
        if self._is_append_time:
            timestamp = self._append_time
        else:
            timestamp = min(max(timestamp, -TIMESTAMP_MAX), TIMESTAMP_MAX)
            timestamp += min(max(self._base_timestamp, -TIMESTAMP_MAX), TIMESTAMP_MAX)
        room.offsets[room.rows] = offset
        room.timestamps[room.rows] = min(max(timestamp, -TIMESTAMP_MAX), TIMESTAMP_MAX) * 1000
        room.timestamp_types[room.rows] = self._is_append_time
        room.rows += 1


def _is_abort(records) -> bool:  # type: ignore[no-untyped-def]
    """Whether a marker ends its transaction by undoing it."""
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = len(records)
    for skipped in range(4):  # length, timestamp delta, offset delta, length of the key
        _, at = zigzag_at(records, at, size)
        if at < 0:
            raise MalformedBatchError("a control batch has no marker in it")
        at += skipped == 0  # the attributes
    if size - at < _MARKER.size:
        raise MalformedBatchError("a control batch has no marker in it")
    return _MARKER.unpack_from(records, at)[1] == 0


@cython.boundscheck(False)
@cython.wraparound(False)
def find_end(data: cython.const[cython.uchar][::1]) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The offset after the last whole batch, and the bytes that whole batches take; -1 and 0 if there is none."""
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = len(data)
    length: cython.longlong
    last: cython.Py_ssize_t = -1
    while size - at >= HEADER_SIZE:
        length = _number(data, at + 8, 4)
        if length < HEADER_SIZE - 12 or length > size - at - 12:
            break
        last = at
        at += 12 + length
    if last < 0:
        return -1, 0
    return _number(data, last, 8) + _number(data, last + 23, 4) + 1, at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.wraparound(False)
def _number(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    """A big-endian number without its sign: lengths and offsets are never negative in a batch that was stored."""
    value: cython.longlong = 0
    byte: cython.int
    for byte in range(size):
        value = (value << 8) | data[at + byte]
    return value
