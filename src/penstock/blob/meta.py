"""What a VDisk knows besides parts: blocks, barriers, keep flags, dropped parts and its own state, as small items.

The same items are the body of a META record in the log, the head of a checkpoint and the content of a sync between VDisks. Each
starts with a byte for its type; integers are big-endian:

    BLOCK    1 | tablet 8 | generation 4 | issuer 8
    BARRIER  2 | channel key 9 | hard 1 | record generation 4 | counter 4 | collect generation 4 | collect step 4 | holder 1
    FLAGS    3 | blob prefix 21 | flags 1; UNKEEP with flags 0
    DROP     4 | blob id with part 25
    STATE    5 | state 1
    HISTORY  6 | tablet 8 | version 4 | length 2 | content (see channel_history.py); only of tablets that have changed groups

All but UNKEEP, DROP and STATE merge: applying one twice, or several in any order, gives the same (blocks and barriers by maximum,
flags by OR, histories by version). These three are of one disk alone, and count in the order of its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from penstock.core.errors import CorruptionError

KEEP = 1
DO_NOT_KEEP = 2
HEARSAY = 0  # the issuer of a block that a disk has learned from a sister

_BLOCK = Struct(">B8sIQ")
_BARRIER = Struct(">B9sBII8sB")
_FLAGS = Struct(">B21sB")
_DROP = Struct(">B25s")
_STATE = Struct(">BB")
_HISTORY = Struct(">B8sIH")


class DiskState(IntEnum):
    """How far a VDisk can be trusted to know what it should know; it rises, until the disk is wiped or has gone back in time."""

    FRESH = 0  # nothing is known of the group's blocks, barriers and flags: it takes no part in any quorum
    SYNCED = 1  # metadata is there, parts may be missing: it takes writes and proves no absence
    COMPLETE = 2  # it has every part that it should have


class BlockItem(NamedTuple):
    """Generations of a tablet up to this one may change nothing; `issuer` tells a retry from a rival.

    A disk that learned of a block by sync keeps it with the issuer HEARSAY, and never confirms it: otherwise a disk that was
    wiped and has heard of a rival's block, or of half of one, could complete the quorum of a second owner.
    """

    tablet: bytes
    generation: int
    issuer: int


class BarrierItem(NamedTuple):
    """VDisk number `holder` holds this barrier; `collect` is generation and step as 8 bytes."""

    channel: bytes
    hard: bool
    record_generation: int
    counter: int
    collect: bytes
    holder: int


class FlagsItem(NamedTuple):
    """Keep flags of a blob, to be merged by OR."""

    prefix: bytes
    flags: int


class UnkeepItem(NamedTuple):
    """This disk gave up a blob with its Keep, because no sister knows of that Keep any more."""

    prefix: bytes


class DropItem(NamedTuple):
    """This disk gave up a part that has reached the disk it belongs to."""

    blob_id: bytes


class StateItem(NamedTuple):
    """The disk has reached this state."""

    state: DiskState


class HistoryItem(NamedTuple):
    """The groups that the channels of a tablet were in, as of its starter; of several the one with the highest version counts."""

    tablet: bytes
    version: int
    content: bytes


MetaItem = BlockItem | BarrierItem | FlagsItem | UnkeepItem | DropItem | StateItem | HistoryItem


def newer_history(one: HistoryItem | None, other: HistoryItem | None) -> HistoryItem | None:
    """The newer of two channel histories of a tablet."""
    if one is None or (other is not None and other.version > one.version):
        return other
    return one


def encode_items(items: Iterable[MetaItem]) -> bytes:
    """The stored form of the items, in order."""
    return b"".join(map(_encode_item, items))


def _encode_item(item: MetaItem) -> bytes:
    match item:
        case FlagsItem():
            return _FLAGS.pack(3, item.prefix, item.flags)
        case UnkeepItem():
            return _FLAGS.pack(3, item.prefix, 0)
        case BarrierItem():
            return _BARRIER.pack(2, item.channel, item.hard, item.record_generation, item.counter, item.collect, item.holder)
        case BlockItem():
            return _BLOCK.pack(1, item.tablet, item.generation, item.issuer)
        case DropItem():
            return _DROP.pack(4, item.blob_id)
        case StateItem():
            return _STATE.pack(5, item.state)
        case HistoryItem():
            return _HISTORY.pack(6, item.tablet, item.version, len(item.content)) + item.content


def decode_items(raw: bytes | memoryview) -> Iterator[MetaItem]:
    """The items whose stored form is `raw`."""
    at = 0
    while at < len(raw):
        match raw[at]:
            case 3:
                _, prefix, flags = _FLAGS.unpack_from(raw, at)
                yield FlagsItem(prefix, flags) if flags else UnkeepItem(prefix)
                at += _FLAGS.size
            case 2:
                _, channel, hard, generation, counter, collect, holder = _BARRIER.unpack_from(raw, at)
                yield BarrierItem(channel, bool(hard), generation, counter, collect, holder)
                at += _BARRIER.size
            case 1:
                yield BlockItem(*_BLOCK.unpack_from(raw, at)[1:])
                at += _BLOCK.size
            case 4:
                yield DropItem(_DROP.unpack_from(raw, at)[1])
                at += _DROP.size
            case 5:
                yield StateItem(DiskState(_STATE.unpack_from(raw, at)[1]))
                at += _STATE.size
            case 6:
                _, tablet, version, length = _HISTORY.unpack_from(raw, at)
                at += _HISTORY.size
                yield HistoryItem(tablet, version, bytes(raw[at : at + length]))
                at += length
            case unknown:
                raise CorruptionError(f"metadata item of unknown type {unknown} at byte {at}; was it written by a newer version?")
