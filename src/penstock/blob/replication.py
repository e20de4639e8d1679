"""Replication: restores the parts a VDisk should hold after it was wiped, was out or was damaged, and drops handoffs no longer
needed."""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.blob.blob_id import CHANNEL_KEY_SIZE, PREFIX_SIZE
from penstock.blob.channel import DAMAGED, place_of
from penstock.blob.disk import Buffer
from penstock.blob.group import Group
from penstock.blob.link import ChannelsReply
from penstock.blob.meta import DiskState
from penstock.blob.quorum import absence_shown, fits_fail_model, put_done, put_excluded, recoverable
from penstock.blob.range_operation import ListedBlob, ListingError, MergedListing, judge
from penstock.blob.refill_pace import RefillPace
from penstock.blob.status import Status
from penstock.blob.topology import allowed_parts, main_part
from penstock.blob.vdisk import VDisk

AT_ONCE = 256  # blobs of 4 KiB then fill a batch: a batch costs a listing, a sync and a rest however little it restores
AT_ONCE_BYTES = 1 << 20  # of blobs that are restored together: other traffic waits behind no more
PATIENCE_S = 5.0  # for a disk that is late: without its answer a refill may have to start again
PARTIAL_MAX = 1000  # blobs that a refilling disk looks at twice before it gives this round up


@dataclass(slots=True)
class RoundReport:
    """What a round of replication did. It is complete if nothing that could be had is still missing."""

    restored: int = 0
    restored_bytes: int = 0
    dropped: int = 0
    failed: int = 0
    reason: str = ""
    is_whole: bool = False  # whether it got to the end, with all disks that it needs

    @property
    def complete(self) -> bool:
        """Whether this disk now holds every part that it should."""
        return self.failed == 0


@dataclass(slots=True)
class RefillProgress:
    """How far a VDisk has compared itself with its sisters in the present round, by channels."""

    channels: int = 0
    compared: int = 0

    @property
    def ratio(self) -> float:
        """The share of channels that were compared."""
        return self.compared / self.channels if self.channels else 0.0


class Replicator:
    """Compares one VDisk with its sisters and repairs differences, on its own disk only.

    A refill ends only when nothing that was acknowledged can be missing: neither a blob that only silent disks hold, nor one
    of which this disk held a part in place of a sister that is back and has not got it yet. `cover_loss` sees to it that what is
    unreadable in the log of this disk is not missed again when it is opened the next time.
    """

    def __init__(self, vdisk: VDisk, group: Group, pace: RefillPace, cover_loss: Callable[[], Awaitable[bool]]) -> None:
        self._vdisk = vdisk
        self._cover_loss = cover_loss
        self._group = group
        self._pace = pace
        # When the last turn ended, and how many records the disk had then.
        self._rested_at, self._records_seen = pace.now(), vdisk.journal.records_appended
        self.progress = RefillProgress()
        # Of the round that goes on: the disks that gave no page or prove no absence, and blobs that lack a part somewhere.
        self._silent = 0
        self._partial: list[ListedBlob] = []

    async def round(self) -> RoundReport:
        """Go through all blobs of the group once. A disk found complete can prove absence again."""
        report = RoundReport()
        if self._vdisk.index.state == DiskState.FRESH:
            report.failed, report.reason = 1, "it has not yet learned the group's blocks and barriers"
            return report
        self._vdisk.repair_wanted.clear()
        self._silent, self._partial = 0, []
        self._rested_at, self._records_seen = self._pace.now(), self._vdisk.journal.records_appended
        try:
            keys = await self._channels()
            self.progress.channels, self.progress.compared = len(keys), 0
            for channel_key in keys:
                await self._mend_channel(channel_key, report)
                self.progress.compared += 1
            report.is_whole = True
            if report.complete and self._vdisk.lacks_parts:
                await self._end_refill(report)
        except ListingError as error:
            report.failed += 1
            report.reason = error.reason
        if report.restored:
            self._group.note_disorder()  # handoffs may hold what is in place now
        return report

    async def _end_refill(self, report: RoundReport) -> None:
        """All that was seen is here: note so durably, unless something acknowledged may not have been seen."""
        if not absence_shown(self._group.erasure, self._silent):
            report.failed, report.reason = 1, "too few disks can tell what this one should hold"
            return
        if self._vdisk.doubts_keeps:
            report.failed, report.reason = 1, "it has not yet compared its Keep flags with those of enough others"
            return
        for seen in self._partial[:PARTIAL_MAX]:
            await self._stand_in_again(seen, report)
        report.failed += len(self._partial[PARTIAL_MAX:])
        if report.complete and not await self._cover_loss():
            # Sisters that fail next rely on it: it must still be complete when it is opened again.
            report.failed, report.reason = 1, "no checkpoint can be written behind what is unreadable in its log"
        if report.complete:
            await self._vdisk.reach(DiskState.COMPLETE)

    async def _stand_in_again(self, seen: ListedBlob, report: RoundReport) -> None:
        """Look once more at a blob that lacks a part on a disk that is up: this one may have stood in for that before its loss.
        Most of these blobs were only being written, and are whole by now."""
        prefix = seen.blob_id.pack()[:PREFIX_SIZE]
        key = prefix[CHANNEL_KEY_SIZE:]
        async for again in MergedListing(self._group, prefix[:CHANNEL_KEY_SIZE], reverse=False).blobs(key, key + b"\0"):
            if self._is_partial(again):
                part = self._part_to_hold(again)
                await self._restore(again, part, report)
                self._group.note_disorder()  # the disk to which the part belongs is to look for it

    def _is_partial(self, seen: ListedBlob) -> bool:
        """Whether the blob is there, this disk is a handoff of it, and its parts are not all that an acknowledged put leaves,
        even if the disks that cannot tell hold theirs: all but this one, which has lost what it held."""
        erasure = self._group.erasure
        packed = seen.blob_id.pack()
        index = self._group.subgroup(packed[:PREFIX_SIZE]).index(self._vdisk.order)
        if main_part(erasure, index) or not recoverable(erasure, seen.parts) or self._is_unwanted(packed):
            return False
        return put_excluded(erasure, seen.parts, seen.unknown & ~(1 << index))

    def _part_to_hold(self, seen: ListedBlob) -> int:
        """The part that a handoff adds most with: one that makes the blob whole, or that no disk has."""
        erasure = self._group.erasure
        index = self._group.subgroup(seen.blob_id.pack()[:PREFIX_SIZE]).index(self._vdisk.order)
        held = functools.reduce(operator.or_, seen.parts)

        def worth(part: int) -> tuple[bool, bool]:
            parts = [mask | 1 << part - 1 if at == index else mask for at, mask in enumerate(seen.parts)]
            return not put_excluded(erasure, parts, seen.unknown & ~(1 << index)), not held >> part - 1 & 1

        return max(allowed_parts(erasure, index), key=worth)

    async def _channels(self) -> list[bytes]:
        generation, erasure, links = self._group.generation, self._group.erasure, self._group.links
        everyone = (1 << len(links)) - 1
        replies: dict[int, ChannelsReply] = {}

        def failed(replies: dict[int, ChannelsReply]) -> int:
            return everyone & ~sum(1 << order for order, reply in replies.items() if reply.status is Status.OK)

        asks = {order: link.channels(generation) for order, link in enumerate(links) if link is not None}
        replies = await self._group.ask(asks, lambda replies: fits_fail_model(erasure, failed(replies)), hedge_s=PATIENCE_S)
        if not fits_fail_model(erasure, failed(replies)):
            raise ListingError(Status.ERROR, "too few disks answer")
        self._silent |= everyone & ~sum(1 << order for order, reply in replies.items() if reply.proves_absence)
        return sorted({key for reply in replies.values() for key in reply.keys})

    async def _mend_channel(self, channel_key: bytes, report: RoundReport) -> None:
        waiting: list[ListedBlob] = []
        size = 0
        newest = await self._newest(channel_key)
        listing = MergedListing(self._group, channel_key, reverse=False, may_miss=True, hedge_s=PATIENCE_S)
        async for seen in listing.blobs(b"", None):
            waiting.append(seen)
            size += seen.blob_id.size if self._lacks(seen) else 0
            if len(waiting) == AT_ONCE or size >= AT_ONCE_BYTES:
                await self._take_turn(waiting, report, newest)
                waiting, size = [], 0
        await self._take_turn(waiting, report, newest)
        self._silent |= listing.silent

    async def _newest(self, channel_key: bytes) -> bytes:
        """About the newest blob of a channel now, by its key."""
        generation, links = self._group.generation, self._group.links
        asks = {
            order: link.listing(generation, channel_key, b"", None, reverse=True, limit=1)
            for order, link in enumerate(links)
            if link is not None
        }
        pages = await self._group.ask(asks, lambda pages: any(page.blobs for page in pages.values()))
        return max((page.blobs[0].key for page in pages.values() if page.blobs), default=b"")

    async def _take_turn(self, batch: list[ListedBlob], report: RoundReport, newest: bytes) -> None:
        """Mend a batch, then leave the group to others for as long as the pace asks for that and for the listing before it. Blobs
        that were put since the listing began are not rested for: it might never catch up with their writers."""
        is_new = bool(batch) and batch[-1].blob_id.pack()[CHANNEL_KEY_SIZE:PREFIX_SIZE] > newest
        pace, journal = self._pace, self._vdisk.journal
        listing_s = pace.now() - self._rested_at
        async with pace.turn:
            began, parts, size = pace.now(), report.restored, report.restored_bytes
            await self._mend(batch, report)
            parts, size = report.restored - parts, report.restored_bytes - size
            others = journal.records_appended - self._records_seen - parts
            took_s = 0.0 if is_new else listing_s + pace.now() - began
            await pace.rest(took_s, parts=parts, size=size, others=others)
        self._rested_at, self._records_seen = pace.now(), journal.records_appended

    def _lacks(self, seen: ListedBlob) -> bool:
        """Whether the part of a blob that belongs on this disk is not there."""
        index = self._group.subgroup(seen.blob_id.pack()[:PREFIX_SIZE]).index(self._vdisk.order)
        part = main_part(self._group.erasure, index)
        return part != 0 and not seen.parts[index] >> part - 1 & 1

    async def _mend(self, batch: list[ListedBlob], report: RoundReport) -> None:
        await asyncio.gather(*(self._mend_blob(seen, report) for seen in batch))
        if not self._vdisk.proves_absence:
            self._partial += filter(self._is_partial, batch)

    async def _mend_blob(self, seen: ListedBlob, report: RoundReport) -> None:
        packed = seen.blob_id.pack()
        orders = self._group.subgroup(packed[:PREFIX_SIZE])
        index = orders.index(self._vdisk.order)
        part = main_part(self._group.erasure, index)
        if part == 0:
            await self._drop_handoff(seen, report)
            return
        if seen.parts[index] >> part - 1 & 1 or self._is_unwanted(packed):
            return
        if not recoverable(self._group.erasure, seen.parts):
            if judge(self._group, seen) is None:
                report.failed += 1
                report.reason = f"too few disks can tell whether {seen.blob_id} is written"
            return
        await self._restore(seen, part, report)

    def _is_unwanted(self, packed: bytes) -> bool:
        """Whether the blob is garbage, or is being written here by a put in flight."""
        channel = self._vdisk.index.channels.get(packed[:CHANNEL_KEY_SIZE])
        return channel is not None and channel.refuses(packed[CHANNEL_KEY_SIZE:PREFIX_SIZE])

    async def _restore(self, seen: ListedBlob, part: int, report: RoundReport) -> None:
        codec = self._group.codec
        entry = self._vdisk.index.entry_of(seen.blob_id.pack_part(part))
        if entry is not None and not entry & DAMAGED:
            return  # it was being written when it was listed
        parts = await self._gather_parts(seen)
        if len(parts) < codec.data_parts and part not in parts:
            report.failed += 1
            report.reason = f"{seen.blob_id} cannot be read from the other disks now"
            return
        body = codec.restore(seen.blob_id.size, parts, (part,))[part] if part not in parts else parts[part]
        reply = await self._vdisk.put_replica(self._group.generation, seen.blob_id.pack_part(part), body)
        if reply.status is Status.OK:
            report.restored += reply.written
            report.restored_bytes += len(body) if reply.written else 0
        elif not self._is_unwanted(seen.blob_id.pack()):
            report.failed += 1
            report.reason = reply.reason

    async def _gather_parts(self, seen: ListedBlob) -> dict[int, Buffer]:
        """Sound parts of the blob from the disks that listed them."""
        packed = seen.blob_id.pack()
        size = self._group.codec.part_size(seen.blob_id.size)
        parts: dict[int, Buffer] = {}
        for index, order in enumerate(self._group.subgroup(packed[:PREFIX_SIZE])):
            link = self._group.links[order]
            if link is None or not seen.parts[index] or order == self._vdisk.order:
                continue
            if len(parts) >= self._group.codec.data_parts:
                break
            reply = await link.get(self._group.generation, packed, 0, size)
            parts.update(reply.parts)
        return parts

    async def _drop_handoff(self, seen: ListedBlob, report: RoundReport) -> None:
        """Drop the handoff parts of a blob once every main place holds its part, damaged or not."""
        mains = [held if main_part(self._group.erasure, at) else 0 for at, held in enumerate(seen.parts)]
        if not put_done(self._group.erasure, mains):
            return
        for part in range(1, self._group.codec.total_parts + 1):
            packed = seen.blob_id.pack_part(part)
            entry = self._vdisk.index.entry_of(packed)
            if entry is not None:
                reply = await self._vdisk.drop(self._group.generation, packed, place_of(entry)[:2])
                if reply.status is Status.OK:
                    report.dropped += 1
