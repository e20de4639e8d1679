"""Giving a VDisk the parts it should hold: after it was wiped, was out, or lost some to damage; and tidying handoffs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.blob.blob_id import CHANNEL_KEY_SIZE, PREFIX_SIZE
from penstock.blob.disk import Buffer
from penstock.blob.group import Group
from penstock.blob.meta import DiskState
from penstock.blob.quorum import fits_fail_model, put_done, recoverable
from penstock.blob.range_operation import ListingError, MergedListing, Seen, judge
from penstock.blob.status import Status
from penstock.blob.topology import main_part
from penstock.blob.vdisk import VDisk

AT_ONCE = 8


@dataclass(slots=True)
class RoundReport:
    """What a round of replication did. It is complete if nothing that could be had is still missing."""

    restored: int = 0
    dropped: int = 0
    phantoms: int = 0
    failed: int = 0
    reason: str = ""

    @property
    def complete(self) -> bool:
        """Whether this disk now holds every part that it should."""
        return self.failed == 0


class Replicator:
    """Compares one VDisk with its sisters and mends what differs on its own disk only."""

    def __init__(self, vdisk: VDisk, group: Group) -> None:
        self._vdisk = vdisk
        self._group = group

    async def round(self) -> RoundReport:
        """Go through all blobs of the group once. A disk found complete can prove absence again."""
        report = RoundReport()
        if self._vdisk.index.state == DiskState.FRESH:
            report.failed, report.reason = 1, "it has not yet learned the group's blocks and barriers"
            return report
        self._vdisk.repair_wanted.clear()
        try:
            for channel_key in await self._channels():
                await self._mend_channel(channel_key, report)
        except ListingError as error:
            report.failed += 1
            report.reason = error.reason
        if report.complete and not self._vdisk.proves_absence:
            await self._vdisk.reach(DiskState.COMPLETE)
        if report.restored:
            self._group.disorders += 1  # handoffs may hold what is in place now
        return report

    async def _channels(self) -> list[bytes]:
        found: dict[bytes, None] = {}
        failed = 0
        for order, link in enumerate(self._group.links):
            status, channels = (Status.ERROR, []) if link is None else await link.channels(self._group.generation)
            if status is Status.OK:
                found.update(dict.fromkeys(channels))
            else:
                failed |= 1 << order
        if not fits_fail_model(self._group.erasure, failed):
            raise ListingError(Status.ERROR, "too few disks answer")
        return sorted(found)

    async def _mend_channel(self, channel_key: bytes, report: RoundReport) -> None:
        waiting: list[Seen] = []
        async for seen in MergedListing(self._group, channel_key, reverse=False).blobs(b"", None):
            waiting.append(seen)
            if len(waiting) == AT_ONCE:
                await self._mend(waiting, report)
                waiting = []
        await self._mend(waiting, report)

    async def _mend(self, batch: list[Seen], report: RoundReport) -> None:
        await asyncio.gather(*(self._mend_blob(seen, report) for seen in batch))

    async def _mend_blob(self, seen: Seen, report: RoundReport) -> None:
        packed = seen.blob_id.pack()
        orders = self._group.subgroup(packed[:PREFIX_SIZE])
        index = orders.index(self._vdisk.order)
        part = main_part(self._group.erasure, index)
        if part == 0:
            await self._tidy_handoff(seen, report)
            return
        if seen.parts[index] >> part - 1 & 1 or self._is_unwanted(packed):
            return
        if not recoverable(self._group.erasure, seen.parts):
            if judge(self._group, seen) is None:
                report.failed += 1
                report.reason = f"too few disks can tell whether {seen.blob_id} is written"
            else:
                report.phantoms += 1
            return
        await self._restore(seen, part, report)

    def _is_unwanted(self, packed: bytes) -> bool:
        """Whether the blob is garbage, or on its way here by the put that is under way."""
        channel = self._vdisk.index.channels.get(packed[:CHANNEL_KEY_SIZE])
        return channel is not None and channel.refuses(packed[CHANNEL_KEY_SIZE:PREFIX_SIZE])

    async def _restore(self, seen: Seen, part: int, report: RoundReport) -> None:
        codec = self._group.codec
        parts = await self._gather_parts(seen)
        if len(parts) < codec.data_parts and part not in parts:
            report.failed += 1
            report.reason = f"{seen.blob_id} cannot be read from the other disks now"
            return
        body = codec.restore(seen.blob_id.size, parts, (part,))[part] if part not in parts else parts[part]
        reply = await self._vdisk.put_replica(self._group.generation, seen.blob_id.pack_part(part), body)
        if reply.status is Status.OK:
            report.restored += 1
        elif not self._is_unwanted(seen.blob_id.pack()):
            report.failed += 1
            report.reason = reply.reason

    async def _gather_parts(self, seen: Seen) -> dict[int, Buffer]:
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

    async def _tidy_handoff(self, seen: Seen, report: RoundReport) -> None:
        """Drop what stands in for a disk that has its part by now, damaged or not; only once every main place is filled."""
        mains = [held if main_part(self._group.erasure, at) else 0 for at, held in enumerate(seen.parts)]
        if not put_done(self._group.erasure, mains):
            return
        for part in range(1, self._group.codec.total_parts + 1):
            packed = seen.blob_id.pack_part(part)
            if self._vdisk.index.entry_of(packed) is not None:
                reply = await self._vdisk.drop(packed)
                if reply.status is Status.OK:
                    report.dropped += 1
