"""All that a VDisk knows, in memory: channels with their blobs, blocks, barriers, flags, and how full each chunk is.

Pure state. The same methods serve a running disk and one that recovers its log; every change merges, other than a dropped part, a
Keep given up and the disk's own state, of which the last one counts, so replaying a stretch of the log twice is harmless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from penstock.blob.blob_id import CHANNEL_KEY_SIZE, PREFIX_SIZE
from penstock.blob.channel import (
    CHUNK_SHIFT,
    DAMAGED,
    FLAGS_MASK,
    SIZE_PART_SHIFT,
    Channel,
    Entry,
    entry_bound,
    has_part,
    make_entry,
    place_of,
    size_part_of,
)
from penstock.blob.link import IndexedBlob
from penstock.blob.meta import (
    KEEP,
    BarrierItem,
    BlockItem,
    DiskState,
    DropItem,
    FlagsItem,
    HistoryItem,
    MetaItem,
    StateItem,
    UnkeepItem,
)
from penstock.blob.record import record_size
from penstock.blob.sisters import SisterMark

SYNC_LOG_MAX = 100_000


class ChunkUse:
    """Bytes of a chunk, how many of them belong to parts that are still wanted, and up to where a checkpoint knows of parts."""

    __slots__ = ("extent", "live", "sealed", "size")

    def __init__(self, size: int = 0, *, sealed: bool = False) -> None:
        self.size = size
        self.live = 0
        self.extent = 0
        self.sealed = sealed


class DiskIndex:
    """The state of one VDisk. `part_size` gives the stored length of a part from the size of its blob."""

    def __init__(self, order: int, disks: int, quorum: Callable[[int], bool], part_size: Callable[[int], int]) -> None:
        self.order = order
        self.disks = disks
        self._quorum = quorum
        self.part_size = part_size
        self.reset()

    def reset(self) -> None:
        """Return to the empty state."""
        self.channels: dict[bytes, Channel] = {}
        self.blocks: dict[bytes, BlockItem] = {}
        self.histories: dict[bytes, HistoryItem] = {}  # of tablets that have changed groups
        self.chunks: dict[int, ChunkUse] = {}
        self.state = DiskState.FRESH
        self.marks: dict[int, SisterMark] = {}  # of the sisters, by order, and this disk's own guid and life
        self.parts = 0
        self.damaged: set[bytes] = set()  # ids of the parts among them whose bytes can no longer be trusted
        self.tombstones: deque[tuple[int, bytes, bytes]] = deque()
        self.sync_log: deque[MetaItem] = deque(maxlen=SYNC_LOG_MAX)
        self.sync_end = 0

    @property
    def knows_nothing(self) -> bool:
        """Whether this disk holds no parts and no metadata."""
        return self.parts == 0 and not self.sync_all()

    def channel(self, channel_key: bytes) -> Channel:
        """The channel, made on first use."""
        channel = self.channels.get(channel_key)
        if channel is None:
            channel = self.channels[channel_key] = Channel(self.order, self.disks, self._quorum)
        return channel

    def blocked_generation(self, tablet: bytes) -> int:
        """The highest generation of a tablet that may change nothing; -1 if none."""
        item = self.blocks.get(tablet)
        return -1 if item is None else item.generation

    def history_version(self, tablet: bytes) -> int:
        """The version of the newest channel history of a tablet that is known; 0 if it has never changed groups."""
        item = self.histories.get(tablet)
        return 0 if item is None else item.version

    def chunk_use(self, number: int) -> ChunkUse:
        """The accounts of a chunk, opened on first use."""
        use = self.chunks.get(number)
        if use is None:
            use = self.chunks[number] = ChunkUse()
        return use

    def seal_chunk(self, number: int, size: int) -> None:
        """A chunk has got its last record."""
        use = self.chunk_use(number)
        use.size, use.sealed = size, True

    def add_part(self, blob_id: bytes, chunk: int, offset: int) -> Entry:
        """A part lies at this place now; an older copy of it on this disk is given up. Returns its entry."""
        channel = self.channel(blob_id[:CHANNEL_KEY_SIZE])
        key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        size_part = int.from_bytes(blob_id[PREFIX_SIZE:], "big")
        known = channel.entries(key)
        entry = make_entry(chunk, offset, size_part, known[0] & FLAGS_MASK if known else 0)
        kept = tuple(other for other in known if has_part(other) and not _same_part(other, entry))
        for other in known:
            if other not in kept and has_part(other):
                self._release(blob_id[:PREFIX_SIZE], other)
        channel.set_entries(key, (*kept, entry))
        self._account(entry, 1)
        return entry

    def drop_part(self, blob_id: bytes, entry: Entry | None = None) -> None:
        """Forget one part of a blob, only if it is this very entry where one is named; its flags stay."""
        channel = self.channel(blob_id[:CHANNEL_KEY_SIZE])
        key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        part = blob_id[-1] & 0xF
        known = channel.entries(key)
        gone = [
            held_entry
            for held_entry in known
            if place_of(held_entry).part == part and (entry is None or _same_place(held_entry, entry))
        ]
        if not gone:
            return
        kept = tuple(held_entry for held_entry in known if held_entry not in gone)
        flags = known[0] & FLAGS_MASK
        for held_entry in gone:
            self._release(blob_id[:PREFIX_SIZE], held_entry)
        channel.set_entries(key, kept or ((flags,) if flags else ()))

    def take_back(self, blob_id: bytes, entry: Entry, damaged: Entry | None) -> None:
        """A part did not reach the disk: forget it, but not that a damaged copy was there before it."""
        self.drop_part(blob_id, entry)
        channel_key, key = blob_id[:CHANNEL_KEY_SIZE], blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        if damaged is not None and self.entry_of(blob_id) is None and not self.channel(channel_key).is_garbage(key):
            place = place_of(damaged)
            self.mark_damaged(blob_id, self.add_part(blob_id, place.chunk, place.offset))

    def entry_of(self, blob_id: bytes) -> Entry | None:
        """The entry of this very part, damaged or not."""
        channel = self.channels.get(blob_id[:CHANNEL_KEY_SIZE])
        if channel is None:
            return None
        size_part = int.from_bytes(blob_id[PREFIX_SIZE:], "big")
        for held_entry in channel.entries(blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]):
            if size_part_of(held_entry) == size_part:
                return held_entry
        return None

    def mark_damaged(self, blob_id: bytes, entry: Entry) -> bool:
        """Note that the bytes of a part can no longer be trusted; whether that is news."""
        channel = self.channel(blob_id[:CHANNEL_KEY_SIZE])
        key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        known = channel.entries(key)
        marked = tuple(held_entry | DAMAGED if _same_place(held_entry, entry) else held_entry for held_entry in known)
        if marked == known:
            return False
        channel.set_entries(key, marked)
        self.damaged.add(blob_id)
        return True

    def listed(
        self, channel_key: bytes, begin: bytes, end: bytes | None, *, reverse: bool, limit: int, durable: tuple[int, int]
    ) -> list[IndexedBlob]:
        """Blobs of a channel with begin <= key < end that have parts here before the place `durable`, in order, up to `limit`."""
        channel = self.channels.get(channel_key)
        listed: list[IndexedBlob] = []
        if channel is None:
            return listed
        bound = entry_bound(durable)
        for key in channel.keys(begin, end, reverse=reverse):
            entries = [entry for entry in channel.wanted(key) if entry < bound and has_part(entry)]
            if entries:
                listed.append(_listed(key, entries))
                if len(listed) == limit:
                    break
        return listed

    def barrier_trouble(self, item: BarrierItem) -> str:
        """Why this barrier cannot follow the one that is held; empty if it can."""
        channel = self.channel(item.channel)
        held = (channel.hard if item.hard else channel.soft).own
        if held is None:
            return ""
        old_key, new_key = held[2:4], item[2:4]
        if new_key < old_key:
            return f"barrier {new_key} comes after {old_key}: generation and counter must rise"
        if new_key == old_key and item.collect != held.collect:
            return f"barrier {new_key} was set before, to another generation and step"
        if item.collect < held.collect:
            return f"barrier {new_key} would move back: what is behind {old_key} may be gone"
        return ""

    def is_news(self, item: MetaItem) -> bool:
        """Whether applying the item would tell anything new."""
        match item:
            case FlagsItem(prefix, flags):
                channel = self.channel(prefix[:CHANNEL_KEY_SIZE])
                return channel.flags(prefix[CHANNEL_KEY_SIZE:]) | flags != channel.flags(prefix[CHANNEL_KEY_SIZE:])
            case BlockItem(tablet, generation, _):
                return generation > self.blocked_generation(tablet)
            case HistoryItem(tablet, version, _):
                return version > self.history_version(tablet)
            case BarrierItem():
                channel = self.channel(item.channel)
                held = (channel.hard if item.hard else channel.soft).held[item.holder]
                return held is None or held[2:4] < item[2:4]
        return True

    def apply(self, item: MetaItem) -> bool:
        """Merge an item from the log, a checkpoint or another disk; whether it told anything new."""
        match item:
            case FlagsItem():
                return self._merge_flags(item)
            case BarrierItem():
                channel = self.channel(item.channel)
                barrier = channel.hard if item.hard else channel.soft
                news = barrier.learn(item)
                if news and item.holder == self.order:
                    self._log(item)
                return news
            case BlockItem():
                known = self.blocks.get(item.tablet)
                if known is not None and known.generation >= item.generation:
                    return False
                self.blocks[item.tablet] = item
                self._log(item)
                return True
            case HistoryItem():
                if item.version <= self.history_version(item.tablet):
                    return False
                self.histories[item.tablet] = item
                self._log(item)
                return True
            case DropItem():
                self.drop_part(item.blob_id)
                return True
            case UnkeepItem():
                return self._unkeep(item.prefix)
            case StateItem():
                news = item.state != self.state
                self.state = item.state
                return news

    def collect_garbage(self, channel_key: bytes, limit: int | None = None) -> bool:
        """Forget what the acting barriers have ended in a channel, looking at no more blobs than the limit; whether that was all
        of it."""
        channel = self.channels.get(channel_key)
        if channel is None:
            return True
        ended = channel.sweep(limit)
        if self.disks == 1 and not self.damaged:
            self._forget_all(channel, ended)
        else:
            for key in ended:
                self._forget(channel_key, channel, key)
        return channel.is_swept

    def collect_blob(self, channel_key: bytes, key: bytes) -> None:
        """Forget one blob if it is garbage, as when DoNotKeep comes to a blob below the barrier."""
        channel = self.channels.get(channel_key)
        if channel is not None and key in channel.blobs and channel.is_garbage(key):
            self._forget(channel_key, channel, key)

    def unconfirmed_keeps(self, confirmed: set[bytes]) -> list[UnkeepItem]:
        """What gives up the blobs that only a Keep flag keeps which is not among the confirmed ones."""
        return [
            UnkeepItem(channel_key + key)
            for channel_key, channel in self.channels.items()
            for key in channel.blobs
            if key[:8] <= channel.soft.acting and channel.flags(key) == KEEP and channel_key + key not in confirmed
        ]

    def drop_tombstones(self, synced: int) -> None:
        """Forget tombstones that every other disk has heard of: those up to `synced` in this disk's sync log."""
        while self.tombstones and self.tombstones[0][0] <= synced:
            _, channel_key, key = self.tombstones.popleft()
            channel = self.channels[channel_key]
            if key in channel.blobs and channel.is_garbage(key):
                channel.set_entries(key, ())

    def meta_items(self) -> Iterator[MetaItem]:
        """Blocks and barriers: for a checkpoint."""
        yield from self.blocks.values()
        yield from self.histories.values()
        for channel in self.channels.values():
            for barrier in (channel.soft, channel.hard):
                yield from (item for item in barrier.held if item is not None)

    def sync_since(self, position: int) -> list[MetaItem] | None:
        """What another disk that knows this one up to `position` has not heard; None if it must take everything."""
        behind = self.sync_end - position
        if position < 0 or not 0 <= behind <= len(self.sync_log):
            return None
        return [self.sync_log[index] for index in range(len(self.sync_log) - behind, len(self.sync_log))]

    def sync_all(self) -> list[MetaItem]:
        """All blocks, flags and barriers of this disk, flags before barriers."""
        items: list[MetaItem] = [*self.blocks.values(), *self.histories.values()]
        for channel_key, channel in self.channels.items():
            items.extend(FlagsItem(channel_key + key, channel.flags(key)) for key in channel.blobs if channel.flags(key))
        for channel in self.channels.values():
            items.extend(own for own in (channel.soft.own, channel.hard.own) if own is not None)
        return items

    def short_chunks(self, sizes: Mapping[int, int]) -> set[int]:
        """Chunks that are not there, or end before parts that are wanted in them, given the sizes of those that are there."""
        return {number for number, use in self.chunks.items() if use.live and use.extent > sizes.get(number, 0)}

    def mark_missing(self, short: set[int], sizes: Mapping[int, int]) -> int:
        """After recovery: parts that should lie beyond the ends of these chunks are damaged. Returns how many."""
        lost = 0
        for channel_key, channel in self.channels.items():
            for key in list(channel.blobs):
                for entry in channel.entries(key):
                    place = place_of(entry)
                    if not place.part or place.chunk not in short:
                        continue
                    if place.offset + record_size(self.part_size(place.size)) > sizes.get(place.chunk, 0):
                        blob_id = channel_key + key + size_part_of(entry).to_bytes(4, "big")
                        lost += self.mark_damaged(blob_id, entry)
        return lost

    def _merge_flags(self, item: FlagsItem) -> bool:
        channel_key, key = item.prefix[:CHANNEL_KEY_SIZE], item.prefix[CHANNEL_KEY_SIZE:]
        channel = self.channel(channel_key)
        if key[:8] <= channel.hard.acting:
            # A hard barrier heeds no flags. A Keep that a disk brings back from its absence must not go round for ever.
            return False
        if key not in channel.blobs and channel.is_garbage(key) and item.flags != 1:
            # Long gone here: there is nothing that the flag could end, and a Keep that it must outlive is not known either.
            return False
        news = channel.merge_flags(key, item.flags)
        if news:
            # All that is known of it: a Keep alone would come back to a disk that has forgotten the DoNotKeep by then.
            self._log(FlagsItem(item.prefix, channel.flags(key)))
        return news

    def _unkeep(self, prefix: bytes) -> bool:
        channel_key, key = prefix[:CHANNEL_KEY_SIZE], prefix[CHANNEL_KEY_SIZE:]
        channel = self.channel(channel_key)
        if channel.flags(key) != KEEP:
            return False
        self._forget(channel_key, channel, key)
        return True

    def _forget(self, channel_key: bytes, channel: Channel, key: bytes) -> None:
        for entry in channel.entries(key):
            if has_part(entry):
                self._release(channel_key + key, entry)
        if self.disks > 1 and channel.is_tombstone_needed(key):
            channel.set_entries(key, (channel.flags(key),))
            self.tombstones.append((self.sync_end, channel_key, key))
        else:
            channel.set_entries(key, ())

    def _forget_all(self, channel: Channel, keys: list[bytes]) -> None:
        """As `_forget` for each, where no other disk has to hear of it and no part is damaged. Every entry of a tablet's log
        comes to this end."""
        freed: dict[int, int] = {}
        parts = 0
        for key in keys:
            for entry in channel.entries(key):
                if has_part(entry):
                    chunk, size_part = entry >> CHUNK_SHIFT, size_part_of(entry)
                    freed[chunk] = freed.get(chunk, 0) + record_size(self.part_size(size_part >> 4))
                    parts += 1
            channel.blobs.pop(key, None)  # both barriers may have ended it
        for chunk, size in freed.items():
            self.chunk_use(chunk).live -= size
        self.parts -= parts

    def _release(self, prefix: bytes, entry: Entry) -> None:
        self._account(entry, -1)
        if entry & DAMAGED:
            self.damaged.discard(prefix + size_part_of(entry).to_bytes(4, "big"))

    def _account(self, entry: Entry, sign: int) -> None:
        place = place_of(entry)
        self.chunk_use(place.chunk).live += sign * record_size(self.part_size(place.size))
        self.parts += sign

    def _log(self, item: MetaItem) -> None:
        self.sync_log.append(item)
        self.sync_end += 1


def _listed(key: bytes, entries: list[Entry]) -> IndexedBlob:
    parts = damaged = 0
    size = size_part_of(entries[0]) >> 4
    for entry in entries:
        bit = 1 << (entry >> SIZE_PART_SHIFT & 0xF) - 1
        if entry & DAMAGED:
            damaged |= bit
        else:
            parts |= bit
    return IndexedBlob(key, size, parts, damaged)


def _same_part(one: Entry, other: Entry) -> bool:
    return place_of(one).part == place_of(other).part


def _same_place(one: Entry, other: Entry) -> bool:
    return place_of(one)[:2] == place_of(other)[:2]
