"""Background work of a VDisk: checkpoints, freeing dead chunks, rewriting sparse ones, and scrubbing.

A chunk is deleted once nothing in it is live and no retained checkpoint needs the log in it. The last two checkpoints are
retained, so that one damaged checkpoint costs recovery time and nothing else.

Of what small writes leave in a chunk, half is log, which dies with the next snapshot. To write the other half once more takes a
tenth of the processor time of such writes, so that waits until there are fewer, unless little room is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator

from penstock.blob.blob_id import BlobId
from penstock.blob.channel import place_of, size_part_of
from penstock.blob.checkpoint import checkpoint_name, encode_checkpoint, end_frame
from penstock.blob.chunk_scan import Gap, ScannedRecord, is_sound, scan_slowly
from penstock.blob.index import ChunkUse
from penstock.blob.journal import Position, chunk_name
from penstock.blob.meta import DiskState
from penstock.blob.part_intake import PART
from penstock.blob.record import NO_ID, RecordKind
from penstock.blob.vdisk import VDisk

log = logging.getLogger(__name__)

CHECKPOINTS_KEPT = 2
FLUSH_BYTES = 1 << 20
SMALL_CHUNKS_MAX = 8
REWRITE_BYTES = 8 << 20
LOSSES_KEPT = 100
COPIED_MAX = 64 << 10  # a longer body is moved as it was read, a shorter one would keep much else in memory
ROOM_SHARE = 8  # an eighth of the disk is room enough


class Upkeep:
    """The background work of one VDisk, one step per call; the owner of the disk decides when."""

    def __init__(self, vdisk: VDisk) -> None:
        self._vdisk = vdisk
        recovered = vdisk.recovered
        # Where each kept checkpoint starts reading the log; of older ones found at opening only that they need all of it.
        self._starts: dict[int, Position] = {
            number: recovered.checkpoint_starts.get(number, (0, 0)) for number in recovered.checkpoints
        }
        self._unreadable = list(recovered.unreadable)  # checkpoints, kept until another is finished
        self._checkpoints_begun = max([0, *self._starts, *self._unreadable])
        self._failed: set[int] = set()  # checkpoints that were begun and never finished
        self._stuck: set[int] = set()  # chunks with parts that can be neither moved nor given up
        self._bytes_at_checkpoint = 0
        self._records_at_checkpoint = -recovered.records_replayed
        self._missed = set(recovered.missing_chunks)
        self._has_gaps = recovered.unknown_loss  # in the log that an opening reads
        self._checkpointing = asyncio.Lock()
        self._was_full = False  # when it looked last
        self._bytes_at_step = 0
        self._is_busy = False  # whether much was written since the step before
        self._short: dict[int, int] = {}  # chunks that were found short, and what was left of them
        self.losses = deque(recovered.losses, LOSSES_KEPT)

    async def step(self) -> None:
        """Check free space, write a checkpoint if one is due, and reclaim dead chunks."""
        await self.watch_space()
        self._note_pace()
        if self._vdisk.journal.trouble is not None and not self._vdisk.full:
            # A failing disk gets no other writes; an empty record probes whether it works again.
            self._vdisk.journal.append(RecordKind.META, NO_ID, b"")
            await self._vdisk.journal.commit()
        if self._is_checkpoint_due():
            await self.checkpoint()
        await self.reclaim()
        self._bytes_at_step = self._vdisk.journal.bytes_appended  # what it has rewritten itself does not count

    def _note_pace(self) -> None:
        """Note whether others write so much that chunks are better rewritten later, and may be: there is room."""
        vdisk, space = self._vdisk, self._vdisk.space
        written = vdisk.journal.bytes_appended - self._bytes_at_step
        has_room = space is not None and not vdisk.full and space.free >= space.total // ROOM_SHARE
        self._is_busy = written >= vdisk.options.busy_bytes and has_room

    async def note_ends(self) -> None:
        """Note how far the log is durable, as far back as a checkpoint may have to read it. Chunks that are missing are missed at
        every opening until the disk is complete again."""
        if self._missed and self._vdisk.proves_absence:
            self._vdisk.ends.forget(self._missed)
            self._missed = set()
        needed_from = self._needed_from()
        self._vdisk.ends.forget_before(needed_from)
        for number in [number for number in self._vdisk.journal.ends if number < needed_from]:
            del self._vdisk.journal.ends[number]
        await self._vdisk.ends.note(self._vdisk.journal.ends)

    async def check_files(self) -> int:
        """Find parts whose chunk files were deleted or cut under the running process; they count as damaged. Returns how many."""
        vdisk = self._vdisk
        files = await vdisk.disk.files()
        sizes = {number: files.get(chunk_name(number), 0) for number in vdisk.index.chunks}
        short = {
            number
            for number, use in vdisk.index.chunks.items()
            if self._is_at_rest(number, use)
            and use.live
            and sizes[number] < use.size
            and self._short.get(number) != sizes[number]
        }
        if not short:
            return 0
        # The end of a chunk that a write failed at may be short of what was meant to be there, with all parts before it.
        self._short.update((number, sizes[number]) for number in short)
        lost = vdisk.index.mark_missing(short, sizes)
        if lost:
            names = ", ".join(chunk_name(number) for number in sorted(short)[:3])
            self.losses.append(f"{lost} parts lay in chunk files that were deleted or cut while they were open ({names})")
            log.error("VDisk %s: %s", vdisk.id, self.losses[-1])
            vdisk.repair_wanted.set()
        return lost

    async def accept_losses(self) -> None:
        """Accept that data of the only copy is lost: the next opening does not report it again."""
        if self._vdisk.recovered.missing:
            await self.checkpoint()
            await self.note_ends()

    async def watch_space(self) -> None:
        """Stop or resume taking blobs by how much room is left."""
        vdisk, was_full = self._vdisk, self._was_full
        space = await vdisk.look_for_room()
        self._was_full = vdisk.full
        if vdisk.full and not was_full:
            log.warning(
                "VDisk %s is full and takes no messages: %d MiB are free, and %d MiB are kept for making room; delete "
                "topics, shorten retention, or give the disk more room",
                vdisk.id,
                space.free >> 20,
                vdisk.options.space_reserve >> 20,
            )
        elif was_full and not vdisk.full:
            log.info("VDisk %s has room again: %d MiB are free", vdisk.id, space.free >> 20)

    async def checkpoint(self) -> bool:
        """Write a checkpoint of the index. Returns whether that succeeded."""
        async with self._checkpointing:
            return await self._checkpoint()

    async def cover_loss(self) -> bool:
        """Write a checkpoint if something in the log before it cannot be read, so that the next opening does not miss it again.
        Returns whether there is nothing of the kind any more."""
        return not self._has_gaps or await self.checkpoint()

    async def _checkpoint(self) -> bool:
        vdisk, journal = self._vdisk, self._vdisk.journal
        start, failures = journal.durable, journal.failures
        self._bytes_at_checkpoint, self._records_at_checkpoint = journal.bytes_appended, journal.records_appended
        await self._delete_failed()
        self._checkpoints_begun += 1
        number = self._checkpoints_begun
        self._failed.add(number)
        if not await self._write_checkpoint(checkpoint_name(number), start, failures):
            return False
        self._failed.remove(number)
        self._has_gaps = False
        self._starts[number] = start
        vdisk.failures_covered = failures
        while self._unreadable:
            await vdisk.disk.delete(checkpoint_name(self._unreadable[-1]))
            self._unreadable.pop()
        for old in sorted(self._starts)[:-CHECKPOINTS_KEPT]:
            await vdisk.disk.delete(checkpoint_name(old))
            del self._starts[old]
        return True

    async def _delete_failed(self) -> None:
        """Delete files whose making failed: they are not written to again, and must take no room from the next."""
        vdisk = self._vdisk
        for number in sorted(self._failed):
            await vdisk.disk.delete(checkpoint_name(number))
            self._failed.remove(number)
        for number in sorted(vdisk.journal.abandoned):
            await vdisk.disk.delete(chunk_name(number))
            vdisk.journal.abandoned.remove(number)
            vdisk.index.chunks.pop(number, None)

    async def _write_checkpoint(self, name: str, start: Position, failures: int) -> bool:
        vdisk, journal = self._vdisk, self._vdisk.journal
        frames = waiting = 0
        # A disk that is being refilled must not be taken for complete by its checkpoint, when the damage is behind that.
        state = min(vdisk.index.state, DiskState.SYNCED) if vdisk.lacks_parts else vdisk.index.state
        for frame in encode_checkpoint(vdisk.index, start, state):
            vdisk.disk.append(name, [frame])
            frames += 1
            waiting += len(frame)
            if waiting >= FLUSH_BYTES:
                await vdisk.disk.flush(name)
                waiting = 0
        # A slice may speak of parts that are not durable yet. It must not count before they are, nor if they never will be.
        error = await journal.commit()
        if error is not None or journal.failures != failures:
            return False
        vdisk.disk.append(name, [end_frame(frames)])
        vdisk.disk.reserve(name, 0)
        await vdisk.disk.flush(name)
        return True

    async def reclaim(self) -> int:
        """Delete dead chunks and rewrite a sparse one; bytes given back."""
        vdisk = self._vdisk
        sparse = self._sparsest()
        if sparse is not None:
            await self._rewrite(sparse)
        dead = [number for number, use in vdisk.index.chunks.items() if self._is_at_rest(number, use) and use.live == 0]
        if dead and (self._needed_from() <= max(dead)) and self._is_worth_checkpoint(dead):
            await self.checkpoint()
        # What made them dead took effect in memory at once. It must be in the log, or else in a checkpoint, before they go.
        if dead and (await vdisk.journal.commit() is not None or vdisk.journal.failures != self._vdisk.failures_covered):
            return 0
        freed = 0
        needed_from = self._needed_from()
        for number in sorted(dead):
            if number < needed_from:
                freed += vdisk.index.chunks[number].size
                await vdisk.disk.delete(chunk_name(number))
                del vdisk.index.chunks[number]
                self._stuck.discard(number)
        return freed

    async def scrub(self) -> AsyncIterator[int]:
        """Read every sealed chunk and verify what is wanted in it; yields the parts found damaged, chunk by chunk."""
        for number in sorted(self._vdisk.index.chunks):
            use = self._vdisk.index.chunks.get(number)
            if use is not None and self._is_at_rest(number, use) and use.live:
                yield await self._scrub_chunk(number, use.size)

    def _is_at_rest(self, number: int, use: ChunkUse) -> bool:
        """Whether the chunk is complete, and all of it on the disk: a sealed one may still be on its way there."""
        return use.sealed and number < self._vdisk.journal.durable[0]

    def _is_checkpoint_due(self) -> bool:
        journal, options = self._vdisk.journal, self._vdisk.options
        grown = journal.bytes_appended - self._bytes_at_checkpoint >= options.checkpoint_bytes
        if journal.failures != self._vdisk.failures_covered:
            return True
        of_this_disk = options.checkpoint_records // self._vdisk.erasure.shape.disks
        due_records = max(of_this_disk, self._vdisk.index.parts // 4)
        return grown or journal.records_appended - self._records_at_checkpoint >= due_records

    def _is_worth_checkpoint(self, dead: list[int]) -> bool:
        bytes_dead = sum(self._vdisk.index.chunks[number].size for number in dead)
        return self._vdisk.full or bytes_dead >= self._vdisk.options.chunk_size

    def _needed_from(self) -> int:
        """The first chunk whose log a kept checkpoint needs; 0 while there are not enough of them to do without one."""
        return min(chunk for chunk, _ in self._starts.values()) if len(self._starts) >= CHECKPOINTS_KEPT else 0

    def _sparsest(self) -> int | None:
        """The chunk that gives back most by being rewritten, if any does: mostly dead, or one of many small ones."""
        options = self._vdisk.options
        alive = {
            number: use
            for number, use in self._vdisk.index.chunks.items()
            if self._is_at_rest(number, use) and use.live and number not in self._stuck
        }
        ratio = min(options.busy_ratio, options.sparse_ratio) if self._is_busy else options.sparse_ratio
        sparse = [(use.live / use.size, number) for number, use in alive.items() if use.live < use.size * ratio]
        if sparse:
            return min(sparse)[1]
        small = [(use.live, number) for number, use in alive.items() if use.live < options.chunk_size // 16]
        return min(small)[1] if len(small) > SMALL_CHUNKS_MAX else None

    async def _rewrite(self, number: int) -> None:
        """Move what is wanted in a chunk to the end of the log. What cannot be read there is reported and left."""
        vdisk = self._vdisk
        use = vdisk.index.chunks[number]
        moved: list[tuple[bytes, Position]] = []
        seen: set[int] = set()
        waiting = gaps = 0
        failures = vdisk.journal.failures
        async for item in scan_slowly(vdisk.disk, number, use.size):
            if isinstance(item, Gap):
                gaps += 1
                continue
            seen.add(item.header.offset)
            if not self._is_wanted(item):
                continue
            if not item.sound:
                self._report_damage(item)
                continue
            body = item.body if item.header.length > COPIED_MAX else bytes(item.body)
            moved.append((item.header.blob_id, vdisk.journal.append(PART, item.header.blob_id, body)))
            waiting += item.header.length
            if waiting >= REWRITE_BYTES:
                await self._switch(number, moved, failures)
                moved, waiting = [], 0
        await self._switch(number, moved, failures)
        if gaps:
            self._report_unseen(number, seen)
        if use.live:
            self._stuck.add(number)

    async def _switch(self, number: int, moved: list[tuple[bytes, Position]], failures: int) -> None:
        """Point the index at the new places once they are durable, but for parts that have gone from the old one meanwhile."""
        if await self._vdisk.journal.commit() is not None or self._vdisk.journal.failures != failures:
            return
        for blob_id, place in moved:
            current = self._vdisk.index.entry_of(blob_id)
            if current is not None and place_of(current).chunk == number:
                self._vdisk.index.add_part(blob_id, *place)

    async def _scrub_chunk(self, number: int, size: int) -> int:
        seen: set[int] = set()
        damaged = gaps = 0
        try:
            if await is_sound(self._vdisk.disk, number, size):
                return 0
            async for item in scan_slowly(self._vdisk.disk, number, size):
                if isinstance(item, Gap):
                    gaps += 1
                    continue
                seen.add(item.header.offset)
                if self._is_wanted(item) and not item.sound:
                    damaged += self._report_damage(item)
        except FileNotFoundError:
            use = self._vdisk.index.chunks.get(number)
            if use is not None and use.live:
                raise
            return damaged  # all of it became garbage meanwhile
        return damaged + (self._report_unseen(number, seen) if gaps else 0)

    def _is_wanted(self, item: ScannedRecord | Gap) -> bool:
        """Whether the index still points at this very record."""
        if isinstance(item, Gap) or item.header.kind != RecordKind.PART:
            return False
        entry = self._vdisk.index.entry_of(item.header.blob_id)
        return entry is not None and place_of(entry)[:2] == (item.header.chunk, item.header.offset)

    def _report_damage(self, item: ScannedRecord) -> int:
        entry = self._vdisk.index.entry_of(item.header.blob_id)
        if entry is None or not self._vdisk.index.mark_damaged(item.header.blob_id, entry):
            return 0
        self._note_loss(item.header.blob_id, item.header.chunk, item.header.offset)
        return 1

    def _report_unseen(self, chunk: int, seen: set[int]) -> int:
        """Parts that should lie in the unreadable stretches of a chunk."""
        index = self._vdisk.index
        damaged = 0
        for channel_key, channel in index.channels.items():
            for key in list(channel.keys()):
                for entry in channel.entries(key):
                    place = place_of(entry)
                    if place.part and place.chunk == chunk and place.offset not in seen:
                        blob_id = channel_key + key + size_part_of(entry).to_bytes(4, "big")
                        if index.mark_damaged(blob_id, entry):
                            self._note_loss(blob_id, chunk, place.offset)
                            damaged += 1
        return damaged

    def _note_loss(self, blob_id: bytes, chunk: int, offset: int) -> None:
        self.losses.append(f"part {BlobId.unpack(blob_id)} in chunk {chunk} at byte {offset} is damaged")
        self._vdisk.repair_wanted.set()
