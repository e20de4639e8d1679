"""One channel of one tablet on one VDisk: which parts lie where, their keep flags, and the barriers that end them.

A million blobs must fit in memory, so a blob is a 12-byte key (generation, step, cookie) and one integer, its *entry*:

     bits  99        67       35          3        2         0
           +---------+--------+-----------+--------+---------+
           | chunk   | offset | size:part | damaged| flags   |
           +---------+--------+-----------+--------+---------+

Part 0 means that no part is here, only flags. A disk that holds several parts of a blob (it is a handoff) has a tuple of entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.blob.meta import DO_NOT_KEEP, KEEP, BarrierItem

DAMAGED = 4
FLAGS_MASK = 3
SIZE_PART_SHIFT = 3
OFFSET_SHIFT = 35
CHUNK_SHIFT = 67
_U32 = (1 << 32) - 1
_PART = 0xF << SIZE_PART_SHIFT

Entry = int
NO_BARRIER = b""


class Place(NamedTuple):
    """An entry, taken apart."""

    chunk: int
    offset: int
    size: int
    part: int
    flags: int
    damaged: bool


def make_entry(chunk: int, offset: int, size_part: int, flags: int) -> Entry:
    """The entry of a part at this place; `size_part` is the last field of the blob id."""
    return chunk << CHUNK_SHIFT | offset << OFFSET_SHIFT | size_part << SIZE_PART_SHIFT | flags


def place_of(entry: Entry) -> Place:
    """Where and what an entry is."""
    return Place(
        entry >> CHUNK_SHIFT,
        entry >> OFFSET_SHIFT & _U32,
        entry >> SIZE_PART_SHIFT + 4 & _U32 >> 4,
        entry >> SIZE_PART_SHIFT & 0xF,
        entry & FLAGS_MASK,
        bool(entry & DAMAGED),
    )


def entry_bound(place: tuple[int, int]) -> Entry:
    """A number above the entries of all parts before a place (chunk and offset), and not above any other."""
    return place[0] << CHUNK_SHIFT | place[1] << OFFSET_SHIFT


def size_part_of(entry: Entry) -> int:
    """The last field of the part's blob id."""
    return entry >> SIZE_PART_SHIFT & _U32


def has_part(entry: Entry) -> bool:
    """Whether the entry stands for stored bytes, and not for flags alone."""
    return entry & _PART != 0


class Barrier:
    """One barrier (soft or hard) of a channel, as far as each VDisk of the group is known to hold it.

    It takes effect only once a quorum is known to hold it. A disk that holds a later barrier holds every earlier one too.
    """

    __slots__ = ("_quorum", "_self", "acting", "held", "own")

    def __init__(self, order: int, disks: int, quorum: Callable[[int], bool]) -> None:
        self._self = order
        self._quorum = quorum
        self.held: list[BarrierItem | None] = [None] * disks
        self.own: BarrierItem | None = None  # the latest that this disk holds itself; every put looks at it
        self.acting = NO_BARRIER

    def learn(self, item: BarrierItem) -> bool:
        """Take note that `item.holder` holds it; whether that was news."""
        known = self.held[item.holder]
        if known is not None and _key(known) >= _key(item):
            return False
        self.held[item.holder] = item
        self.own = self.held[self._self]
        self._advance()
        return True

    def _advance(self) -> None:
        latest_first = sorted(((_key(item), item.collect, holder) for holder, item in enumerate(self.held) if item), reverse=True)
        holders = 0
        for _, collect, holder in latest_first:
            holders |= 1 << holder
            if self._quorum(holders):
                self.acting = max(self.acting, collect)
                return


def _key(item: BarrierItem) -> tuple[int, int]:
    return item.record_generation, item.counter


class Channel:
    """The blobs of one channel in key order, with its barriers. Pure state: no I/O, no clock."""

    __slots__ = ("_order", "blobs", "fresh", "hard", "is_swept", "soft", "swept_hard", "swept_soft")

    def __init__(self, order: int, disks: int, quorum: Callable[[int], bool]) -> None:
        self.blobs: dict[bytes, Entry | tuple[Entry, ...]] = {}
        self._order: list[bytes] = []  # keys in order; may hold some that are gone, and some twice
        self.fresh: list[bytes] = []  # keys since, in order of arrival
        self.soft = Barrier(order, disks, quorum)
        self.hard = Barrier(order, disks, quorum)
        # The key up to which what each barrier has ended is forgotten.
        self.swept_soft = NO_BARRIER
        self.swept_hard = NO_BARRIER
        self.is_swept = True  # whether the last sweep came to its end

    def entries(self, key: bytes) -> tuple[Entry, ...]:
        """All entries of a blob; none if it is unknown."""
        value = self.blobs.get(key)
        if value is None:
            return ()
        return value if isinstance(value, tuple) else (value,)

    def wanted(self, key: bytes) -> tuple[Entry, ...]:
        """The same, but none of a blob that a barrier has ended and no sweep has come to yet."""
        return () if not self.is_swept and self.is_garbage(key) else self.entries(key)

    def set_entries(self, key: bytes, entries: tuple[Entry, ...]) -> None:
        """Replace what is known of a blob; an empty tuple forgets it."""
        if not entries:
            self.blobs.pop(key, None)
            return
        if key not in self.blobs:
            self.fresh.append(key)
        self.blobs[key] = entries[0] if len(entries) == 1 else entries

    def load(self, keys: list[bytes], entries: list[Entry]) -> None:
        """Take a checkpoint's slice of ascending keys, repeated where a blob has several entries."""
        merged: dict[bytes, Entry | tuple[Entry, ...]] = dict(zip(keys, entries, strict=True))
        if len(merged) < len(keys):
            several: dict[bytes, tuple[Entry, ...]] = {}
            for key, entry in zip(keys, entries, strict=True):
                several[key] = (*several.get(key, ()), entry)
            merged = {key: values[0] if len(values) == 1 else values for key, values in several.items()}
        self.blobs.update(merged)
        self.fresh.extend(merged)

    def flags(self, key: bytes) -> int:
        """The keep flags of a blob."""
        entries = self.entries(key)
        return entries[0] & FLAGS_MASK if entries else 0

    def merge_flags(self, key: bytes, flags: int) -> bool:
        """Set flags, never clear any; whether that changed something."""
        entries = self.entries(key)
        if not entries:
            self.set_entries(key, (flags,))
            return True
        if entries[0] | flags == entries[0]:
            return False
        self.set_entries(key, tuple(entry | flags for entry in entries))
        return True

    def refuses(self, key: bytes) -> bool:
        """Whether a blob written now would be garbage at once, by the barriers that this disk holds itself, or that act here: a
        disk that has lost its own knows of a quorum's, and no sweep comes to such a blob again."""
        moment = key[:8]
        hard, soft = self.hard, self.soft
        if moment <= hard.acting or (hard.own is not None and moment <= hard.own.collect):
            return True
        is_ended = moment <= soft.acting or (soft.own is not None and moment <= soft.own.collect)
        return is_ended and self.flags(key) != KEEP

    def is_garbage(self, key: bytes) -> bool:
        """Whether the barriers that act here have ended this blob."""
        moment = key[:8]
        if moment <= self.hard.acting:
            return True
        return moment <= self.soft.acting and self.flags(key) != KEEP

    def sweep(self, limit: int | None = None) -> list[bytes]:
        """Blobs that became garbage since the last sweep because a barrier moved. With a limit, a sweep looks at so many at most,
        and the next one goes on from there; `is_swept` tells whether any are left."""
        found, self.swept_hard = self._pass(self.swept_hard, self.hard.acting, limit)
        passed, self.swept_soft = self._pass(self.swept_soft, self.soft.acting, limit)
        found += (key for key in passed if self.is_garbage(key))
        self.is_swept = self.swept_hard >= _bound(self.hard.acting) and self.swept_soft >= _bound(self.soft.acting)
        return found

    def _pass(self, swept: bytes, acting: bytes, limit: int | None) -> tuple[list[bytes], bytes]:
        """Known keys after `swept` up to a barrier, as many as the limit allows, and up to where that is."""
        bound = _bound(acting)
        if swept >= bound:
            return [], swept
        order = self._ordered()
        low, high = bisect_right(order, swept), bisect_left(order, bound)
        if limit is not None and high - low > limit:
            high = low + limit
            bound = order[high - 1]
        return [key for key in dict.fromkeys(order[low:high]) if key in self.blobs], bound

    def is_tombstone_needed(self, key: bytes) -> bool:
        """Whether another disk may still hold Keep on this blob, and so must hear of DoNotKeep before it is forgotten."""
        return self.flags(key) == KEEP | DO_NOT_KEEP and key[:8] > self.hard.acting

    def keys(self, begin: bytes = b"", end: bytes | None = None, *, reverse: bool = False) -> Iterator[bytes]:
        """Known keys with begin <= key < end, in order. The channel may change while they are read."""
        order = self._ordered()
        low = bisect_left(order, begin)
        high = len(order) if end is None else bisect_left(order, end)
        window = order[low:high]
        if reverse:
            window.reverse()
        last = b""
        for key in window:
            if key != last and key in self.blobs:
                yield key
                last = key

    def _ordered(self) -> list[bytes]:
        order = self._order
        if self.fresh:
            fresh = sorted(self.fresh)
            self.fresh = []
            in_order = not order or fresh[0] > order[-1]
            order.extend(fresh)
            if not in_order:
                order.sort()
        if len(order) > 2 * len(self.blobs) + 64:
            order = self._order = sorted(self.blobs)
        return order


def _bound(moment: bytes) -> bytes:
    """A bound above every key up to this generation and step; nothing is below that of no barrier."""
    return moment and moment + b"\xff\xff\xff\xff\xff"
