"""The fault simulation of placement: `python -m penstock.testing.simulate --world placement`.

A run is 3 to 9 nodes with tablets, a writer and a reader of each, and an operator who drains, moves and creates, while nodes die,
stand still, return, are cut off from each other or from the store, and the store goes away. Every answer is judged. When all has
healed, each tablet runs on its owner alone, the nodes are even, everything that was acknowledged is there once, and nothing
moves any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any, TypeVar, cast

from penstock.blob import Buffer, Erasure
from penstock.core.errors import PenstockError
from penstock.placement import Placement
from penstock.placement.plan import TOLERANCE
from penstock.queue import OffsetOutOfRangeError, SequenceError, SourceWrite
from penstock.testing.fault_ledger import InvariantError, require
from penstock.testing.placement_world import HostedLedger, Member, PlacementWorld
from penstock.testing.queue_ledger import Message
from penstock.testing.seed_runs import Run, simulate
from penstock.testing.sim_loop import ProcessDiedError, current_loop

T = TypeVar("T")

TIME_S_MAX = 3600.0
FORM_S = 60.0
FAULTS_S = (10.0, 60.0)
SETTLE_S_MAX = 300.0
QUIET_S = 40.0
LOOK_S = 0.5
CALL_S = 5.0
ENDS_RATE = 0.2


def run_seed(seed: int, _: Erasure | None = None) -> Run:
    """Run one simulation; SeedFailedError if anything is not as promised. The storage is one disk in all of them."""
    run = Run(seed, Erasure.NONE)
    return simulate(run, _main(run), world="placement", time_s_max=TIME_S_MAX)


async def _main(run: Run) -> None:
    loop = current_loop()
    rng = loop.fork_random("placement")
    world = PlacementWorld(loop, rng, rng.randint(3, 9))
    run.faults, run.counts = world.log, world.counts
    async with started(world):
        await _play(world)


@contextlib.asynccontextmanager
async def started(world: PlacementWorld) -> AsyncIterator[None]:
    """All nodes, running and seen by their leader; stopped in order at the end."""
    await world.queue.start()
    links = world.loop.create_task(world.keep_links(), name="links")
    await asyncio.sleep(0.1)
    for member in world.members.values():
        await member.start()
        await asyncio.sleep(0.5)
    await until(world, FORM_S, lambda: len(placement_of(world).nodes) == len(world.members), "all nodes are seen")
    yield
    for member in world.members.values():
        await member.stop()
    links.cancel()
    await asyncio.gather(links, return_exceptions=True)
    await world.queue.stop()


async def _play(world: PlacementWorld) -> None:
    """Faults and work together, then calm."""
    rng = world.random
    clients = Clients(world, world.loop.fork_random("clients"))
    operator = Operator(world, clients, world.loop.fork_random("operator"))
    for _ in range(rng.randint(1, 3)):
        await operator.create()
    await operator.torment(rng.uniform(*FAULTS_S))
    await operator.heal()
    await until(world, SETTLE_S_MAX, lambda: not unsettled(world), "the cluster settles", why=lambda: unsettled(world))
    await clients.finish()
    before = owners_of(world)
    await asyncio.sleep(QUIET_S)
    moved = {tablet_id for tablet_id, owner in owners_of(world).items() if before[tablet_id] != owner}
    require(not moved, f"tablets {sorted(moved)} moved though nothing happened")
    require(not unsettled(world), f"after a quiet time: {unsettled(world)}")
    for ledger in world.ledgers.values():
        await clients.read_whole(ledger)


def leader_of(world: PlacementWorld) -> Member:
    """The node that leads for certain."""
    leaders = [member for member in world.members.values() if member.runs and member.placement is not None]
    certain = [member for member in leaders if member.coordination.leadership is not None]
    if not certain:
        raise _NoLeaderError
    return certain[0]


def placement_of(world: PlacementWorld) -> Placement:
    """That of the leader."""
    placement = leader_of(world).placement
    assert placement is not None
    return placement


class _NoLeaderError(Exception):
    pass


def owners_of(world: PlacementWorld) -> dict[int, int | None]:
    """The owner of each tablet, as the leader knows it."""
    owners = leader_of(world).coordination.owners()
    return {tablet_id: owners.owner_of(tablet_id) for tablet_id in world.ledgers}


def unsettled(world: PlacementWorld) -> str:
    """What is not yet as it must be after all has healed; empty if nothing."""
    try:
        owners = owners_of(world)
        kept = leader_of(world).coordination.kept.nodes()
    except _NoLeaderError:
        return "no node leads"
    if kept.keys() - world.operated:
        return f"tablets {sorted(kept.keys() - world.operated)} are kept on nodes though no operator has moved them"
    loads = Counter(dict.fromkeys(world.members, 0))
    for tablet_id, owner in owners.items():
        hosts = [member.number for member in world.members.values() if tablet_id in member.tablets.generations()]
        if owner is None or hosts != [owner]:
            return f"tablet {tablet_id} of node {owner} runs on {hosts}"
        loads[owner] += world.ledgers[tablet_id].tablet.partitions
    mean = sum(loads.values()) / len(loads)
    for tablet_id, owner in owners.items():
        assert owner is not None
        enough = max(2.0, TOLERANCE * mean, 2 * world.ledgers[tablet_id].tablet.partitions)
        if loads[owner] - min(loads.values()) >= enough and kept.get(tablet_id) != owner:
            return f"tablet {tablet_id} of node {owner} should move: {dict(loads)}"
    return ""


async def until(
    world: PlacementWorld,
    for_s: float,
    is_so: Callable[[], bool],
    what: str,
    *,
    why: Callable[[], str] = lambda: "",
    look_s: float = LOOK_S,
) -> None:
    """Wait until something is so. InvariantError if it is not in time."""
    deadline = world.loop.time() + for_s
    while True:
        with contextlib.suppress(_NoLeaderError):
            if is_so():
                return
        if world.loop.time() > deadline:
            raise InvariantError(f"not within {for_s:g} s: {what} {why()}")
        await asyncio.sleep(look_s)


class Clients:
    """A writer and a reader of each tablet, which ask the node that the store names."""

    def __init__(self, world: PlacementWorld, rng: Random) -> None:
        self._world = world
        self._random = rng
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def serve(self, ledger: HostedLedger) -> None:
        """Write to a tablet, and read it, from now on."""
        loop = self._world.loop
        tablet_id = ledger.tablet.tablet_id
        self._tasks.append(loop.create_task(self._write(ledger), name=f"writer-{tablet_id}"))
        self._tasks.append(loop.create_task(self._follow(ledger), name=f"reader-{tablet_id}"))

    async def finish(self) -> None:
        """Let every writer get its last message acknowledged."""
        self._ending.set()
        async with asyncio.timeout(SETTLE_S_MAX):
            await asyncio.gather(*self._tasks)

    async def _write(self, ledger: HostedLedger) -> None:
        source = f"w{ledger.tablet.tablet_id}"
        seqno = 0
        while not self._ending.is_set():
            message = Message(source, 0, seqno)
            raw = ledger.messages.sizes.batch_of(0, [message], timestamp=seqno)
            while not await self._write_once(ledger, message, raw):  # noqa: ASYNC110 - it asks another node each time
                await asyncio.sleep(self._random.uniform(0.01, 0.2))
            seqno += 1
            await asyncio.sleep(self._random.uniform(0.0, 0.3))

    async def _write_once(self, ledger: HostedLedger, message: Message, raw: bytes) -> bool:
        tablet_id = ledger.tablet.tablet_id

        async def write(member: Member) -> int:
            partition, generation = member.tablets.partition(tablet_id, 0), member.tablets.generations()[tablet_id]
            result = await partition.write(raw, SourceWrite(message.source.encode(), message.seqno, 0, False))
            if not result.duplicate:
                self._world.judge_write(tablet_id, generation)
            return result.base_offset

        offset = await self._ask(tablet_id, write)
        if offset is None:
            self._world.count("write failed")
            return False
        self._world.count("write")
        ledger.messages.acknowledge([message], offset)
        return True

    async def _follow(self, ledger: HostedLedger) -> None:
        position = 0
        while not self._ending.is_set():
            position = await self._read(ledger, position)
            if self._random.random() < ENDS_RATE:
                await self._judge_end(ledger)
            await asyncio.sleep(self._random.uniform(0.0, 0.5))

    async def _read(self, ledger: HostedLedger, position: int) -> int:
        tablet_id = ledger.tablet.tablet_id

        async def read(member: Member) -> tuple[list[Buffer], int]:
            result = await member.tablets.partition(tablet_id, 0).read(position, 1 << 20)
            return [bytes(cast("Buffer", batch)) for batch in result.batches], result.next_offset

        answer = await self._ask(tablet_id, read)
        if answer is None:
            return position
        self._world.count("read")
        ledger.messages.judge_run(position, tuple(answer[0]), answer[1])
        require(answer[1] >= position, f"a reader of tablet {tablet_id} at {position} was sent back to {answer[1]}")
        return answer[1]

    async def _judge_end(self, ledger: HostedLedger) -> None:
        """An end that is asked for to decide something counts all that was acknowledged before."""
        tablet_id = ledger.tablet.tablet_id
        known = max((ledger.messages.places[message] + 1 for message in ledger.messages.acked), default=0)

        async def end(member: Member) -> int:
            partition = member.tablets.partition(tablet_id, 0)
            await partition.tablet.confirm_now()
            return partition.end_offset

        end_offset = await self._ask(tablet_id, end)
        if end_offset is not None:
            self._world.count("end")
            require(end_offset >= known, f"tablet {tablet_id} is told to end at {end_offset}, and held {known} messages before")

    async def read_whole(self, ledger: HostedLedger) -> None:
        """Everything that was acknowledged is there, once."""
        position = 0
        while True:
            after = await self._read(ledger, position)
            if after == position:
                break
            position = after
        missing = [message for message in ledger.messages.acked if ledger.messages.places[message] >= position]
        require(not missing, f"tablet {ledger.tablet.tablet_id} ends at {position} and lacks {missing[:3]}")

    async def _ask(self, tablet_id: int, work: Callable[[Member], Coroutine[Any, Any, T]]) -> T | None:
        """Ask the node that some node takes for the owner; None if that fails."""
        running = [member for member in self._world.members.values() if member.runs]
        if not running:
            return None
        told_by = self._random.choice(running)
        owner = told_by.coordination.owner_of(tablet_id)
        member = self._world.members.get(owner) if owner is not None else None
        if member is None or member.process is None or not member.is_up:
            return None
        try:
            async with asyncio.timeout(CALL_S):
                return await member.process.call(work(member))
        except (PenstockError, ProcessDiedError, TimeoutError) as error:
            require(not isinstance(error, SequenceError), f"a write to tablet {tablet_id} was refused: {error}")
            require(not isinstance(error, OffsetOutOfRangeError), f"a reader of tablet {tablet_id} was sent back: {error}")
            return None


class Operator:
    """Everything that happens to the cluster."""

    def __init__(self, world: PlacementWorld, clients: Clients, rng: Random) -> None:
        self._world = world
        self._clients = clients
        self._random = rng
        self.faults: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "cut off": self._cut,
            "cut one": self._cut_one,
            "cut store": self._cut_store,
            "store away": self._store_away,
            "lose lease": self._lose_lease,
            "drain": self._drain,
            "undrain": self._undrain,
            "move": self._move,
            "create": self.create,
            "maintenance": self._maintain,
        }

    async def torment(self, for_s: float) -> None:
        """One thing after another, some at once."""
        loop = self._world.loop
        chosen = self._random.sample(sorted(self.faults), self._random.randint(2, len(self.faults)))
        deadline = loop.time() + for_s
        running: set[asyncio.Task[None]] = set()
        while loop.time() < deadline:
            name = self._random.choice(chosen)
            task = loop.create_task(self.faults[name](), name=f"fault-{name}")
            running.add(task)
            began = loop.time()
            done, running = await asyncio.wait(running, timeout=self._random.uniform(0.0, 8.0))
            if loop.time() == began:
                await asyncio.sleep(LOOK_S)  # without a leader, what an operator asks for is over at once, time after time
            for ended in done:
                ended.result()
        if running:
            await asyncio.wait(running)
        for ended in running:
            ended.result()

    async def heal(self) -> None:
        """End all faults and all that an operator has begun."""
        world = self._world
        world.cut.clear()
        world.store.cut_off = set()
        world.store.start()
        for member in world.members.values():
            if member.process is not None and member.process.is_paused:
                member.process.resume()
            if not member.is_up:
                await member.start()
        for subject in (*world.members, *(member.process_name for member in world.members.values()), "store"):
            world.disturb(subject)
        world.note("healed")
        for number in world.members:
            await self._as_leader(lambda leader, number=number: leader.coordination.set_draining(number, is_draining=False))  # type: ignore[misc]
        await self._as_leader(lambda leader: leader.coordination.set_maintenance(is_on=False))

    async def _as_leader(self, work: Callable[[Member], Coroutine[Any, Any, None]]) -> None:
        """Have whichever node leads do something, again and again until it is done."""
        deadline = self._world.loop.time() + SETTLE_S_MAX
        while True:
            with contextlib.suppress(_NoLeaderError, PenstockError, ProcessDiedError):
                leader = leader_of(self._world)
                assert leader.process is not None
                await leader.process.call(work(leader))
                return
            require(self._world.loop.time() < deadline, "no leader does what an operator asks for")
            await asyncio.sleep(LOOK_S)

    async def _try_as_leader(self, work: Callable[[Member], Coroutine[Any, Any, None]]) -> bool:
        try:
            leader = leader_of(self._world)
            assert leader.process is not None
            async with asyncio.timeout(30):
                await leader.process.call(work(leader))
        except (_NoLeaderError, PenstockError, ProcessDiedError, TimeoutError) as error:
            self._world.note(f"not done: {error!r}")
            return False
        return True

    # Faults of nodes.

    def _draw(self) -> Member:
        return self._random.choice(list(self._world.members.values()))

    async def _kill(self) -> None:
        member = self._draw()
        self._world.note(f"kill {member.number}")
        member.kill()
        self._world.count("kill")
        await asyncio.sleep(self._random.choice([0.1, 2.0, 10.0]))
        if not member.is_up:
            await member.start()

    async def _stop(self) -> None:
        member = self._draw()
        self._world.note(f"stop {member.number}")
        await member.stop()
        await asyncio.sleep(self._random.choice([0.1, 2.0, 10.0]))
        if not member.is_up:
            await member.start()

    async def _pause(self) -> None:
        member = self._draw()
        process = member.process
        if process is None or not member.runs:
            return
        self._world.note(f"pause {member.number}")
        process.pause()
        await self._last(self._random.choice([0.2, 1.5, 7.0]), member.number, member.process_name)
        self._world.note(f"resume {member.number}")
        process.resume()

    async def _cut(self) -> None:
        """A node reaches no other."""
        number = self._draw().number
        await self._cut_pairs({frozenset({number, other}) for other in self._world.members if other != number}, {number})

    async def _cut_one(self) -> None:
        """Two nodes do not reach each other."""
        pair = self._random.sample(sorted(self._world.members), 2)
        await self._cut_pairs({frozenset(pair)}, set(pair))

    async def _cut_pairs(self, pairs: set[frozenset[int]], numbers: set[int]) -> None:
        self._world.note(f"cut {sorted(map(sorted, pairs))}")
        self._world.cut |= pairs
        for_s = self._random.choice([0.3, 2.0, 8.0])
        await self._last(for_s, *numbers, *pairs)
        self._world.cut -= pairs
        self._world.note(f"mended {sorted(map(sorted, pairs))}")

    async def _last(self, for_s: float, *subjects: object) -> None:
        """Something is wrong for a while, with each of these."""
        end = self._world.loop.time() + for_s
        while True:
            for subject in subjects:
                self._world.disturb(subject)
            if self._world.loop.time() >= end:
                return
            await asyncio.sleep(min(LOOK_S, end - self._world.loop.time()))

    # Faults of the store.

    async def _cut_store(self) -> None:
        """A node does not reach the store."""
        member = self._draw()
        self._world.note(f"cut {member.number} off from the store")
        self._world.store.cut_off.add(member.name)
        await self._last(self._random.choice([0.5, 3.0, 12.0]), member.number, member.process_name)
        self._world.store.cut_off.discard(member.name)

    async def _store_away(self) -> None:
        self._world.note("the store is away")
        self._world.store.stop()
        await self._last(self._random.choice([0.5, 3.0, 12.0]), "store")
        self._world.store.start()
        self._world.note("the store is back")

    async def _lose_lease(self) -> None:
        self._world.note("a lease is lost")
        await self._world.store.lose_lease()
        self._world.disturb("store")

    # What operators do.

    async def create(self) -> None:
        """Create a topic."""
        tablet_ids = self._world.new_tablets(self._random.randint(1, 6))
        self._world.note(f"create {tablet_ids}")
        await self._try_as_leader(lambda leader: leader.placement.place(tablet_ids))  # type: ignore[union-attr]
        for tablet_id in tablet_ids:
            self._clients.serve(self._world.ledgers[tablet_id])

    async def _drain(self) -> None:
        number = self._draw().number
        self._world.note(f"drain {number}")
        await self._try_as_leader(lambda leader: leader.coordination.set_draining(number, is_draining=True))
        self._world.count("drain")

    async def _undrain(self) -> None:
        number = self._draw().number
        self._world.note(f"undrain {number}")
        await self._try_as_leader(lambda leader: leader.coordination.set_draining(number, is_draining=False))

    async def _move(self) -> None:
        if self._world.ledgers:
            tablet_id = self._random.choice(sorted(self._world.ledgers))
            number = self._draw().number
            self._world.note(f"move tablet {tablet_id} to {number}")
            self._world.operated.add(tablet_id)
            if await self._try_as_leader(lambda leader: leader.placement.move(tablet_id, number)):  # type: ignore[union-attr]
                self._world.count("move")

    async def _maintain(self) -> None:
        is_on = self._random.random() < 0.5
        self._world.note(f"maintenance {is_on}")
        await self._try_as_leader(lambda leader: leader.coordination.set_maintenance(is_on=is_on))
