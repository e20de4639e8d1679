"""The stored form of a KV tablet's log and snapshots. Integers are big-endian.

A log entry is one blob in channel 0; its step is its place in the log. The checksum covers all bytes but its own:

     0      4        6      8        12
     +------+--------+------+--------+----------+-----
     |magic |version |kinds |crc32c  | section  | ...
     |"PENk"|        |      |of all  |          |
     +------+--------+------+--------+----------+-----

Sections follow in this order, each only if its bit in `kinds` is set:

     BOOT       1 | last entry of earlier generations that counts: generation 4 | step 4
     ABORTED    2 | count 4 | steps of this generation that do not count, 4 each
     COLLECTED  4 | barrier of the data channel: generation 4 | step 4
     SNAPSHOT   8 | taken at: generation 4 | step 4 | barrier 8 | count 4 | page blob ids, 25 each
     CHANGES   16 | count 4 | changes
     APPENDS   32 | count 4 | appends; only from version 2 on, and an entry without them is still of version 1
     RUN       64 | in the place of ABORTED when there are many steps, which follow each other: first 4 | last 4; version 3

     change     key length 2 | key | what 1 | ...
                what: 0 gone
                      1 small value: length 4 | bytes
                      2 chain: head length 4 | head | pieces 2 | pieces
     piece      0 | length 4 | bytes          bytes kept in the log
                1 | blob id 25 | offset 4 | length 4
     append     queue 4 | note length 4 | data length 4 | note | data

A snapshot page is one blob in channel 2: magic "PENs" | version 2 | zero 2 | crc32c 4 | count 4 | changes as above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.blob import BlobId, Buffer
from penstock.core.checksum import crc32c
from penstock.core.errors import ConfigError, CorruptionError
from penstock.kernels.log_bytes import entry_of_appends
from penstock.tablet.key_index import BlobRef, Chain, Change, Piece, Value

ENTRY_MAGIC = b"PENk"
PAGE_MAGIC = b"PENs"
VERSION = 1
APPENDS_VERSION = 2
RUN_VERSION = 3
ABORTED_LIST_MAX = 1_000  # up to here they are listed, which older versions can read, too
ID_SIZE = 25
CHECKSUM_AT = 8

BOOT, ABORTED, COLLECTED, SNAPSHOT, CHANGES, APPENDS, RUN = 1, 2, 4, 8, 16, 32, 64

_HEAD = Struct(">4sHHI")
_PLACE = Struct(">II")
_U32 = Struct(">I")
_U16 = Struct(">H")
_SNAPSHOT = Struct(">IIIII")
_REF = Struct(">B25sII")
_INLINE = Struct(">BI")
_APPEND = Struct(">III")
APPENDS_START = _HEAD.pack(ENTRY_MAGIC, APPENDS_VERSION, APPENDS, 0)[:CHECKSUM_AT]  # of an entry that has nothing but appends

Place = tuple[int, int]
"""(generation, step)."""


class SnapshotMark(NamedTuple):
    """A complete snapshot: replaying the log after `taken_at` over its pages gives the state."""

    taken_at: Place
    barrier: Place
    pages: tuple[BlobId, ...]


class Append(NamedTuple):
    """Bytes that were added to one of the queues a tablet keeps for its owner. The tablet stores them and returns them at boot;
    what they mean, and what the note says of them, only the owner knows."""

    queue: int
    note: bytes
    data: bytes


class LogEntry(NamedTuple):
    """One entry of the log; absent sections are None or empty."""

    boot: Place | None = None
    aborted: tuple[int, ...] | range = ()
    collected: Place | None = None
    snapshot: SnapshotMark | None = None
    changes: tuple[Change, ...] = ()
    appends: tuple[Append, ...] = ()


def encode_entry(entry: LogEntry) -> Buffer:
    """The blob of a log entry."""
    kinds = 0
    sections: list[bytes] = []
    if entry.boot is not None:
        kinds |= BOOT
        sections.append(_PLACE.pack(*entry.boot))
    if isinstance(entry.aborted, range) and len(entry.aborted) > ABORTED_LIST_MAX:
        kinds |= RUN
        sections.append(_PLACE.pack(entry.aborted[0], entry.aborted[-1]))
    elif entry.aborted:
        kinds |= ABORTED
        sections.append(_U32.pack(len(entry.aborted)) + b"".join(map(_U32.pack, entry.aborted)))
    if entry.collected is not None:
        kinds |= COLLECTED
        sections.append(_PLACE.pack(*entry.collected))
    if entry.snapshot is not None:
        kinds |= SNAPSHOT
        taken_at, barrier, pages = entry.snapshot
        sections.append(_SNAPSHOT.pack(*taken_at, *barrier, len(pages)))
        sections.extend(page.pack() for page in pages)
    if entry.changes:
        kinds |= CHANGES
        sections.append(_encode_changes(entry.changes))
    if entry.appends:
        return encode_appends(entry.appends, kinds, sections)
    return _sealed(ENTRY_MAGIC, kinds, b"".join(sections), RUN_VERSION if kinds & RUN else VERSION)


def encode_appends(appends: Sequence[tuple[int, bytes, bytes]], kinds: int = 0, sections: Sequence[bytes] = ()) -> Buffer:
    """The blob of a log entry with appends, after sections that are encoded already."""
    version = RUN_VERSION if kinds & RUN else APPENDS_VERSION
    start = _HEAD.pack(ENTRY_MAGIC, version, kinds | APPENDS, 0)[:CHECKSUM_AT]
    return entry_of_appends(start, list(sections), list(appends))


def decode_entry(raw: Buffer, place: Place) -> LogEntry:
    """The log entry in a blob. CorruptionError if it is not one; ConfigError if it is of a newer format."""
    kinds, body = _checked(raw, ENTRY_MAGIC, f"log entry {place}", RUN_VERSION)
    reader = _Reader(body)
    boot = _PLACE.unpack(reader.take(8)) if kinds & BOOT else None
    aborted = reader.aborted(kinds)
    collected = _PLACE.unpack(reader.take(8)) if kinds & COLLECTED else None
    snapshot = None
    if kinds & SNAPSHOT:
        *places, count = _SNAPSHOT.unpack(reader.take(_SNAPSHOT.size))
        pages = tuple(BlobId.unpack(reader.take(ID_SIZE)) for _ in range(count))
        snapshot = SnapshotMark((places[0], places[1]), (places[2], places[3]), pages)
    changes = tuple(reader.changes()) if kinds & CHANGES else ()
    appends = tuple(reader.append() for _ in range(reader.u32())) if kinds & APPENDS else ()
    return LogEntry(boot, aborted, collected, snapshot, changes, appends)


def encode_page(changes: Iterable[Change]) -> bytes:
    """A snapshot page of keys."""
    body = _encode_changes(tuple(changes))
    return _sealed(PAGE_MAGIC, 0, body)


def decode_page(raw: Buffer, name: str) -> list[Change]:
    """The keys of a snapshot page."""
    _, body = _checked(raw, PAGE_MAGIC, f"snapshot page {name}")
    return _Reader(body).changes()


def encode_change(change: Change) -> bytes:
    """One key and what it holds."""
    key, value = change
    head = _U16.pack(len(key)) + key
    if value is None:
        return head + b"\0"
    if isinstance(value, bytes):
        return head + _INLINE.pack(1, len(value)) + value
    pieces = b"".join(map(_encode_piece, value.pieces))
    return head + _INLINE.pack(2, len(value.head)) + value.head + _U16.pack(len(value.pieces)) + pieces


def _encode_changes(changes: tuple[Change, ...]) -> bytes:
    return _U32.pack(len(changes)) + b"".join(map(encode_change, changes))


def _encode_piece(piece: Piece) -> bytes:
    if isinstance(piece, bytes):
        return _INLINE.pack(0, len(piece)) + piece
    return _REF.pack(1, piece.blob.pack(), piece.offset, piece.length)


def _sealed(magic: bytes, kinds: int, body: bytes, version: int = VERSION) -> bytes:
    start = _HEAD.pack(magic, version, kinds, 0)[:CHECKSUM_AT]
    return start + _U32.pack(crc32c(body, crc32c(start))) + body


def _checked(raw: Buffer, magic: bytes, name: str, version_max: int = VERSION) -> tuple[int, memoryview]:
    view = memoryview(raw)
    if len(view) < _HEAD.size or view[:4] != magic:
        raise CorruptionError(f"{name} is not what it should be: it does not start with {magic!r}")
    _, version, kinds, checksum = _HEAD.unpack_from(view)
    if version > version_max:
        raise ConfigError(f"{name} has format {version}, this version of Penstock reads up to {version_max}; upgrade Penstock")
    body = view[_HEAD.size :]
    if crc32c(body, crc32c(view[:CHECKSUM_AT])) != checksum:
        raise CorruptionError(f"{name} does not match its checksum")
    return kinds, body


class _Reader:
    """Takes fields off the front of some bytes."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._raw):
            raise CorruptionError(f"stored bytes end at {len(self._raw)} where {end} are needed")
        taken = bytes(self._raw[self._at : end])
        self._at = end
        return taken

    def u32(self) -> int:
        number: int = _U32.unpack(self.take(4))[0]
        return number

    def u16(self) -> int:
        number: int = _U16.unpack(self.take(2))[0]
        return number

    def aborted(self, kinds: int) -> tuple[int, ...] | range:
        if kinds & RUN:
            first, last = _PLACE.unpack(self.take(8))
            return range(first, last + 1)
        return tuple(self.u32() for _ in range(self.u32())) if kinds & ABORTED else ()

    def changes(self) -> list[Change]:
        return [self._change() for _ in range(self.u32())]

    def append(self) -> Append:
        queue, note, data = _APPEND.unpack(self.take(_APPEND.size))
        return Append(queue, self.take(note), self.take(data))

    def _change(self) -> Change:
        key = self.take(self.u16())
        what = self.take(1)[0]
        if what == 0:
            return key, None
        value: Value
        if what == 1:
            value = self.take(self.u32())
        else:
            head = self.take(self.u32())
            value = Chain(head, tuple(self._piece() for _ in range(self.u16())))
        return key, value

    def _piece(self) -> Piece:
        if self.take(1)[0] == 0:
            return self.take(self.u32())
        raw = self.take(_REF.size - 1)
        return BlobRef(BlobId.unpack(raw[:ID_SIZE]), *_PLACE.unpack(raw[ID_SIZE:]))
