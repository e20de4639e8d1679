"""Groups under random joins, departures, pauses, lost answers and crashes of the broker, on a simulated disk.

Each client behaves as a consumer does: it joins, divides the partitions if it leads, asks for its share, goes on from the
positions it finds, commits, and beats. What no seed may ever show: two owners of a partition in one generation, a position that
goes back, a request that is never answered, or a group that does not find together once all is quiet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from random import Random
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import pytest

from penstock.broker.consumers import Consumers, Position, TopicPartition
from penstock.broker.groups import (
    FencedInstanceError,
    GroupCoordinator,
    GroupOptions,
    Groups,
    JoinRequest,
    JoinResponse,
    MemberIdRequiredError,
    OfferedProtocol,
    RebalanceError,
    SyncResponse,
)
from penstock.core.errors import PenstockError
from penstock.testing.sim_loop import ProcessDiedError, SimLoop, SimProcess, current_loop, run_simulation
from tests.sim_tablet import SimNode

T = TypeVar("T")

GROUP = "g"
TOPIC = UUID(int=7)
PARTITIONS = 6
SESSION_S, REBALANCE_S_MAX, BEAT_S = 6.0, 15.0, 1.5
# A rebalance may be drawn out once by instances that do not come back, and storing and scheduling take a moment.
ANSWER_S_MAX = 2 * REBALANCE_S_MAX + SESSION_S + 5.0
QUIET_S = 3 * REBALANCE_S_MAX


class Share(NamedTuple):
    """What a member owns in a generation."""

    joined: JoinResponse
    partitions: frozenset[int]


class World:
    """The broker's process, which comes and goes, and all that was ever promised."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.node = SimNode(loop=loop)
        self.options = GroupOptions(initial_rebalance_delay_ms=random.choice([0, 0, 500, 3000]))
        self.rebalance_s = random.choice([2 * BEAT_S, REBALANCE_S_MAX])
        self.incarnation = 0
        self.owners: dict[tuple[int, int], str] = {}  # by generation and partition
        self.protocols: dict[tuple[int, int], str] = {}  # by incarnation and generation
        self.committed = dict.fromkeys(range(PARTITIONS), 0)  # the highest that was acknowledged
        self.shares = 0

    async def start(self) -> None:
        """Start the broker on what the last one left."""
        self.incarnation += 1
        process = SimProcess(self.loop, f"broker-{self.incarnation}")
        self.consumers, self.groups = await process.call(self._start())
        self.process = process

    async def _start(self) -> tuple[Consumers, Groups]:
        self.node.start()
        tablet = await self.node.kv(self.incarnation)
        consumers = Consumers(tablet, self.node.clock)
        groups = Groups(tablet, consumers)
        random = self.loop.fork_random(f"ids-{self.incarnation}")
        groups.classic = await GroupCoordinator.start(groups, tablet, self.options, clock=self.node.clock, random=random)
        return consumers, groups

    async def crash(self) -> None:
        """kill -9, and a start some time later."""
        self.process.crash()
        await asyncio.sleep(self.random.choice([0.1, 1.0, SESSION_S * 2]))
        await self.start()

    def note_share(self, owner: str, share: Share) -> None:
        """A member got its assignment: no other member may have any of it in that generation."""
        self.shares += 1
        for partition in share.partitions:
            first = self.owners.setdefault((share.joined.generation, partition), owner)
            assert first == owner, f"partition {partition} of generation {share.joined.generation}: {first} and {owner}"

    async def commit(self, joined: JoinResponse, instance_id: str | None, positions: dict[int, int]) -> None:
        """Commit as a gateway does: nothing comes between the check and the write."""
        self.groups.check_commit(GROUP, joined.member_id, joined.generation, instance_id)
        await self.consumers.commit(GROUP, [(TopicPartition(TOPIC, number), Position(at)) for number, at in positions.items()])

    def position(self, number: int) -> int:
        """Where the group stands in a partition; never before what was acknowledged."""
        found = self.consumers.position(GROUP, TopicPartition(TOPIC, number))
        at = 0 if found is None else found.offset
        assert at >= self.committed[number], f"partition {number} is back at {at}, after {self.committed[number]}"
        return at


class Client:
    """A consumer with bad habits."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.instance_id = f"{name}-instance" if random.random() < 0.3 else None
        self.is_modern = random.random() < 0.8
        self.is_calm = False
        self.member_id = ""
        self.share: Share | None = None

    async def run(self) -> None:
        """Be a member for as long as it lasts."""
        while True:
            try:
                await self._live()
            except FencedInstanceError:
                self.member_id = ""
            except PenstockError as error:
                if not isinstance(error, RebalanceError) and not error.retriable:
                    self.member_id = ""
            except (ProcessDiedError, ConnectionError):
                await asyncio.sleep(0.5)
            self.share = None
            await asyncio.sleep(self.random.uniform(0.0, 0.3))

    async def leave(self) -> None:
        """Say goodbye."""
        with contextlib.suppress(PenstockError, ConnectionError):
            await self._ask(self._leave())

    async def _live(self) -> None:
        joined = await self._join()
        share = await self._sync(joined)
        owner = self.instance_id or self.member_id
        self.world.note_share(owner, share)
        self.share = share
        positions = {number: self.world.position(number) for number in share.partitions}
        while True:
            await self._pause()
            if self.is_calm or self.random.random() < 0.7:
                await self._ask(self._beat(joined))
            if positions and self.random.random() < 0.7:
                positions = {number: at + self.random.randrange(1, 10) for number, at in positions.items()}
                await self._ask(self.world.commit(joined, self.instance_id, positions))
                for number, at in positions.items():
                    self.world.committed[number] = max(self.world.committed[number], at)
            if not self.is_calm and self.random.random() < 0.02:
                raise RebalanceError("it joins again out of the blue")

    async def _pause(self) -> None:
        is_away = not self.is_calm and self.random.random() < 0.03
        await asyncio.sleep(SESSION_S * self.random.uniform(0.8, 2.0) if is_away else BEAT_S)

    async def _join(self) -> JoinResponse:
        asked = JoinRequest(
            self.member_id,
            "consumer",
            self._protocols(),
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(self.world.rebalance_s * 1000),
            instance_id=self.instance_id,
            client_id=self.name,
            takes_id_first=self.is_modern,
            skips_assignment=self.is_modern,
        )
        try:
            joined = await self._ask(self.world.groups.classic.join(GROUP, asked))
        except MemberIdRequiredError as error:
            self.member_id = error.member_id
            return await self._join()
        self._lose()
        self.member_id = joined.member_id
        key = (self.world.incarnation, joined.generation)
        assert self.world.protocols.setdefault(key, joined.protocol_name) == joined.protocol_name
        return joined

    def _protocols(self) -> tuple[OfferedProtocol, ...]:
        names = ["range", "sticky"] if self.name < "client-5" else ["sticky", "range"]
        return tuple(OfferedProtocol(name, self.name.encode()) for name in names)

    async def _sync(self, joined: JoinResponse) -> Share:
        shares: dict[str, bytes] = {}
        if joined.members and not joined.skip_assignment:
            assert {one.metadata for one in joined.members} != {b""}
            for number in range(PARTITIONS):
                member = joined.members[number % len(joined.members)]
                shares[member.member_id] = shares.get(member.member_id, b"") + bytes([number])
        if not self.is_calm and self.random.random() < 0.05:
            await asyncio.sleep(self.random.uniform(0.0, SESSION_S * 2))
        sync = self.world.groups.classic.sync(GROUP, joined.member_id, joined.generation, shares, instance_id=self.instance_id)
        answer: SyncResponse = await self._ask(sync)
        self._lose()
        return Share(joined, frozenset(answer.assignment))

    def _lose(self) -> None:
        """Now and then an answer does not arrive."""
        if not self.is_calm and self.random.random() < 0.03:
            raise ConnectionError("the answer was lost")

    async def _beat(self, joined: JoinResponse) -> None:
        self.world.groups.classic.heartbeat(GROUP, joined.member_id, joined.generation, self.instance_id)

    async def _leave(self) -> None:
        self.world.groups.classic.leave(GROUP, self.member_id, self.instance_id)

    async def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Ask the broker; however long the others take, there is an answer in time."""
        async with asyncio.timeout(ANSWER_S_MAX):
            return await self.world.process.call(work)


class Crowd:
    """The clients that are there now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._names = 0
        self.running: dict[Client, asyncio.Task[None]] = {}

    def add(self) -> None:
        """One more starts."""
        name = f"client-{self._names}"
        self._names += 1
        self.start(Client(self._world, name, self._world.loop.fork_random(name)))

    def start(self, client: Client) -> None:
        """A client runs."""
        self.running[client] = asyncio.create_task(client.run())

    async def stop(self, client: Client) -> None:
        """A client stops at once; the broker is told nothing."""
        task = self.running.pop(client)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def disturb(self) -> None:
        """Something happens."""
        random = self._world.random
        client = random.choice(list(self.running))
        match random.choice(["add", "leave", "vanish", "restart", "crash", "nothing"]):
            case "add" if len(self.running) < PARTITIONS + 2:
                self.add()
            case "leave" if len(self.running) > 1:
                await self.stop(client)
                await client.leave()
            case "vanish" if len(self.running) > 1:
                await self.stop(client)
            case "restart":
                await self.stop(client)
                client.member_id = ""
                self.start(client)
            case "crash":
                await self._world.crash()

    def check(self) -> None:
        """All who are there are one generation and own everything, each partition once."""
        group = self._world.groups.classic.describe(GROUP)
        assert group.state == "Stable"
        assert {member.member_id for member in group.members} == {client.member_id for client in self.running}
        shares = [client.share for client in self.running]
        assert all(share is not None for share in shares)
        told = [share for share in shares if share is not None]
        assert len({share.joined.generation for share in told}) == 1
        assert sorted(number for share in told for number in share.partitions) == list(range(PARTITIONS))

    def failures(self) -> None:
        """A client that ended has found something."""
        for task in self.running.values():
            if task.done():
                task.result()


async def _live_and_judge(disturbances: int) -> int:
    loop = current_loop()
    world = World(loop, loop.fork_random("world"))
    await world.start()
    crowd = Crowd(world)
    for _ in range(world.random.randrange(1, 5)):
        crowd.add()
    for _ in range(disturbances):
        await asyncio.sleep(world.random.choice([0.0, 0.05, 1.0, 3.0, 10.0]))
        await crowd.disturb()
        crowd.failures()
    for client in crowd.running:
        client.is_calm = True
    await asyncio.sleep(QUIET_S)
    crowd.failures()
    crowd.check()
    for client in list(crowd.running):
        await crowd.stop(client)
    await asyncio.sleep(SESSION_S + REBALANCE_S_MAX)
    assert world.groups.listed()[0].state == "Empty"
    for number in range(PARTITIONS):
        world.position(number)
    world.process.crash()
    return world.shares


def run_seed(seed: int, disturbances: int = 12) -> int:
    """One run; how many shares were told in it."""
    return run_simulation(_live_and_judge(disturbances), seed=seed, timer_slack_s=0.001, shuffle_ties=True)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_each_partition_has_one_owner_and_no_position_is_lost(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            assert run_seed(seed)
        except Exception as error:
            raise AssertionError(f"run_seed({seed}) with PYTHONHASHSEED=0: {error}") from error


def test_a_seed_replays_exactly() -> None:
    assert run_seed(5) == run_seed(5)
