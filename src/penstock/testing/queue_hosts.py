"""Where the tablet of the partition simulation runs: instances of its generations, booted, killed, left behind and racing.

The newest generation that has booted is the one to serve; from then on no older one may write, and once it tries it must stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from penstock.blob import TabletStorage
from penstock.core.errors import ClosedError, FencedError, OutOfSpaceError, PenstockError, UnavailableError
from penstock.queue import BlobCache, Partition, PartitionConfig, QueueTablet, UnknownPartitionError
from penstock.tablet import KvOptions
from penstock.testing.fault_ledger import InvariantError, require
from penstock.testing.queue_ledger import PartitionLedger
from penstock.testing.queue_world import INFO, QueueWorld, RemoteStorage, Wire
from penstock.testing.sim_loop import ProcessDiedError, SimClock, SimProcess
from penstock.testing.suspended_tasks import functions_of

T = TypeVar("T")

BOOT_S_MAX = 60.0
LOOK_S = 0.01
CRASH_RATE = 0.3  # of tablets in a process of their own
CRASH_STEPS = (30, 300, 3000)
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class TabletSettings:
    """What every generation of the tablet is started with."""

    config: PartitionConfig
    options: KvOptions
    wire: Wire
    colocated_rate: float  # of instances that live and die with the storage
    cache_bytes: int


@dataclass(slots=True, eq=False)
class Instance:
    """One generation of the tablet, in its process."""

    generation: int
    process: SimProcess
    queue: QueueTablet

    @property
    def is_up(self) -> bool:
        """Whether it can still answer."""
        return not self.process.crashed and not self.queue.stopped.is_set()

    def partition(self, number: int) -> Partition:
        """One of its partitions."""
        return self.queue.partition(number)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in its process; ProcessDiedError if that dies first."""
        return await self.process.call(work)


@dataclass(slots=True)
class Hosts:
    """Starts generations of the tablet and keeps those that were left behind."""

    world: QueueWorld
    settings: TabletSettings
    ledgers: dict[int, PartitionLedger]
    random: Random
    generation: int = 0
    serving: Instance | None = None
    instances: list[Instance] = field(default_factory=list)  # all that have booted and were not stopped yet
    counts: dict[str, int] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _booted: set[int] = field(default_factory=set)
    _watched: list[SimProcess] = field(default_factory=list)

    @property
    def booted_generation(self) -> int:
        """The newest generation that has booted: no older one may write any more."""
        return max(self._booted, default=0)

    def count(self, what: str) -> None:
        """Keep a tally for the summary."""
        self.counts[what] = self.counts.get(what, 0) + 1

    # Booting.

    def next_generation(self) -> int:
        """A generation that was never used before."""
        self.generation += 1
        return self.generation

    async def boot(self, generation: int) -> Instance | None:
        """Start a generation; None if it could not start."""
        await self.world.up.wait()
        process, storage = self._draw_place(generation)
        rng = Random(self.random.getrandbits(64))
        work = QueueTablet.boot(
            storage,
            generation,
            self.settings.config,
            cache=BlobCache(self.settings.cache_bytes),
            clock=SimClock(self.world.loop),
            random=rng,
            options=self.settings.options,
        )
        newest = self.booted_generation
        try:
            async with asyncio.timeout(BOOT_S_MAX):
                queue = await process.call(work)
        except (ProcessDiedError, TimeoutError):
            self.count("boot died")
            return None
        except (FencedError, UnavailableError, OutOfSpaceError, ClosedError) as error:
            self.count(f"boot {error.code}")
            return None
        require(newest < generation, f"generation {generation} booted after {newest} had")
        require(generation not in self._booted, f"generation {generation} booted twice")
        self._booted.add(generation)
        self.world.note(f"booted {generation} in {process.name}")
        self.count("boot")
        instance = Instance(generation, process, queue)
        self.instances.append(instance)
        return instance

    def _draw_place(self, generation: int) -> tuple[SimProcess, TabletStorage]:
        if self.random.random() < self.settings.colocated_rate:
            self._watch(self.world.process)
            return self.world.process, self.world.storage.tablet(INFO)
        storage = RemoteStorage(self.world, self.settings.wire, Random(self.random.getrandbits(64)))
        process = SimProcess(self.world.loop, f"tablet-{generation}")
        if not self.settings.wire.is_quiet and self.random.random() < CRASH_RATE:
            process.crash_at_step(self.random.randint(0, self.random.choice(CRASH_STEPS)))
        self._watch(process)
        return process, storage

    def _watch(self, process: SimProcess) -> None:
        """Count in what its tasks were when a process crashes, so that a summary tells what was crashed in and what never was."""
        if process in self._watched:
            return
        self._watched.append(process)

        def note() -> None:
            for place in functions_of(process.tasks(), ("tablet", "queue")):
                self.count(f"crashed in {place}")

        process.on_crash(note)

    def calm_down(self) -> None:
        """No tablet crashes by itself any more."""
        self.settings.wire.is_quiet = True
        for process in self._watched:
            if not process.crashed:
                process.crash_at_step(NEVER)

    async def replace(self) -> None:
        """Boot newer generations until one serves; several may race for it."""
        old, self.serving = self.serving, None
        self.ready.clear()
        if old is not None:
            await self._leave(old)
        while self.serving is None:
            rivals = self._draw_rivals()
            booted = await asyncio.gather(*(self._boot_later(generation) for generation in rivals))
            started = sorted((instance for instance in booted if instance is not None), key=lambda instance: instance.generation)
            if started and started[-1].generation == self.booted_generation:
                await self._serve(started[-1])

    def _draw_rivals(self) -> list[int]:
        draw = self.random.random()
        if draw < 0.8:
            return [self.next_generation()]
        first = self.next_generation()
        if draw < 0.88:
            return [first] * self.random.randint(2, 3)
        return [first, *(self.next_generation() for _ in range(self.random.randint(1, 3)))]

    async def _boot_later(self, generation: int) -> Instance | None:
        await asyncio.sleep(self.random.choice([0, 0.001, 0.01, 0.1]) * self.random.random())
        return await self.boot(generation)

    async def _serve(self, instance: Instance) -> bool:
        """Make its partitions, if they are not there yet, and let clients at it; whether that went well."""
        for number, ledger in self.ledgers.items():
            try:
                if number not in instance.queue.partitions:
                    await instance.do(instance.queue.add_partition(number, ledger.first_offset))
                    self.count("partition added")
            except (UnavailableError, FencedError, OutOfSpaceError, ClosedError, ProcessDiedError):
                return False
            own = instance.partition(number)
            ledger.judge_bounds(instance.generation, own.start_offset, own.end_offset)
        self.serving = instance
        self.ready.set()
        return True

    async def _leave(self, instance: Instance) -> None:
        """Let an instance go: by a stop, by a crash of its process, or not at all."""
        draw = self.random.random()
        if instance.process.crashed or draw < 0.4:
            return
        if draw < 0.7 or instance.process is self.world.process:
            try:
                async with asyncio.timeout(BOOT_S_MAX):
                    await instance.do(instance.queue.stop())
            except (ProcessDiedError, TimeoutError):
                pass
        else:
            instance.process.crash()

    # Working with instances.

    async def pick(self) -> Instance:
        """The instance that a client happens to know: nearly always the one that serves."""
        zombies = [other for other in self.instances if other.is_up and other is not self.serving]
        if zombies and self.random.random() < 0.1:
            return self.random.choice(zombies)
        while self.serving is None:
            await self.ready.wait()
        return self.serving

    async def change(self, instance: Instance, work: Coroutine[Any, Any, T]) -> T:
        """Something that writes. It must not succeed if a newer generation had booted before it began."""
        newest = self.booted_generation
        result = await instance.do(work)
        told = f"generation {instance.generation} wrote though {newest} had booted"
        require(newest <= instance.generation or getattr(result, "duplicate", False), told)
        return result

    async def supervise(self, ending: asyncio.Event) -> None:
        """Keep one instance serving; replace it now and then for no reason at all."""
        pause = self.random.choice([0.05, 0.3, 2.0])
        while not ending.is_set():
            if self.serving is None or not self.serving.is_up or self.random.random() < 0.3:
                await self.replace()
            for _ in range(int(self.random.expovariate(1 / pause) / LOOK_S)):
                await asyncio.sleep(LOOK_S)
                if ending.is_set() or self.serving is None or not self.serving.is_up:
                    break

    async def boot_healthy(self) -> Instance:
        """On storage without faults a boot succeeds."""
        self.serving = None
        self.ready.clear()
        instance = await self.boot(self.next_generation())
        if instance is None or not await self._serve(instance):
            raise InvariantError(f"the tablet does not boot on healthy storage: {self.counts}")
        return instance

    async def stop_zombies(self) -> None:
        """Write to every fenced instance: it learns that it is fenced and stops itself."""
        for zombie in [instance for instance in self.instances if instance is not self.serving]:
            if zombie.is_up:
                await self._poke(zombie)
            require(not zombie.is_up, f"generation {zombie.generation} still runs beside {self.booted_generation}")
            if not zombie.process.crashed:
                await zombie.do(zombie.queue.stop())
            self.instances.remove(zombie)

    async def stop(self) -> None:
        """End the instance that serves, as on a shutdown."""
        if self.serving is not None:
            await self.serving.do(self.serving.queue.stop())

    async def _poke(self, zombie: Instance) -> None:
        number = next(iter(zombie.queue.partitions), None)
        work = zombie.queue.add_partition(0) if number is None else zombie.partition(number).commit("poke", 0)
        try:
            await self.change(zombie, work)
        except FencedError:
            self.count("fenced")
            require(zombie.queue.stopped.is_set(), f"generation {zombie.generation} was fenced and has not stopped")
        except (PenstockError, ProcessDiedError) as error:
            require(not isinstance(error, UnknownPartitionError), str(error))
