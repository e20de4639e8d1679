"""The stage of the fault simulation: the disks of one group, which stay, and the process on them, which comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from penstock.blob import Disk, Erasure, GroupOptions, LocalGroup, VDiskHost, VDiskOptions
from penstock.blob.quorum import fits_fail_model
from penstock.blob.vdisk import VDisk
from penstock.testing.fault_ledger import Interval, InvariantError
from penstock.testing.sim_disk import DiskFaults, SimDisk, SimPlatter
from penstock.testing.sim_loop import ProcessDiedError, SimClock, SimLoop, SimProcess

T = TypeVar("T")

GROUP_ID = 0x82000000
AT_ONCE_RATE = 0.5  # of flushes: the others take their time
STARTS_MAX = 50


def draw_options(rng: Random) -> GroupOptions:
    """Settings so small that chunks roll, are rewritten and given back all the time."""
    chunk_size = rng.choice([16, 32, 64, 256]) << 10
    vdisk = VDiskOptions(
        chunk_size=chunk_size,
        space_reserve=2 * chunk_size,
        checkpoint_bytes=rng.choice([1, 4, 16]) * chunk_size,
        checkpoint_records=rng.choice([10, 50, 400]),
        sparse_ratio=rng.choice([0.3, 0.5, 0.8]),
    )
    if rng.random() < 0.5:
        return GroupOptions(vdisk=vdisk, sync_interval=None, replication_interval=0.0, scrub_interval=None)
    return GroupOptions(
        vdisk=vdisk,
        sync_interval=rng.choice([0.02, 0.1, 0.5]),
        replication_interval=rng.choice([0.1, 1.0]),
        scrub_interval=rng.choice([0.05, 0.5]),
    )


class World:
    """One group and all that can be wrong with it. `impaired` are the disks that the fail model must cover at the moment."""

    def __init__(self, loop: SimLoop, erasure: Erasure, options: GroupOptions) -> None:
        self.loop = loop
        self.erasure = erasure
        self.options = options
        self.orders = range(erasure.shape.disks)
        self.generation = 1
        self.disk_random = loop.fork_random("disks")
        self._life_random = loop.fork_random("life")
        tails = [self.disk_random.choice([0, 0, 4096]) for _ in self.orders]
        self.platters = [SimPlatter(zero_tail=tail) for tail in tails]
        self.faults = [DiskFaults() for _ in self.orders]
        self.impaired: set[int] = set()
        self.flooded = False
        self.formed = False
        self.crashes = 0
        self.log: list[str] = []
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self._intervals: list[Interval] = []
        self._incarnation = 0
        self._moves = 0

    @property
    def by_hand(self) -> bool:
        """Whether rounds are run by the simulation, and not by the group's own timers."""
        return self.options.sync_interval is None

    async def note_formed(self) -> None:
        """The group is new no more, by its configuration."""
        self.formed = True

    # The process.

    async def start(self, crash_after: int | None = None) -> None:
        """Start the group in a new process, again if it crashes on the way (`crash_after` steps)."""
        for _ in range(STARTS_MAX):
            self._incarnation += 1
            self.process = SimProcess(self.loop, f"node-{self._incarnation}")
            if crash_after is not None:
                self.process.crash_at_step(crash_after)
            self.life: VDiskHost = LocalGroup(
                GROUP_ID,
                self.generation,
                self.erasure,
                self.open_disk,
                clock=SimClock(self.loop),
                random=self._life_random,
                options=self.options,
                on_formed=None if self.formed else self.note_formed,
            )
            try:
                await self.process.call(self.life.start())
            except ProcessDiedError:
                crash_after = None
                continue
            self.note("started")
            self.process.on_crash(self._went_down)
            self.down.clear()
            self.up.set()
            return
        raise InvariantError("the group does not start")

    async def stop(self) -> None:
        """End the process as on a shutdown."""
        self.up.clear()
        await self.process.call(self.life.stop())

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something inside the process; ProcessDiedError if it does not live to answer."""
        return await self.process.call(work)

    async def open_disk(self, order: int) -> Disk:
        """One opening of the disk that the VDisk lives on now."""
        return SimDisk(self.platters[order], self.disk_random, self.faults[order], at_once_rate=AT_ONCE_RATE)

    def check_tasks(self) -> None:
        """No task of the group may have ended by itself."""
        for task in self.life.keepers.values():
            if task.done():
                error = None if task.cancelled() else task.exception()
                raise InvariantError(f"the task {task.get_name()} of the group has ended: {error!r}") from error

    def vdisks(self) -> dict[int, VDisk]:
        """The VDisks that are open."""
        return self.life.vdisks

    # What is wrong.

    @contextmanager
    def watch(self, *, deadline: bool = False) -> Iterator[Interval]:
        """Gather what befalls the group meanwhile."""
        interval = Interval(self._mask(), moved=self._moves > 0, flooded=self.flooded, deadline=deadline)
        self._intervals.append(interval)
        try:
            yield interval
        finally:
            self._intervals = [other for other in self._intervals if other is not interval]

    def may_impair(self, *orders: int) -> bool:
        """Whether the fail model covers these disks too."""
        return fits_fail_model(self.erasure, self._mask() | sum(1 << order for order in orders))

    def impair(self, order: int) -> None:
        """From now on answers may do without this disk."""
        self.impaired.add(order)
        for interval in self._intervals:
            interval.failed |= 1 << order

    async def move(self, order: int) -> None:
        """Let a VDisk live on a new disk. That is decided before it is done, so a crash on the way leaves it so."""
        self.platters[order] = SimPlatter()
        self.generation += 1
        self._moves += 1
        for interval in self._intervals:
            interval.moved = True
        try:
            await self.do(self.life.move(order, self.open_disk))
        finally:
            self._moves -= 1

    def flood(self, capacities: list[int]) -> None:
        """From now on every disk has only so much room."""
        self.flooded = True
        for faults, capacity in zip(self.faults, capacities, strict=True):
            faults.capacity = capacity
        for interval in self._intervals:
            interval.flooded = True

    def note(self, event: str) -> None:
        """Log an event of the run, for replays."""
        self.log.append(f"{self.loop.time():9.4f} {event}")

    def _went_down(self) -> None:
        self.note("crashed")
        self.crashes += 1
        self.up.clear()
        self.down.set()

    def _mask(self) -> int:
        return sum(1 << order for order in self.impaired)
