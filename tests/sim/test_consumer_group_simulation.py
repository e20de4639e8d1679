"""Groups whose coordinator assigns partitions, under seeds: members come, go, crash, dawdle and miss answers; topics change; the
store fails and the broker is killed.

Held against the members' own view of who has what. No partition is with two of them at once; a member that kept its time is
never thrown out; epochs only grow; and once it is calm everyone has what it should have.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from random import Random
from uuid import UUID

import pytest

from penstock.broker import TopicPartition
from penstock.broker.groups import (
    ConsumerCoordinator,
    ConsumerGroupOptions,
    FencedMemberError,
    Heartbeat,
    HeartbeatResponse,
    UnknownGroupError,
    UnknownMemberError,
    UnreleasedInstanceError,
)
from penstock.broker.groups.subscriptions import Topics, TopicShape
from penstock.core.errors import UnavailableError
from penstock.tablet import Command
from penstock.testing.sim_loop import ProcessDiedError, SimProcess, current_loop, run_simulation
from tests.sim_tablet import ERROR, FINE, SimNode

GROUP = "readers"
OPTIONS = ConsumerGroupOptions()
REBALANCE_TIMEOUT_S = 20.0
STORM_S = 600.0
CALM_S = 300.0
NAMES = ("a", "b", "c", "other")
EXCUSED = (UnknownMemberError, UnknownGroupError, FencedMemberError)


class NoOtherKinds:
    """A namespace without groups of other kinds."""

    def take(self, name: str, kind: str) -> tuple[Command, ...]:
        return ()


class World:
    """The broker, its store, its topics, and who has which partition as the members see it."""

    def __init__(self) -> None:
        loop = current_loop()
        self.random = loop.fork_random("world")
        self.node = SimNode()
        self.generation = 0
        self.process: SimProcess
        self.coordinator: ConsumerCoordinator | None = None
        self.topics = Topics(0, {})
        self.owners: dict[TopicPartition, SimMember] = {}
        self.members: list[SimMember] = []
        self.group_epoch = 0
        self.counts: Counter[str] = Counter()
        self.is_calm = False

    async def start(self) -> None:
        self.process = SimProcess(current_loop(), f"broker-{self.generation}")
        self.generation += 1
        self.coordinator = await self.process.call(self._boot())
        self.check_epoch()

    async def _boot(self) -> ConsumerCoordinator:
        coordinator = ConsumerCoordinator(
            await self.node.kv(self.generation),
            OPTIONS,
            names=NoOtherKinds(),
            topics=lambda: self.topics,
            clock=self.node.clock,
            random=self.random,
        )
        coordinator.load()
        return coordinator

    async def kill(self) -> None:
        """The process dies with all its memory, writes in flight included, and restarts after a while."""
        self.process.crash()
        self.coordinator = None
        self.node.start()
        await asyncio.sleep(self.random.random() * 3)
        await self.start()

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatResponse:
        """What the broker answers. UnavailableError if it does not."""
        if self.coordinator is None:
            raise UnavailableError("the broker is down")
        try:
            return await self.process.call(self.coordinator.heartbeat(GROUP, beat))
        except ProcessDiedError as error:
            raise UnavailableError("the broker has died") from error

    def check_epoch(self) -> None:
        group = None if self.coordinator is None else self.coordinator.group(GROUP)
        if group is not None:
            assert group.record.epoch >= self.group_epoch
            assert group.record.epoch >= group.record.assignment_epoch

    def change_topics(self) -> None:
        shapes = dict(self.topics.by_name)
        name = self.random.choice(NAMES)
        if name in shapes and self.random.random() < 0.3:
            del shapes[name]
        elif name in shapes:
            shapes[name] = shapes[name]._replace(partitions=shapes[name].partitions + self.random.randint(1, 3))
        else:
            shapes[name] = TopicShape(UUID(int=self.random.getrandbits(128)), self.random.randint(1, 6))
        self.topics = Topics(self.topics.version + 1, shapes)

    def wanted(self) -> set[TopicPartition]:
        """What must be with someone once it is calm."""
        alive = [member for member in self.members if member.is_alive]
        names = {name for member in alive for name in self.topics.by_name if name in member.names or member.matches(name)}
        shapes = [self.topics.by_name[name] for name in names]
        return {TopicPartition(shape.id, number) for shape in shapes for number in range(shape.partitions)}


class SimMember:
    """A client: it gives up before it takes, and says what it owns when that has changed."""

    def __init__(self, world: World, number: int, instance_id: str | None) -> None:
        self.world = world
        self.random = Random(f"{world.random.random()}/{number}")
        self.number, self.lives = number, 0
        self.instance_id = instance_id
        self.names = frozenset(self.random.sample(NAMES[:3], self.random.randint(1, 3)))
        self.pattern = "[ab]" if self.random.random() < 0.3 else ""
        self.is_alive = True
        self.reset()
        self.task = asyncio.create_task(self.run())

    @property
    def id(self) -> str:
        return f"member-{self.number}-{self.lives}"

    def reset(self) -> None:
        """Forget everything, as a client does that must rejoin."""
        self.owned: set[TopicPartition] = set()
        self.target: frozenset[TopicPartition] = frozenset()
        self.epoch = 0
        self.said: set[TopicPartition] | None = None
        self.says_all = True
        self.missed = 0
        self.was_late = False
        self.revoking_until: float | None = None
        self.asked_at: float | None = None  # since when it is to give something up and the broker does not know that it did
        self.heard_at = self.world.node.clock.monotonic()

    def is_late(self) -> bool:
        """Whether the broker may have thrown it out."""
        now = self.world.node.clock.monotonic()
        dawdles = self.asked_at is not None and now - self.asked_at > REBALANCE_TIMEOUT_S - 1
        return self.was_late or dawdles or now - self.heard_at > OPTIONS.session_timeout_ms / 1000 - 1

    def matches(self, name: str) -> bool:
        return bool(self.pattern) and name in ("a", "b")

    async def run(self, pause_s: float = 0.0) -> None:
        await asyncio.sleep(pause_s)
        while True:
            wait_s = await self.speak()
            await asyncio.sleep(wait_s)

    async def speak(self) -> float:
        """One heartbeat; how long to wait for the next."""
        world, now = self.world, self.world.node.clock.monotonic()
        self.was_late = self.is_late()
        if self.revoking_until is not None and now >= self.revoking_until:
            self.give_up()
        beat = self.heartbeat()
        try:
            answer = await world.heartbeat(beat)
        except UnavailableError:
            self.miss()
            return 0.5
        except UnreleasedInstanceError:
            return 1.0
        except EXCUSED as error:
            if not (self.was_late or self.missed > 1 or self.epoch == 0):
                raise AssertionError(f"{self.id} is thrown out though it kept its time: {error}") from error
            world.counts["fenced"] += 1
            self.release(list(self.owned))
            self.reset()
            return 0.1
        if not world.is_calm and self.random.random() < 0.1:
            world.counts["missed answer"] += 1
            if answer.assigned is not None and self.owned - answer.assigned:
                self.be_asked()
            self.miss()
            return 0.5
        assert answer.epoch >= self.epoch
        self.epoch = answer.epoch
        self.heard_at, self.missed, self.says_all = world.node.clock.monotonic(), 0, False
        if beat.owned is not None:
            self.said = set(beat.owned)
            if beat.owned <= (self.target if answer.assigned is None else answer.assigned):
                self.asked_at = None
        if answer.assigned is not None:
            self.take(answer.assigned)
        return answer.heartbeat_interval_ms / 1000 * (0.5 if self.said != self.owned else 1.0)

    def heartbeat(self) -> Heartbeat:
        joins = self.epoch == 0
        owned = frozenset() if joins else frozenset(self.owned) if self.says_all or self.said != self.owned else None
        beat = Heartbeat(self.id, self.epoch, self.instance_id, owned=owned)
        if joins or self.says_all:
            timeout_ms = int(REBALANCE_TIMEOUT_S * 1000)
            beat = beat._replace(rebalance_timeout_ms=timeout_ms, names=self.names, pattern=self.pattern)
        return beat

    def miss(self) -> None:
        """It cannot know whether the broker took what it said."""
        self.says_all = True
        self.missed += 1

    def be_asked(self) -> None:
        """The time it has to give something up begins, whether or not it hears of it."""
        if self.asked_at is None:
            self.asked_at = self.world.node.clock.monotonic()

    def take(self, assigned: frozenset[TopicPartition]) -> None:
        self.target = assigned
        if self.owned - assigned:
            self.be_asked()
            if self.revoking_until is None:
                lag_s = self.random.choice([0.0, 0.0, 1.0, 8.0] if self.world.is_calm else [0.0, 1.0, 8.0, 30.0])
                self.revoking_until = self.world.node.clock.monotonic() + lag_s
            if self.revoking_until > self.world.node.clock.monotonic():
                return
            self.give_up()
        self.own(assigned - self.owned)

    def give_up(self) -> None:
        self.revoking_until = None
        self.release(self.owned - self.target)
        self.own(self.target - self.owned)

    def own(self, queues: Iterable[TopicPartition]) -> None:
        for queue in list(queues):
            other = self.world.owners.get(queue)
            if other is not None and not other.is_late():
                if self.is_late():  # it has been thrown out, and goes by what it was told before; it will hear of that next
                    continue
                raise AssertionError(f"{queue} is given to {self.id} while {other.id} has it")
            self.world.owners[queue] = self
            self.owned.add(queue)
            self.world.counts["given"] += 1

    def release(self, queues: Iterable[TopicPartition]) -> None:
        for queue in list(queues):
            self.owned.discard(queue)
            if self.world.owners.get(queue) is self:
                del self.world.owners[queue]

    async def stop(self, epoch: int | None) -> None:
        """Leave with this epoch, or crash without a word."""
        self.is_alive = False
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.release(list(self.owned))
        if epoch is not None:
            try:
                await self.world.heartbeat(Heartbeat(self.id, epoch, self.instance_id))
            except (UnavailableError, *EXCUSED):
                self.world.counts["left unheard"] += 1


async def storm(world: World) -> None:
    random, clock = world.random, world.node.clock
    end = clock.monotonic() + STORM_S
    while clock.monotonic() < end:
        await asyncio.sleep(random.expovariate(1 / 5))
        event = random.choices(
            ["join", "leave", "crash", "silence", "topics", "broker", "store", "return"], [6, 3, 2, 2, 4, 1, 2, 1]
        )[0]
        world.counts[event] += 1
        alive = [member for member in world.members if member.is_alive]
        if event == "join" and len(alive) < 8:
            number = len(world.members)
            instance_id = f"host-{number}" if random.random() < 0.3 else None
            world.members.append(SimMember(world, number, instance_id))
        elif event == "topics":
            world.change_topics()
        elif event == "broker":
            await world.kill()
        elif event == "store":
            world.node.hooked.fate = lambda _: ERROR
            await asyncio.sleep(random.random() * 5)
            world.node.hooked.fate = lambda _: FINE
        elif alive:
            await trouble(world, event, random.choice(alive))
        for member in world.members:
            if member.is_alive and member.task.done():
                member.task.result()
        group = world.coordinator and world.coordinator.group(GROUP)
        world.check_epoch()
        world.group_epoch = group.record.epoch if group else world.group_epoch


async def trouble(world: World, event: str, member: SimMember) -> None:
    """Something happens to one member."""
    if event == "leave":
        await member.stop(-1)
    elif event == "crash":
        await member.stop(None)
    elif event == "return" and member.instance_id is not None:
        await member.stop(-2)
        member.lives += 1
        member.is_alive = True
        member.reset()
        member.task = asyncio.create_task(member.run())
    elif event == "silence":
        member.task.cancel()
        await asyncio.gather(member.task, return_exceptions=True)
        member.be_asked()
        member.miss()
        member.task = asyncio.create_task(member.run(world.random.choice([10.0, 60.0])))


async def scenario() -> Counter[str]:
    world = World()
    await world.start()
    for _ in range(3):
        world.change_topics()
    await storm(world)
    world.is_calm = True
    world.members.append(SimMember(world, len(world.members), None))
    await asyncio.sleep(CALM_S)
    assert world.coordinator is not None
    group = world.coordinator.group(GROUP)
    assert group is not None
    assert group.state == "Stable"
    assert world.owners.keys() == world.wanted()
    for member in world.members:
        if member.is_alive:
            assert member.owned == group.targets[member.id], member.id
    for member in world.members:
        await member.stop(None)
    await world.process.call(world.coordinator.stop())
    await world.node.close()
    return world.counts


@pytest.mark.parametrize("seed", range(12))
def test_everyone_has_what_it_should_have_and_nobody_what_another_has(seed: int) -> None:
    counts = run_simulation(scenario(), seed=seed, timer_slack_s=0.05, shuffle_ties=True)
    assert counts["given"] > 10


def test_a_seed_replays_exactly() -> None:
    assert run_simulation(scenario(), seed=3) == run_simulation(scenario(), seed=3)
