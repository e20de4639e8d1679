"""The VDisks of a group that are on this node: opens them, keeps them in step with all others, repairs, moves and closes them.

The other VDisks of the group may be on other nodes, behind the links of the group. Background work runs in rounds, started by a
timer for each disk and by hand in tests. A disk that is out is opened again as soon as that is possible.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from random import Random

from penstock.blob.configuration import Configuration, load_configuration, store_configuration
from penstock.blob.disk import Disk
from penstock.blob.failure_log import FailureLog
from penstock.blob.group import Group
from penstock.blob.identity import IDENTITY_NAME
from penstock.blob.member import Member
from penstock.blob.membership import Membership
from penstock.blob.meta import DiskState
from penstock.blob.options import GroupOptions
from penstock.blob.probe import GroupProbe
from penstock.blob.proxy import GroupProxy
from penstock.blob.quorum import fits_fail_model, group_quorum
from penstock.blob.refill_pace import RefillPace
from penstock.blob.replication import RefillProgress
from penstock.blob.topology import Erasure
from penstock.blob.vdisk import VDisk
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError

log = logging.getLogger(__name__)

OpenDisk = Callable[[int], Awaitable[Disk]]
OnFormed = Callable[[], Awaitable[None]]

REOPEN_S = 5.0  # between two attempts to open a disk that is out
REFILL_AT_START_S = 1.0  # a refill that takes no longer is done when the group starts


class VDiskHost:
    """Hosts some VDisks of a group, given by order number. `open_disk` gives the disk for one.

    `on_formed` is given for a group that is new by its configuration: it notes durably that the group is so no more, and is
    called once the disks are marked, before any of them takes a command. Whether a group is new is never told from its disks: a
    disk that is empty may have been wiped.
    """

    def __init__(
        self,
        group: Group,
        hosted: Iterable[int],
        open_disk: OpenDisk,
        *,
        clock: Clock,
        random: Random,
        options: GroupOptions | None = None,
        on_formed: OnFormed | None = None,
        membership: Membership | None = None,
        node: int = 0,
    ) -> None:
        self.group = group
        self.proxy = GroupProxy(group, clock) if membership is None else membership.proxy
        self.hosted = tuple(hosted)
        # Whether each VDisk on another node proved absence when it was asked last; those that gave no answer are missing.
        self.elsewhere: dict[int, bool] = {}
        self._node = node
        self._membership = membership
        self.options = options or GroupOptions()
        self.probe = GroupProbe()
        self.pace = RefillPace(clock, self.options.refill_share)
        self._open_disk = open_disk
        self._on_formed = on_formed
        self._is_forming = False
        self._clock = clock
        self._random = random
        self._members: dict[int, Member] = {}
        self.keepers: dict[int, asyncio.Task[None]] = {}  # the background work of each disk, open or not
        self._withdrawn: set[int] = set()  # taken out on purpose: these are not opened again by themselves
        self._opened: set[int] = set()
        orders = range(len(group.links))
        self._opening = [asyncio.Lock() for _ in orders]
        self._wakes = [asyncio.Event() for _ in orders]  # the next round of a disk begins at once
        self._open_troubles = [FailureLog(log, f"opening VDisk {group.vdisk_id(order)}", clock) for order in orders]
        if membership is not None:
            membership.on_learned = self._follow

    @property
    def vdisks(self) -> dict[int, VDisk]:
        """The VDisks that are open, by order number."""
        return {order: member.vdisk for order, member in self._members.items()}

    def refills(self) -> dict[int, RefillProgress]:
        """How far the VDisks that lack parts have got with being refilled, by order number."""
        return {order: member.replicator.progress for order, member in self._members.items() if member.vdisk.lacks_parts}

    def losses(self, order: int) -> list[str]:
        """What was found lost on a VDisk of this host, when it was opened and since: the latest, in sentences."""
        member = self._members.get(order)
        return [] if member is None else list(member.upkeep.losses)

    def has_compared(self, order: int) -> bool:
        """Whether a VDisk of this host has got what it missed while it was closed, from all others that answered."""
        member = self._members.get(order)
        return member is not None and member.has_compared

    async def start(self) -> None:
        """Open the disks and bring them in step. A disk that cannot be read is left out; one that is another's is an error."""
        opened = await asyncio.gather(*(self._open(order) for order in self.hosted), return_exceptions=True)
        wrong = [result for result in opened if isinstance(result, BaseException)]
        if wrong:
            await self.stop()
            raise wrong[0]
        if self.options.sync_interval is None:
            await self.sync()
            return
        await self._sync_metadata()
        await self._refill_enough()
        for order in self.hosted:
            self._start_keeping(order)

    @classmethod
    def of_node(
        cls,
        node: int,
        membership: Membership,
        open_disk: OpenDisk,
        *,
        clock: Clock,
        random: Random,
        options: GroupOptions | None = None,
    ) -> VDiskHost:
        """Hosts the VDisks that the configuration of a group seats on a node, and follows it as it changes."""
        hosted = [order for order, seat in enumerate(membership.configuration.seats) if seat.node == node]
        return cls(
            membership.group,
            hosted,
            open_disk,
            clock=clock,
            random=random,
            options=options,
            membership=membership,
            node=node,
        )

    def _start_keeping(self, order: int) -> None:
        if self.options.sync_interval is not None and order not in self.keepers:
            keeping = self._keep(order, self.options.sync_interval)
            self.keepers[order] = asyncio.create_task(keeping, name=f"penstock-group-{order}")

    def _follow(self, before: Configuration, after: Configuration) -> None:
        """The configuration changed: close a VDisk that lives elsewhere now, open one that lives here now, tell the others."""
        self.hosted = tuple(order for order, seat in enumerate(after.seats) if seat.node == self._node)
        for order, (old, new) in enumerate(zip(before.seats, after.seats, strict=True)):
            if old != new and self._node in (old.node, new.node):
                _ = self.group.spawn(self._resettle(order, is_here=new.node == self._node))
        for member in self._members.values():
            if member.vdisk.order in self.hosted:
                wake = self._wakes[member.vdisk.order]
                # A group that has just formed does not wait for the time of its first round.
                _ = self.group.spawn(member.vdisk.configure(after), lambda _, wake=wake: wake.set())  # type: ignore[misc]

    async def _resettle(self, order: int, *, is_here: bool) -> None:
        await self.take_out(order)
        if is_here and order in self.hosted:
            await self.put_in(order)
            self._start_keeping(order)

    async def _configure(self, vdisk: VDisk) -> bool:
        """Bring the configuration that is stored on a disk and the one that this node knows to the newer of both. Returns False,
        the disk closed again, if by that one the VDisk does not live here. ConfigError if they contradict each other."""
        membership = self._membership
        if membership is None:
            return True
        seat = membership.configuration.seats[vdisk.order]
        try:
            stored = await load_configuration(vdisk.disk)
            if stored is not None:
                membership.learn(stored)
            known = membership.configuration
            if stored != known:
                await store_configuration(vdisk.disk, known)
        except Exception:
            await vdisk.close()
            raise
        if known.seats[vdisk.order] != seat or membership.configuration is not known:
            await vdisk.close()
            return False
        vdisk.take_configuration(known)
        vdisk.on_configured = self._learn
        return True

    def _learn(self, configuration: Configuration) -> None:
        if self._membership is not None:
            self._membership.learn(configuration)

    async def stop(self) -> None:
        """End the background work and close the disks; one that hangs is waited for no longer than any of its calls."""
        keepers = list(self.keepers.values())
        self.keepers.clear()
        for task in keepers:
            task.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        await asyncio.gather(*(member.stop() for member in self._members.values()))
        await self.group.drain()
        await asyncio.gather(*(self.take_out(order) for order in list(self._members)))

    def note_link(self, node: int, is_up: bool) -> None:
        """Calls to or from another node can pass again, or no longer can; to be given to `Interconnect.watch`. What was sent last
        may be lost, and the notice of that too: each VDisk compares its whole list of parts with the others once. One that is cut
        off from a quorum of its sisters takes no commands until it has pulled from them again."""
        self.group.disorders += 1
        if not is_up:
            sisters = [order for order in range(len(self.group.links)) if self._node_of(order) == node]
            for member in self._members.values():
                member.syncer.note_broken_link(sisters)
        for wake in self._wakes:
            wake.set()

    def _node_of(self, order: int) -> int:
        return self._node if self._membership is None else self._membership.configuration.seats[order].node

    async def sync(self) -> None:
        """One round of sync for every disk, and of replication for those that are not complete."""
        await self._sync_metadata()
        for member in list(self._members.values()):
            if member.vdisk.lacks_parts:
                await member.replicate()

    async def replicate(self) -> None:
        """One round of replication for every disk."""
        for member in list(self._members.values()):
            await member.replicate()

    async def tend(self) -> None:
        """One step of upkeep for every disk: space, checkpoints, reclaiming."""
        await asyncio.gather(*(member.tend() for member in self._members.values()))

    async def scrub(self) -> int:
        """Verify everything that is stored, once; the number of damaged parts found."""
        damaged = 0
        for member in list(self._members.values()):
            async for count in member.scrub():
                damaged += count
        return damaged

    async def take_out(self, order: int) -> None:
        """Close one disk; the group goes on without it until `put_in`."""
        self._withdrawn.add(order)
        await self._close(order)

    async def put_in(self, order: int) -> None:
        """Open one disk that was out, in the generation the group is in."""
        self._withdrawn.discard(order)
        await self._reopen(order)

    async def move(self, order: int, open_disk: OpenDisk) -> None:
        """Move a VDisk to another disk. The group's generation rises, commands in flight get RACE, and the new disk is refilled
        from the others."""
        await self.take_out(order)
        self._open_disk = _with_moved(self._open_disk, order, open_disk)
        self.set_generation(self.group.generation + 1)
        self._opened.discard(order)
        await self.put_in(order)

    def set_generation(self, generation: int) -> None:
        """The group's membership changed: from now on only commands of this generation are served."""
        self.group.set_generation(generation)
        for member in self._members.values():
            member.vdisk.set_generation(generation)

    async def _open(self, order: int) -> None:
        """Open a disk that is not open. One that cannot be read stays out; ConfigError if it is another's."""
        async with self._opening[order]:
            if order in self._members or order not in self.hosted:
                return
            try:
                vdisk = await self._open_vdisk(order)
                if not await self._configure(vdisk):
                    return
            except OSError as error:
                self._open_troubles[order].failed(error)
                return
            self._open_troubles[order].succeeded()
            for loss in vdisk.recovered.losses:
                log.error("VDisk %s: %s", vdisk.id, loss)
            member = Member(vdisk, self.group, self.probe, self._clock, self.pace)
            if self.group.erasure is Erasure.NONE:
                await member.accept_losses()
            await member.watch_space()  # what was full when the node stopped is so from the first write on
            if order not in self.hosted:  # by a configuration that came meanwhile
                await vdisk.close()
                return
            if self._membership is None:
                vdisk.set_generation(self.group.generation)  # it may have risen meanwhile
            self._opened.add(order)
            self._members[order] = member
            self.group.links[order] = vdisk
            if self.options.scrub_interval is not None:
                member.scrub_slowly(self.options.scrub_interval)

    async def _reopen(self, order: int) -> None:
        """Open a disk of a group that serves. If it was only away, it hears at once of what it missed, and takes part."""
        await self._open(order)
        member = self._members.get(order)
        is_formed = self._membership is None or self._membership.configuration.is_formed
        if member is not None and member.vdisk.index.state != DiskState.FRESH and is_formed:
            await member.syncer.round()

    async def _open_vdisk(self, order: int) -> VDisk:
        vdisk_id = self.group.vdisk_id(order)
        disk = await self._open_disk(order)
        try:
            if self.group.erasure is Erasure.NONE and order in self._opened and IDENTITY_NAME not in await disk.files():
                # What it held is nowhere else: an empty disk in its place would look like a store that was never written.
                raise FileNotFoundError(errno.ENOENT, "the disk came back empty; restore what was on it")
            return await VDisk.open(vdisk_id, self.group.erasure, disk, random=self._random, options=self.options.vdisk)
        except Exception:
            await disk.close()
            raise

    async def _close(self, order: int) -> None:
        async with self._opening[order]:
            member = self._members.pop(order, None)
            if member is not None:
                if order in self.hosted:
                    self.group.links[order] = None  # otherwise it leads to where the VDisk lives now
                await member.stop()
                await member.vdisk.close()

    async def _form(self) -> bool:
        """Let the empty disks of a new group begin, if there are enough of them; the rest learn from these. Returns whether the
        group has formed: until then its disks are not brought in step, so that they take no command."""
        if self._membership is not None:
            return self._membership.configuration.is_formed
        if self._on_formed is None:
            return True
        if self._is_forming:
            return False
        self._is_forming = True
        try:
            if await self._mark_formed():
                await self._on_formed()
                self._on_formed = None
        finally:
            self._is_forming = False
        return self._on_formed is None

    async def _mark_formed(self) -> bool:
        vdisks = [member.vdisk for member in self._members.values()]
        fresh = [vdisk for vdisk in vdisks if vdisk.index.state == DiskState.FRESH]
        if all(vdisk.index.knows_nothing for vdisk in vdisks):
            await asyncio.gather(*(vdisk.reach(DiskState.COMPLETE) for vdisk in fresh))
        else:
            # An operator who marks a group as not formed wants it to continue with what its disks hold, although more of them
            # lost data than its erasure tolerates.
            known = [vdisk for vdisk in fresh if not vdisk.index.knows_nothing]
            await asyncio.gather(*(vdisk.begin_life(vdisk.sisters.own.life + 1, DiskState.COMPLETE) for vdisk in known))
        begun = sum(1 << vdisk.order for vdisk in vdisks if vdisk.index.state != DiskState.FRESH and not vdisk.is_failing)
        return group_quorum(self.group.erasure, begun)

    async def _sync_metadata(self) -> None:
        if not await self._form():
            return
        await asyncio.gather(*(member.syncer.round() for member in self._members.values()))
        # Only disks that are in step tell all they know, which may be since a moment ago.
        fresh = [member for member in self._members.values() if member.vdisk.index.state == DiskState.FRESH]
        await asyncio.gather(*(member.syncer.round() for member in fresh))

    async def _refill_enough(self) -> None:
        """Begin to refill the disks that lack parts. That may take hours, so it is waited for only while the group cannot answer
        without them."""
        lacking = {member.heal(): member for member in self._members.values() if member.vdisk.lacks_parts}
        if lacking:
            await asyncio.wait(lacking, timeout=REFILL_AT_START_S)
        try:
            await self._refill_until_fit(lacking)
        finally:
            self.pace.is_urgent = False

    async def _refill_until_fit(self, lacking: dict[asyncio.Task[None], Member]) -> None:
        while pending := {task for task in lacking if not task.done()}:
            out = sum(1 << order for order in self.hosted if order not in self._members)
            unfit = sum(1 << member.vdisk.order for member in lacking.values() if member.vdisk.lacks_parts)
            if fits_fail_model(self.group.erasure, out | unfit):
                return
            self.pace.is_urgent = True
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    async def _keep(self, order: int, interval: float) -> None:
        """Look after one disk for as long as the group lives: round after round while it is open, and open it when it is out."""
        tried_at = self._clock.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._wakes[order].wait()
            self._wakes[order].clear()
            if order not in self.hosted:
                del self.keepers[order]
                return
            member = self._members.get(order)
            try:
                has_formed = await self._form()
                if member is not None:
                    if (
                        has_formed
                        and not await member.round(self.options.replication_interval)
                        and self._members.get(order) is member
                    ):
                        # Once begun, it is brought to its end, though the group may stop meanwhile.
                        await asyncio.shield(self.group.spawn(self._close(order)))
                elif order not in self._withdrawn and self._clock.monotonic() - tried_at >= REOPEN_S:
                    tried_at = self._clock.monotonic()
                    await asyncio.shield(self.group.spawn(self._reopen(order)))
            except ConfigError as error:
                self._open_troubles[order].failed(OSError(errno.EINVAL, str(error)))
            except Exception:
                log.exception("VDisk %s: a round failed, it will be tried again", self.group.vdisk_id(order))


def _with_moved(before: OpenDisk, moved: int, elsewhere: OpenDisk) -> OpenDisk:
    async def open_disk(order: int) -> Disk:
        return await (elsewhere(order) if order == moved else before(order))

    return open_disk
