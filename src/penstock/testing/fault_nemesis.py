"""What goes wrong in the fault simulation: faults of disks, crashes, moves; never more at once than the fail model allows.

A disk that lost data counts as failed until it is complete again. A group of one disk has no fail model to speak of: there
data is never destroyed, but for single parts that rot, and the ledger knows which.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from penstock.blob import BlobId, Erasure
from penstock.blob.blob_id import PREFIX_SIZE
from penstock.blob.channel import place_of
from penstock.blob.journal import chunk_name
from penstock.blob.meta import DiskState
from penstock.blob.record import record_size
from penstock.blob.topology import main_part
from penstock.blob.vdisk import VDisk
from penstock.testing.fault_ledger import InvariantError, Ledger
from penstock.testing.fault_world import World
from penstock.testing.sim_disk import DiskFaults, Operation
from penstock.testing.sim_loop import ProcessDiedError, SimProcess
from penstock.testing.suspended_tasks import waiting_at

REPAIR_ROUNDS_MAX = 200
FLOOD_S_MAX = 10.0  # a disk on which others have left no byte may need somebody who makes room, and its sisters may need it
CRASH_STEPS = (30, 300, 3000)

Fault = Callable[[int], Coroutine[Any, Any, None]]


class Nemesis:
    """Injects faults until told to stop; `heal` waits until none is left."""

    def __init__(self, world: World, ledger: Ledger, rng: Random) -> None:
        self._world = world
        self._ledger = ledger
        self._random = rng
        self._faults: set[asyncio.Task[None]] = set()
        self._calm = rng.choice([0.02, 0.1, 0.4])
        self._kinds = self._draw_kinds()
        self._crash_rate = 0.1  # of what happens
        self._doomed: SimProcess | None = None

    def _draw_kinds(self) -> list[Fault]:
        """A run has a taste for some kinds of faults, so that rare combinations come about."""
        kinds: list[Fault] = [self._break, self._err, self._slow, self._fill, self._take_out]
        if self._world.erasure is not Erasure.NONE:
            kinds += [self._wipe, self._wipe, self._move, self._rot, self._rot, self._roll_back]
        else:
            kinds += [self._rot_part_for_good]
        return self._random.sample(kinds, self._random.randint(1, len(kinds)))

    async def torment(self) -> None:
        """One fault after another, for as long as the task lives."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._calm))
            await self._world.up.wait()
            draw = self._random.random()
            if draw < self._crash_rate:
                self._plan_crash()
            elif draw < self._crash_rate + 0.03:
                self._flood()
            else:
                order = self._random.choice(self._world.orders)
                if order not in self._world.impaired and (self._world.may_impair(order) or self._world.erasure is Erasure.NONE):
                    self._start(self._random.choice(self._kinds), order)

    async def restart_after_crashes(self) -> None:
        """Whenever the process has died, start it again; its disks may be replaced meanwhile."""
        while True:
            await self._world.down.wait()
            await asyncio.sleep(self._random.uniform(0, 0.5))
            order = self._random.choice(self._world.orders)
            losing = self._world.erasure is not Erasure.NONE and self._random.random() < 0.2
            if losing and order not in self._world.impaired and self._world.may_impair(order):
                self._world.impair(order)
                self._world.platters[order].wipe()
                self._world.note(f"wipe {order} while down")
                self._start(self._repair, order)
            crash_after = self._random.randint(0, 400) if self._random.random() < 0.3 else None
            await self._world.start(crash_after)

    async def heal(self) -> None:
        """Wait until all faults have passed and what they did is repaired."""
        flood_ends_at = self._world.loop.time() + FLOOD_S_MAX
        while self._faults:
            self.raise_failures()
            await asyncio.wait(self._faults, timeout=FLOOD_S_MAX, return_when=asyncio.FIRST_COMPLETED)
            if self._world.loop.time() >= flood_ends_at:
                self._drain()
        self._drain()
        for _ in range(REPAIR_ROUNDS_MAX):
            await self._world.up.wait()
            if not any(vdisk.full for vdisk in self._world.vdisks().values()):
                break
            await asyncio.sleep(0.1)
        self._world.flooded = False

    # What can happen to a disk. Each coroutine is the whole story of one fault, to its end.

    async def _break(self, order: int) -> None:
        self._world.faults[order].broken = True
        await self._last(0.02, 1.0)
        await self._repair(order)

    async def _err(self, order: int) -> None:
        operations: list[Operation] = ["files", "flush", "read", "delete", "space"]
        chosen = self._random.sample(operations, self._random.randint(1, len(operations)))
        self._world.faults[order].error_rate = {operation: self._random.choice([0.05, 0.3]) for operation in chosen}
        await self._last(0.02, 2.0)
        await self._repair(order)

    async def _slow(self, order: int) -> None:
        self._world.faults[order].slow_factor = self._random.choice([5, 50, 500, 5000])
        await self._last(0.1, 2.0)
        await self._repair(order)

    async def _fill(self, order: int) -> None:
        room = self._random.randint(0, 3 * self._world.options.vdisk.chunk_size)
        self._world.faults[order].capacity = self._world.platters[order].used + room
        await self._last(0.1, 2.0)
        await self._repair(order)

    async def _take_out(self, order: int) -> None:
        with contextlib.suppress(ProcessDiedError):
            await self._world.do(self._world.life.take_out(order))
        await self._last(0.02, 1.0)
        await self._repair(order)

    async def _wipe(self, order: int) -> None:
        with contextlib.suppress(ProcessDiedError):
            await self._world.do(self._world.life.take_out(order))
            self._world.platters[order].wipe()
        await self._repair(order)

    async def _roll_back(self, order: int) -> None:
        """An older copy of the disk takes its place."""
        platter = self._world.platters[order]
        copy = platter.snapshot()
        await self._last(0.0, 2.0)
        with contextlib.suppress(ProcessDiedError):
            await self._world.do(self._world.life.take_out(order))
            if platter is self._world.platters[order]:
                platter.wipe()
                for name, content in copy.items():
                    platter.write(name, content)
        await self._repair(order)

    async def _move(self, order: int) -> None:
        with contextlib.suppress(ProcessDiedError):
            await self._world.move(order)
        await self._repair(order)

    async def _rot(self, order: int) -> None:
        platter = self._world.platters[order]
        names = [name for name in platter.names() if "." in name and platter.written(name)]
        for _ in range(self._random.randint(1, 4)):
            place = self._draw_part(order) if self._random.random() < 0.7 else None
            if place is not None:
                platter.rot(self._random, place[1], place[2])
            elif names:
                platter.rot(self._random, self._random.choice(names), length=self._random.choice([1, 1, 100, 5000]))
        await self._last(0.0, 0.5)
        await self._reopen(order)
        await self._repair(order)
        await self._scrub(order)
        await self._repair(order)

    async def _rot_part_for_good(self, order: int) -> None:
        place = self._draw_part(order)
        if place is not None:
            blob_id, name, offset = place
            self._ledger.channel(blob_id).blobs[blob_id].rotten = self._ledger.rotten = True
            self._world.platters[order].rot(self._random, name, offset)
        await self._repair(order)

    def _draw_part(self, order: int) -> tuple[BlobId, str, int] | None:
        """A byte of a stored part: whose it is, in which file, and where."""
        vdisk = self._world.vdisks().get(order)
        if vdisk is None or self._world.process.crashed:
            return None
        parts = [
            (BlobId.unpack(channel_key + key + bytes(4))._replace(size=place_of(entry).size), place_of(entry))
            for channel_key, channel in vdisk.index.channels.items()
            for key in channel.blobs
            for entry in channel.entries(key)
            if place_of(entry).part and place_of(entry)[:2] < vdisk.journal.durable
        ]
        if not parts:
            return None
        blob_id, place = self._random.choice(parts)
        name = chunk_name(place.chunk)
        offset = place.offset + self._random.randrange(record_size(vdisk.index.part_size(place.size)))
        return (blob_id, name, offset) if offset < self._world.platters[order].written(name) else None

    # What can happen to all.

    def _plan_crash(self) -> None:
        process = self._world.process
        if not process.crashed and process is not self._doomed:
            self._doomed = process
            process.crash_at_step(process.steps + self._random.randint(0, self._random.choice(CRASH_STEPS)))
            self._world.note("crash soon")

    def _flood(self) -> None:
        chunk_size = self._world.options.vdisk.chunk_size
        room = self._random.randint(0, 8) * chunk_size
        self._world.flood([platter.used + room for platter in self._world.platters])
        self._world.note("flood")

    def _drain(self) -> None:
        """Somebody makes room."""
        for faults in self._world.faults:
            faults.capacity = DiskFaults().capacity

    # The course of a fault.

    def _start(self, fault: Fault, order: int) -> None:
        self._world.impair(order)
        self._world.note(f"{fault.__name__.strip('_')} {order}")
        task = self._world.loop.create_task(fault(order), name=f"fault{fault.__name__}-{order}")
        self._faults.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._faults.discard(task)

    def raise_failures(self) -> None:
        """Raise what went wrong in the course of a fault."""
        for task in self._faults:
            if task.done():
                task.result()

    def waiting(self) -> list[str]:
        """The faults whose course has not ended, each with where it waits."""
        return [f"{task.get_name()} in {waiting_at(task)}" for task in self._faults if not task.done()]

    async def _last(self, seconds_min: float, seconds_max: float) -> None:
        await asyncio.sleep(self._random.uniform(seconds_min, seconds_max))

    async def _reopen(self, order: int) -> None:
        with contextlib.suppress(ProcessDiedError):
            await self._world.up.wait()
            await self._world.do(self._world.life.take_out(order))

    async def _scrub(self, order: int) -> None:
        """Read all of the disk, however often the process dies meanwhile."""
        self._world.impair(order)
        while True:
            await self._world.up.wait()
            try:
                await self._world.do(self._world.life.scrub())
                await self._world.do(self._world.life.replicate())
            except ProcessDiedError:
                continue
            except OSError:
                await asyncio.sleep(0.05)
                continue
            return

    async def _repair(self, order: int) -> None:
        """The disk works again: bring it in if it is out, and wait until it holds all that it should."""
        world = self._world
        faults = world.faults[order]
        faults.broken, faults.error_rate, faults.slow_factor = False, {}, 1.0
        for _ in range(REPAIR_ROUNDS_MAX):
            faults.capacity = DiskFaults().capacity
            await world.up.wait()
            try:
                if order not in world.vdisks():
                    await world.do(world.life.put_in(order))
                await world.do(world.life.sync())
                await world.do(world.life.replicate())
            except ProcessDiedError:
                continue
            vdisk = world.vdisks().get(order)
            if vdisk is not None and self._is_sound(vdisk):
                world.impaired.discard(order)
                self._world.note(f"repaired {order}")
                return
            await asyncio.sleep(0.1)
        raise InvariantError(f"disk {order} is not complete again after {REPAIR_ROUNDS_MAX} rounds")

    def _is_sound(self, vdisk: VDisk) -> bool:
        return is_sound(self._world, self._ledger, vdisk)


def is_sound(world: World, ledger: Ledger, vdisk: VDisk) -> bool:
    """Whether the disk holds all that it should, and knows that it does. Only then it no longer counts as failed: handoffs may
    have stood in for it, and may be the next to go."""
    if vdisk.full:
        return False
    if world.erasure is Erasure.NONE:
        return True  # no other disk can restore what it has lost
    if vdisk.index.state != DiskState.COMPLETE or not vdisk.proves_absence:
        return False
    for channel, fate in ledger.fates():
        if fate.acked and not fate.rotten and not channel.may_be_over(fate):
            index = world.life.group.subgroup(fate.blob_id.pack()[:PREFIX_SIZE]).index(vdisk.order)
            part = main_part(world.erasure, index)
            if part and vdisk.index.entry_of(fate.blob_id.pack_part(part)) is None:
                return False
    return True
