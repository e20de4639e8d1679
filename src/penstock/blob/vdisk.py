"""A VDisk: one disk's share of a group. It stores parts and metadata, and answers the group's proxy and its sister disks.

Every change is appended to the journal and acknowledged once it is durable; metadata takes effect in memory at once, so that
two rivals never both pass a check. Nothing here knows of erasure beyond the length of a part.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from functools import partial
from random import Random

from penstock.blob import quorum
from penstock.blob.blob_id import CHANNEL_KEY_SIZE, PREFIX_SIZE, BlobId
from penstock.blob.channel import CHUNK_SHIFT, DAMAGED, OFFSET_SHIFT, entry_bound, place_of, size_part_of
from penstock.blob.chunk_ends import ChunkEnds
from penstock.blob.disk import Buffer, Disk, FilePiece
from penstock.blob.disk_room import NO_LIMIT, DiskRoom
from penstock.blob.erasure import codec_for
from penstock.blob.identity import Identity, claim_disk
from penstock.blob.index import DiskIndex
from penstock.blob.journal import Journal
from penstock.blob.link import BlocksReply, ChannelsReply, CollectRequest, DiskReply, Page, PartsReply, TabletReply
from penstock.blob.meta import (
    BarrierItem,
    BlockItem,
    DiskState,
    DropItem,
    FlagsItem,
    HistoryItem,
    MetaItem,
    StateItem,
    encode_items,
)
from penstock.blob.options import VDiskOptions
from penstock.blob.part_intake import PART, PartIntake, place_part
from penstock.blob.part_reader import part_id_of, part_piece, read_part_at_hand, read_stored
from penstock.blob.record import NO_ID, RecordKind
from penstock.blob.recovery import Recovery, recover
from penstock.blob.sister_sync import SisterSync
from penstock.blob.sisters import Sisters
from penstock.blob.status import Reply, Status
from penstock.blob.topology import Erasure, VDiskId
from penstock.blob.vector import Content, contiguous

SWEEP_AT_ONCE = 200  # blobs that a barrier has ended; more of them are forgotten in later turns of the loop


_UNLEARNED = "has not yet learned the group's blocks and barriers from a quorum of the others"
_OK = Status.OK  # to look it up in the enumeration costs every part a third of a microsecond
_WRITTEN = DiskReply(Status.OK, written=True)
_PRESENT = DiskReply(Status.OK)
_KNOWN = DiskReply(Status.OK, "to be compared with what is stored")


class VDisk(PartIntake, SisterSync, DiskRoom):
    """One VDisk over one Disk. Make it with `open`; `close` it when done."""

    def __init__(
        self,
        vdisk_id: VDiskId,
        erasure: Erasure,
        disk: Disk,
        recovered: Recovery,
        *,
        guid: bytes,
        options: VDiskOptions,
        random: Random,
    ) -> None:
        self.id = vdisk_id
        self.erasure = erasure
        self.order = vdisk_id.order(erasure)
        self.disk = disk
        self.options = options
        self.index = recovered.index
        self.recovered = recovered
        self.closed = self.full = False
        self.bytes_max = NO_LIMIT
        self._init_sync(erasure, recovered)
        self.answers = True  # whether its disk answered when upkeep looked last
        self.repair_wanted = asyncio.Event()
        # A part may be missing that the index does not miss, until the disk has been compared with its sisters.
        self.proves_absence = self.index.state == DiskState.COMPLETE and not recovered.unknown_loss
        self._incarnation = random.getrandbits(63)
        self._random = random
        self.sisters = Sisters(self.order, guid, self.index.marks)
        # Until it has heard what its sisters have blocked and collected since it was open last, it takes no commands.
        self.in_step = erasure.shape.disks == 1
        # Counts of journal failures: at which metadata was lost from the log, and up to which a checkpoint has all in memory.
        self._forgetful_since = 0
        self.failures_covered = 0
        self._synced_to = [-1] * erasure.shape.disks
        self._sweeping: set[bytes] = set()  # channels in which blobs are left that a barrier has ended
        head = Identity(vdisk_id.group, erasure, vdisk_id.realm, vdisk_id.domain, vdisk_id.vdisk, bytes(16)).pack()
        self.journal = Journal(
            disk,
            first_chunk=recovered.next_chunk,
            chunk_size=options.chunk_size,
            head=head,
            on_seal=self.index.seal_chunk,
            reached=recovered.last,
        )
        self.ends = ChunkEnds(disk, recovered.ends_file, recovered.ends)
        if recovered.losses:
            self.repair_wanted.set()

    @classmethod
    async def open(
        cls, vdisk_id: VDiskId, erasure: Erasure, disk: Disk, *, random: Random, options: VDiskOptions | None = None
    ) -> VDisk:
        """Claim the disk and recover what it holds. ConfigError if the disk is not this VDisk's."""
        identity = await claim_disk(disk, vdisk_id, erasure, random)
        enough = partial(quorum.group_quorum, erasure)
        index = DiskIndex(vdisk_id.order(erasure), erasure.shape.disks, enough, codec_for(erasure).part_size)
        options = options or VDiskOptions()
        recovered = await recover(disk, index, only_copy=erasure is Erasure.NONE, accept_loss=options.accept_loss)
        vdisk = cls(vdisk_id, erasure, disk, recovered, guid=identity.guid, options=options, random=random)
        if erasure is Erasure.NONE and index.state != DiskState.COMPLETE:
            await vdisk.reach(DiskState.COMPLETE)
            vdisk.proves_absence = not recovered.unknown_loss
        return vdisk

    async def put(self, generation: int, blob_id: bytes, body: Content, *, from_reserve: bool = False) -> DiskReply:
        """Store one part; `blob_id` is the packed id with its part. On a full disk only `from_reserve`."""
        if self.is_cut_off:
            await self.wait_until_heard()
        if not from_reserve and self.journal.bytes_appended > self.bytes_max:
            await self.seek_room(len(body))
        refusal = self._begin_put(generation, blob_id, body, from_reserve=from_reserve)
        if refusal is not None:
            return refusal if refusal is not _KNOWN else await self._put_again(generation, blob_id, contiguous(body))
        error = await self.journal.commit()
        if error is not None:
            return self._failure(error)
        # The place of the part, written out since every part of a blob comes by here.
        entry = self.index.channels[blob_id[:CHANNEL_KEY_SIZE]].blobs.get(blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE], 0)
        if not isinstance(entry, int):
            entry = self.index.entry_of(blob_id) or 0
        return DiskReply(_OK, "", True, False, (entry >> CHUNK_SHIFT, entry >> OFFSET_SHIFT & 0xFFFFFFFF))

    async def put_all(
        self, generation: int, parts: Sequence[tuple[bytes, Content]], *, from_reserve: bool = False
    ) -> list[DiskReply]:
        """Store parts of different blobs, which become durable together; each has a reply of its own."""
        if self.is_cut_off:
            await self.wait_until_heard()
        if not from_reserve:
            await self.seek_room(sum(len(body) for _, body in parts))
        begun = [self._begin_put(generation, blob_id, body, from_reserve=from_reserve) for blob_id, body in parts]
        if None in begun:
            error = await self.journal.commit()
            begun = [
                reply or (self._written(blob_id) if error is None else self._failure(error))
                for reply, (blob_id, _) in zip(begun, parts, strict=True)
            ]
        for at, (blob_id, body) in enumerate(parts):
            if begun[at] is _KNOWN:
                begun[at] = await self._put_again(generation, blob_id, contiguous(body))
        return [reply for reply in begun if reply is not None]

    def reply_for(self, error: OSError) -> Reply:
        failure = self._failure(error)
        return Reply(failure.status, failure.reason)

    def _begin_put(self, generation: int, blob_id: bytes, body: Content, *, from_reserve: bool) -> DiskReply | None:
        """Place a part in the journal: None. Otherwise why not; `_KNOWN` if something is known of the blob already."""
        index = self.index
        key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        channel = index.channels.get(blob_id[:CHANNEL_KEY_SIZE])
        if channel is None:
            channel = index.channel(blob_id[:CHANNEL_KEY_SIZE])
        refusal = self._refusal(generation, blob_id[:8], int.from_bytes(key[:4], "big"))
        if refusal is not None:
            return refusal
        if channel.refuses(key):
            return DiskReply(Status.ERROR, f"{_named(blob_id)} is below a barrier: it would be garbage at once")
        if not from_reserve and (self.full or self.journal.bytes_appended > self.bytes_max):
            return self._out_of_space()
        if key in channel.blobs:
            return _KNOWN
        self.journal.undo_on_failure(place_part(index, self.journal, channel, blob_id, body))
        return None

    def _written(self, blob_id: bytes) -> DiskReply:
        """The reply to a part that was stored now; the only disk of a group takes nothing back, and does not tell the place."""
        if self.erasure is Erasure.NONE:
            return _WRITTEN
        return DiskReply(Status.OK, written=True, place=place_of(self.index.entry_of(blob_id) or 0)[:2])

    async def put_replica(self, generation: int, blob_id: bytes, body: Buffer) -> DiskReply:
        """Store a part that this disk should have held already: blocks do not stand in its way, barriers do."""
        if generation != self.id.generation:
            return self._race(generation)
        if self.closed:
            return DiskReply(Status.ERROR, f"VDisk {self.id} is closed")
        channel = self.index.channel(blob_id[:CHANNEL_KEY_SIZE])
        if channel.refuses(blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]):
            return DiskReply(Status.NODATA, f"{_named(blob_id)} is below a barrier of VDisk {self.id}: it is garbage by now")
        await self.seek_room_for_replica()
        if self.journal.bytes_appended > self.replica_bytes_max:
            return self._out_of_space()
        return await self._put_again(generation, blob_id, body, is_replica=True)

    async def get(self, generation: int, blob_id: bytes, offset: int, length: int) -> PartsReply:
        """Read a range of one part, or with part 0 in the id every part held here, whole."""
        if generation != self.id.generation:
            return PartsReply(Status.RACE)
        if self.closed:
            return PartsReply(Status.ERROR, (), f"VDisk {self.id} is closed")
        if self.index.state == DiskState.FRESH:
            return PartsReply(Status.ERROR, (), f"VDisk {self.id} {_UNLEARNED}")
        channel = self.index.channels.get(blob_id[:CHANNEL_KEY_SIZE])
        key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        part = blob_id[-1] & 0xF
        size = int.from_bytes(blob_id[PREFIX_SIZE:], "big") >> 4
        entries = () if channel is None else channel.wanted(key)
        found: list[tuple[int, Buffer]] = []
        held = 0  # entries of parts that could not be read, and were not gone by then; all together
        for entry in entries:
            place = place_of(entry)
            if not place.part or place.size != size or part not in (0, place.part):
                continue
            data = await read_stored(self, blob_id, entry, offset, length, whole=part == 0)
            if data is not None:
                found.append((place.part, data))
            else:
                held |= self.index.entry_of(part_id_of(blob_id, place)) or 0
        if found:
            return PartsReply(_OK, tuple(found))
        if held:  # a disk that fails to read may give the part later
            trouble = "is damaged" if held & DAMAGED else "cannot be read now"
            return PartsReply(Status.ERROR, (), f"{_named(blob_id)} {trouble} on VDisk {self.id}", damaged=held & DAMAGED != 0)
        if not self.proves_absence:
            why = "has lost part of its log" if self.erasure is Erasure.NONE else "is being refilled"
            return PartsReply(Status.ERROR, (), f"VDisk {self.id} {why} and cannot tell what it should hold")
        return PartsReply(Status.NODATA)

    def piece(self, generation: int, blob_id: bytes, offset: int, length: int) -> FilePiece | None:
        """A range of a part that is here and durable, as a piece of its file."""
        channel = self.index.channels.get(blob_id[:CHANNEL_KEY_SIZE])
        if channel is None or generation != self.id.generation:
            return None
        wanted = int.from_bytes(blob_id[PREFIX_SIZE:], "big")
        for entry in channel.entries(blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]):
            place = place_of(entry)
            if place.size << 4 | place.part == wanted and not place.damaged and place[:2] < self.journal.durable:
                return part_piece(self.disk, place, self.index.part_size(place.size), offset, length)
        return None

    def part_at_hand(self, generation: int, blob_id: bytes) -> Buffer | None:
        """A whole part that is here, durable and sound, if its bytes are in memory; None if `get` must fetch it."""
        channel = self.index.channels.get(blob_id[:CHANNEL_KEY_SIZE])
        if channel is None or generation != self.id.generation or self.closed or self.index.state == DiskState.FRESH:
            return None
        size_part, bound = int.from_bytes(blob_id[PREFIX_SIZE:], "big"), entry_bound(self.journal.durable)
        for entry in channel.wanted(blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]):
            if size_part_of(entry) == size_part and not entry & DAMAGED and entry < bound:
                return read_part_at_hand(self.disk, place_of(entry), self.index.part_size(size_part >> 4))
        return None

    async def block(self, generation: int, item: BlockItem, history: HistoryItem | None = None) -> DiskReply:
        """Raise the blocked generation of a tablet to `item.generation`, and take its channel history if that is newer."""
        if self.is_cut_off:
            await self.wait_until_heard()
        reply = await self._block(generation, item, history)
        newest = self.index.histories.get(item.tablet)
        return reply if newest is None else reply._replace(history=newest)

    async def _block(self, generation: int, item: BlockItem, history: HistoryItem | None) -> DiskReply:
        refusal = self._refusal(generation, item.tablet, item.generation + 1)
        if refusal is not None:
            return refusal
        known = self.index.blocks.get(item.tablet)
        if known is not None and known.generation == item.generation and known.issuer != item.issuer:
            return DiskReply(Status.ALREADY, f"generation {item.generation + 1} of the tablet has been started before")
        return await self._record([item] if history is None else [item, history])

    async def collect(self, generation: int, request: CollectRequest) -> DiskReply:
        """Set keep flags, then a barrier."""
        if self.is_cut_off:
            await self.wait_until_heard()
        refusal = self._refusal(generation, request.channel[:8], request.record_generation)
        if refusal is not None:
            return refusal
        items: list[MetaItem] = [FlagsItem(request.channel + key, 1) for key in request.keep]
        items += [FlagsItem(request.channel + key, 2) for key in request.do_not_keep]
        if request.collect is not None:
            barrier = BarrierItem(
                request.channel, request.hard, request.record_generation, request.counter, request.collect, self.order
            )
            wrong = self.index.barrier_trouble(barrier)
            if wrong:
                return DiskReply(Status.ERROR, wrong)
            items.append(barrier)
        return await self._record(items) if items else _PRESENT

    async def look_up(self, generation: int, tablet: bytes) -> TabletReply:
        """The highest generation of the tablet that may change nothing, that of its newest log entry, and its channel history."""
        if generation != self.id.generation:
            return TabletReply(Status.RACE)
        index = self.index
        if self.closed or index.state == DiskState.FRESH:
            return TabletReply(Status.ERROR)
        newest = index.listed(tablet + b"\0", b"", None, reverse=True, limit=1, durable=self.journal.durable)
        log_generation = int.from_bytes(newest[0].key[:4], "big") if newest else -1
        return TabletReply(Status.OK, index.blocked_generation(tablet), log_generation, index.histories.get(tablet))

    async def blocked_generations(self, generation: int, tablets: bytes) -> BlocksReply:
        """The highest generation of each tablet that may change nothing. A disk that may have gone back in time says nothing."""
        if generation != self.id.generation:
            return BlocksReply(Status.RACE)
        if self.closed or self.index.state == DiskState.FRESH or not self.in_step:
            return BlocksReply(Status.ERROR)
        blocked = self.index.blocked_generation
        return BlocksReply(Status.OK, tuple([blocked(tablets[at : at + 8]) for at in range(0, len(tablets), 8)]))

    async def listing(
        self, generation: int, channel_key: bytes, begin: bytes, end: bytes | None, *, reverse: bool, limit: int
    ) -> Page:
        """Blobs of a channel with begin <= key < end of which this disk holds parts, in order, up to `limit`."""
        if generation != self.id.generation:
            return Page(Status.RACE)
        if self.closed or self.index.state == DiskState.FRESH:
            return Page(Status.ERROR)
        found = self.index.listed(channel_key, begin, end, reverse=reverse, limit=limit, durable=self.journal.durable)
        return Page(Status.OK, found, self.proves_absence)

    async def channels(self, generation: int) -> ChannelsReply:
        """The keys of all channels of which this disk holds parts."""
        if generation != self.id.generation:
            return ChannelsReply(Status.RACE)
        if self.closed or self.index.state == DiskState.FRESH:
            return ChannelsReply(Status.ERROR)
        keys = [channel_key for channel_key, channel in self.index.channels.items() if channel.blobs]
        return ChannelsReply(Status.OK, keys, self.proves_absence)

    async def drop(self, generation: int, blob_id: bytes, place: tuple[int, int]) -> DiskReply:
        """Drop the part at this place, because its main place holds it or because its put is undone."""
        if generation != self.id.generation:
            return self._race(generation)
        entry = self.index.entry_of(blob_id)
        if entry is None or place_of(entry)[:2] != place:
            return DiskReply(Status.NODATA, f"{_named(blob_id)} is not at this place of VDisk {self.id} any more")
        return await self._record([DropItem(blob_id)])

    async def reach(self, state: DiskState) -> DiskReply:
        """Record durably that this disk has reached a state."""
        reply = await self._record([StateItem(state)])
        if reply.status is Status.OK and state == DiskState.COMPLETE:
            self.proves_absence = True
        return reply

    @property
    def lacks_parts(self) -> bool:
        """Whether it is being refilled: it knows the group's metadata, and not yet all of its parts. The only disk of a group
        never is: there is none to refill it from."""
        return self.index.state != DiskState.FRESH and not self.proves_absence and self.erasure is not Erasure.NONE

    @property
    def is_failing(self) -> bool:
        """Whether its disk hangs or fails to write, or has failed and metadata is in memory only since."""
        return not self.answers or self.journal.trouble is not None or self.journal.failures != self.failures_covered

    def set_generation(self, generation: int) -> None:
        """The group changed: commands of older generations are answered RACE from now on."""
        self.id = self.id._replace(generation=generation)

    async def close(self) -> None:
        """Flush and close the disk."""
        if self.closed:
            return
        self.closed = True
        await self.journal.close()
        await self.ends.close(self.journal.ends)
        await self.disk.close()

    def _refusal(self, generation: int, tablet: bytes, tablet_generation: int) -> DiskReply | None:
        if self.takes(generation, tablet, tablet_generation):
            return None
        if generation != self.id.generation:
            return self._race(generation)
        if self.closed:
            return DiskReply(Status.ERROR, f"VDisk {self.id} is closed")
        if self.index.state == DiskState.FRESH:
            return DiskReply(Status.ERROR, f"VDisk {self.id} {_UNLEARNED}")
        if not self.in_step or self.is_cut_off:
            since = "its links to them broke" if self.in_step else "it was opened"
            return DiskReply(Status.ERROR, f"VDisk {self.id} has not yet heard from enough of its sisters since {since}")
        started = self.index.blocks[tablet].generation + 1
        reason = f"generation {tablet_generation} of the tablet is blocked: {started} or later has been started"
        return DiskReply(Status.BLOCKED, reason)

    async def _record(self, items: list[MetaItem]) -> DiskReply:
        """Log items and apply them. They are logged even where they are known: an earlier copy may never have become durable."""
        self.journal.append(RecordKind.META, NO_ID, encode_items(items))
        # They stay in effect here all the same: that they may be forgotten in a crash must not go unnoticed.
        self.journal.undo_on_failure((self._note_forgetful,))
        index = self.index
        channels: set[bytes] = set()
        for item in items:
            index.apply(item)
            if isinstance(item, BarrierItem):
                channels.add(item.channel)
        for channel_key in channels - self._sweeping:
            self._sweep(channel_key)
        for item in items:
            if isinstance(item, FlagsItem) and item.flags & 2:
                index.collect_blob(item.prefix[:CHANNEL_KEY_SIZE], item.prefix[CHANNEL_KEY_SIZE:])
        return await self._settle()

    def _note_forgetful(self) -> None:
        self._forgetful_since = self.journal.failures

    def _sweep(self, channel_key: bytes) -> None:
        """Forget what a barrier has ended, a slice in each turn of the loop. The barrier acts at once: what is not forgotten yet
        is not given out any more, and if this disk stops before the end, its next opening forgets the rest."""
        if self.closed or self.index.collect_garbage(channel_key, SWEEP_AT_ONCE):
            self._sweeping.discard(channel_key)
        else:
            self._sweeping.add(channel_key)
            asyncio.get_running_loop().call_soon(self._sweep, channel_key)

    async def _settle(self) -> DiskReply:
        """Wait until all that was logged so far is durable."""
        error = await self.journal.commit()
        return _PRESENT if error is None else self._failure(error)

    async def _put_again(self, generation: int, blob_id: bytes, body: Buffer, *, is_replica: bool = False) -> DiskReply:
        """The disk knows something of this blob: flags, another part, or this very part."""
        index = self.index
        channel = index.channel(blob_id[:CHANNEL_KEY_SIZE])
        key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        wanted = int.from_bytes(blob_id[PREFIX_SIZE:], "big")
        for entry in channel.entries(key):
            place = place_of(entry)
            if not place.part or place.damaged:
                continue
            if place.size != wanted >> 4:
                reason = f"{_named(blob_id)} is stored with size {place.size}; blobs never change"
                return DiskReply(Status.ERROR, reason, conflict=True)
            if place.part == wanted & 0xF:
                stored = await read_stored(self, blob_id, entry, 0, 0, whole=True)
                if stored is not None and memoryview(stored) != memoryview(body):
                    reason = f"{_named(blob_id)} is stored with other bytes; blobs never change"
                    return DiskReply(Status.ERROR, reason, conflict=True)
                if stored is not None:
                    return _PRESENT
        before = index.entry_of(blob_id)
        if before is not None and not before & DAMAGED:
            return DiskReply(Status.ERROR, f"{_named(blob_id)} is on VDisk {self.id} but cannot be read now to be compared")
        if channel.refuses(key):
            return DiskReply(Status.ERROR, f"{_named(blob_id)} is below a barrier: it would be garbage at once")
        # While it was compared, its tablet may have been blocked.
        refusal = None if is_replica else self._refusal(generation, blob_id[:8], int.from_bytes(key[:4], "big"))
        if refusal is not None:
            return refusal
        chunk, offset = self.journal.append(PART, blob_id, body)
        entry = index.add_part(blob_id, chunk, offset)
        self.journal.undo_on_failure((index.take_back, blob_id, entry, before))
        error = await self.journal.commit()
        return DiskReply(Status.OK, written=True, place=(chunk, offset)) if error is None else self._failure(error)

    def _failure(self, error: OSError) -> DiskReply:
        if error.errno == errno.ENOSPC:
            self.full = True
            return DiskReply(Status.OUT_OF_SPACE, f"VDisk {self.id} has no byte left on its disk; make room there")
        return DiskReply(Status.ERROR, f"VDisk {self.id} cannot write: {error.strerror or error}")


def _named(blob_id: bytes) -> BlobId:
    """The blob as its owner knows it, without the part."""
    return BlobId.unpack(blob_id).whole()
