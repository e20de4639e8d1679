"""The life of a group on this node: its VDisks opened, kept in step with each other, repaired, moved and closed.

All that happens in the background happens in rounds, started by a timer here and by hand in tests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from penstock.blob.complaint import Complaint
from penstock.blob.disk import Disk
from penstock.blob.group import Group
from penstock.blob.link import DiskLink
from penstock.blob.meta import DiskState
from penstock.blob.probe import GroupProbe
from penstock.blob.proxy import GroupProxy
from penstock.blob.replication import Replicator
from penstock.blob.sync import Syncer
from penstock.blob.topology import Erasure, VDiskId
from penstock.blob.upkeep import Upkeep
from penstock.blob.vdisk import VDisk, VDiskOptions
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError

log = logging.getLogger(__name__)

OpenDisk = Callable[[int], Awaitable[Disk]]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How often a group looks after itself, in seconds; None means never by itself."""

    vdisk: VDiskOptions = field(default_factory=VDiskOptions)
    sync_interval: float | None = 1.0
    replication_interval: float = 60.0
    scrub_interval: float | None = 10.0  # between two chunks


class _Member:
    """A VDisk of this group with the work that belongs to it."""

    def __init__(self, vdisk: VDisk, group: Group, clock: Clock) -> None:
        self.vdisk = vdisk
        self.upkeep_trouble = Complaint(log, f"VDisk {vdisk.id}: upkeep", clock)
        self.scrub_trouble = Complaint(log, f"VDisk {vdisk.id}: scrub", clock)
        self.syncer = Syncer(vdisk, group)
        self.replicator = Replicator(vdisk, group)
        self.upkeep = Upkeep(vdisk)
        self.scrubbing: AsyncIterator[int] | None = None
        self.disorders_seen = -1
        self.replicated_at = float("-inf")


class GroupLife:
    """One group with all its disks in this process. `open_disk` gives the disk for an order number."""

    def __init__(
        self,
        group_id: int,
        generation: int,
        erasure: Erasure,
        open_disk: OpenDisk,
        *,
        clock: Clock,
        random: Random,
        options: GroupOptions | None = None,
    ) -> None:
        links: list[DiskLink | None] = [None] * erasure.shape.disks
        self.group = Group(group_id, generation, erasure, links)
        self.proxy = GroupProxy(self.group, clock)
        self.options = options or GroupOptions()
        self.probe = GroupProbe()
        self._open_disk = open_disk
        self._clock = clock
        self._random = random
        self._members: dict[int, _Member] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def vdisks(self) -> dict[int, VDisk]:
        """The VDisks that are open, by order number."""
        return {order: member.vdisk for order, member in self._members.items()}

    async def start(self) -> None:
        """Open the disks and bring them in step. A disk that cannot be read is left out; one that is another's is an error."""
        orders = range(len(self.group.links))
        opened = await asyncio.gather(*(self._open(order) for order in orders), return_exceptions=True)
        wrong = [result for result in opened if isinstance(result, BaseException)]
        if wrong:
            await self.stop()
            raise wrong[0]
        await self.sync()
        if self.options.sync_interval is not None:
            self._tasks.append(asyncio.create_task(self._look_after(self.options.sync_interval), name="penstock-group"))
        if self.options.scrub_interval is not None:
            self._tasks.append(asyncio.create_task(self._scrub_slowly(self.options.scrub_interval), name="penstock-scrub"))

    async def stop(self) -> None:
        """End the background work and close the disks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.group.drain()
        for order in list(self._members):
            await self.take_out(order)

    async def sync(self) -> None:
        """One round of sync for every disk, and of replication for those that are not complete."""
        await asyncio.gather(*(member.syncer.round() for member in self._members.values()))
        for member in list(self._members.values()):
            if member.vdisk.index.state != DiskState.FRESH and not member.vdisk.proves_absence:
                await self._replicate(member)

    async def replicate(self) -> None:
        """One round of replication for every disk."""
        for member in list(self._members.values()):
            await self._replicate(member)

    async def tend(self) -> None:
        """One step of upkeep for every disk: space, checkpoints, reclaiming."""
        await asyncio.gather(*(self._tend(member) for member in self._members.values()))

    async def scrub(self) -> int:
        """Verify everything that is stored, once; the number of damaged parts found."""
        found = 0
        for member in list(self._members.values()):
            async for count in member.upkeep.scrub():
                self.probe.note_scrub(count)
                found += count
        self._note_scrub_finished()
        return found

    async def take_out(self, order: int) -> None:
        """Close one disk; the group goes on without it."""
        member = self._members.pop(order, None)
        if member is not None:
            self.group.links[order] = None
            await member.vdisk.close()

    async def put_in(self, order: int) -> None:
        """Open one disk that was out, in the generation the group is in."""
        await self._open(order)

    async def move(self, order: int, open_disk: OpenDisk) -> None:
        """Let a VDisk live on another disk. The group's generation rises, commands under way see RACE, and the new disk is
        refilled from the others."""
        await self.take_out(order)
        self._open_disk = _with_moved(self._open_disk, order, open_disk)
        self.set_generation(self.group.generation + 1)
        await self._open(order)

    def set_generation(self, generation: int) -> None:
        """The group's membership changed: from now on only commands of this generation are served."""
        self.group.generation = generation
        for member in self._members.values():
            member.vdisk.set_generation(generation)

    async def _open(self, order: int) -> None:
        vdisk_id = VDiskId.of_order(self.group.erasure, self.group.id, self.group.generation, order)
        try:
            disk = await self._open_disk(order)
        except OSError as error:
            log.error("VDisk %s is out: its disk cannot be opened: %s", vdisk_id, error)
            return
        try:
            vdisk = await VDisk.open(vdisk_id, self.group.erasure, disk, random=self._random, options=self.options.vdisk)
        except ConfigError:
            await disk.close()
            raise
        except OSError as error:
            await disk.close()
            log.error("VDisk %s is out: it cannot be recovered: %s", vdisk_id, error)
            return
        for loss in vdisk.recovered.losses:
            log.error("VDisk %s: %s", vdisk_id, loss)
        member = _Member(vdisk, self.group, self._clock)
        try:
            await member.upkeep.watch_space()  # what was full when the node stopped is so from the first write on
        except OSError as error:
            member.upkeep_trouble.failed(error)
        vdisk.set_generation(self.group.generation)  # it may have risen meanwhile
        self._members[order] = member
        self.group.links[order] = vdisk

    async def _replicate(self, member: _Member) -> None:
        member.disorders_seen = self.group.disorders
        member.replicated_at = self._clock.monotonic()
        report = await member.replicator.round()
        self.probe.note_round(member.vdisk.order, report)
        if report.restored or report.dropped or report.failed:
            log.info("VDisk %s: %s", member.vdisk.id, report)

    async def _tend(self, member: _Member) -> None:
        try:
            await member.upkeep.step()
        except OSError as error:
            member.upkeep_trouble.failed(error)
        else:
            member.upkeep_trouble.succeeded()

    async def _look_after(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            await self.sync()
            now = self._clock.monotonic()
            for member in list(self._members.values()):
                due = now - member.replicated_at >= self.options.replication_interval
                if member.vdisk.repair_wanted.is_set() or (due and member.disorders_seen != self.group.disorders):
                    await self._replicate(member)
            await self.tend()

    async def _scrub_slowly(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            for member in list(self._members.values()):
                if member.scrubbing is None:
                    member.scrubbing = member.upkeep.scrub()
                try:
                    found = await anext(member.scrubbing)
                except StopAsyncIteration:
                    member.scrubbing = None
                    self._note_scrub_finished()
                except OSError as error:
                    member.scrubbing = None
                    member.scrub_trouble.failed(error)
                else:
                    member.scrub_trouble.succeeded()
                    self.probe.note_scrub(found)
                    if found:
                        log.error("VDisk %s: scrub found %d damaged parts", member.vdisk.id, found)

    def _note_scrub_finished(self) -> None:
        self.probe.scrub_finished_ms = int(self._clock.wall() * 1000)


def _with_moved(before: OpenDisk, moved: int, elsewhere: OpenDisk) -> OpenDisk:
    async def open_disk(order: int) -> Disk:
        return await (elsewhere(order) if order == moved else before(order))

    return open_disk
