"""Transactions under crashes: whatever the broker is doing when it dies, each transaction is seen everywhere or nowhere.

Producers write numbered transactions over two topics and set a position with each; the broker is killed at steps drawn by the
seed or at every step in turn, tablets of partitions stop, the disk fails now and then, and some transactional ids have two
producers that do not know of each other. A client that requested a commit retries until it is answered or refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.broker import TopicPartition
from penstock.broker.transactions import V1 as TRANSACTIONS_V1
from penstock.broker.transactions import V2 as TRANSACTIONS_V2
from penstock.broker.transactions import ProducerFencedError, TransactionCommit, TransactionOptions
from penstock.core.errors import ClosedError, FencedError, InvalidRequestError, PenstockError
from penstock.testing.sim_limits import RunLimits
from penstock.testing.sim_loop import ProcessDiedError, current_loop, run_simulation
from tests.sim_broker import SimBroker, SimProducer, Write, read_committed

PLACES = [Write(topic, number) for topic in ("a", "b") for number in range(2)]
POSITION_OF = Write("a", 0)
OPTIONS = TransactionOptions(restart_grace_s=0.0, end_wait_s=1.0, check_interval_s=0.2)
PAUSE_S = 0.05
RECORD_KEY = "sink"


@dataclass(slots=True)
class Told:
    """What is known of one transaction: where it was acknowledged to have written, and how it was said to have ended."""

    name: str
    number: int
    places: set[Write] = field(default_factory=set)
    has_position: bool = False
    outcome: str = "unknown"  # or "committed", "aborted"

    def value(self, place: Write) -> bytes:
        """What it writes to a partition."""
        return f"{self.name}/{self.number}/{place.topic}{place.number}".encode()


class World:
    """A broker that is up or will be again, and everything that was told about transactions."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.host = SimBroker(OPTIONS)
        self.told: list[Told] = []
        self.numbers = 0
        self.is_ending = False

    async def start(self) -> None:
        """The topics are there before anything goes wrong."""
        await self.host.start()
        for name in ("a", "b"):
            await self.host.do(self.host.broker.create_topic(name, 2))

    def begin(self, name: str) -> Told:
        """A transaction of its own number; numbers rise in the order in which transactions begin."""
        self.numbers += 1
        told = Told(name, self.numbers)
        self.told.append(told)
        return told

    async def torment(self, crashes: int) -> None:
        """Kill the broker again and again, sometimes while it starts; stop tablets and let the disk fail in between."""
        rng, host = self.rng, self.host
        for _ in range(crashes):
            await asyncio.sleep(rng.expovariate(1 / 0.15))
            if rng.random() < 0.3:
                host.node.faults.error_rate = {"flush": rng.choice([0.05, 0.3])}
                await asyncio.sleep(rng.random() * 0.2)
                host.node.faults.error_rate = {}
            with contextlib.suppress(ProcessDiedError, PenstockError):
                if rng.random() < 0.4:
                    await host.break_tablet(rng.choice("ab"))
                if rng.random() < 0.2:
                    await host.break_system_tablet(rng.randrange(3))
            if rng.random() < 0.7:
                await self.revive(crash_at=host.process.steps + rng.randrange(1, 400))
        host.node.faults.error_rate = {}
        self.is_ending = True

    async def revive(self, crash_at: int) -> None:
        """Let the broker run into a crash, then start it, however often it dies on the way."""
        process = self.host.process
        if not process.crashed:
            died = asyncio.Event()
            process.on_crash(died.set)
            process.crash_at_step(crash_at)
            await died.wait()
        while True:
            try:
                await self.host.start(crash_at=self.rng.randrange(1, 500) if self.rng.random() < 0.3 else None)
                return
            except (ProcessDiedError, PenstockError):
                self.host.process.crash()

    async def judge(self) -> None:
        """All is calm: what is left open is ended, nothing holds readers up, and every transaction is whole or not there."""
        await self.host.restart()
        transactions = self.host.broker.transactions
        for one in transactions.transactions():
            await self.host.do(transactions.initialise(one.transactional_id, 1000))
        views: dict[Write, list[bytes]] = {}
        for place in PLACES:
            partition = self.host.partition(*place)
            assert partition.stable_offset == partition.end_offset, f"{place} is held up at {partition.stable_offset}"
            values = (await read_committed(partition)).values
            assert len(set(values)) == len(values), f"doubled in {place}"
            views[place] = values
        for told in self.told:
            self._judge_one(told, views)
        self._judge_positions(views)
        self._judge_sink(views)

    def _judge_sink(self, views: dict[Write, list[bytes]]) -> None:
        """Every round up to that of the record is in every partition, in order; nothing else is."""
        last = int(self.host.broker.transactions.application_record(RECORD_KEY) or b"0")
        for place, values in views.items():
            seen = [value for value in values if value.startswith(b"sink/")]
            assert seen == [_sink_value(number, place) for number in range(1, last + 1)], place

    def _judge_one(self, told: Told, views: dict[Write, list[bytes]]) -> None:
        seen = {place for place in PLACES if told.value(place) in views[place]}
        if told.outcome == "committed":
            assert seen == told.places, f"{told} was committed, but is seen in {seen}"
        elif told.outcome == "aborted":
            assert not seen, f"{told} was aborted, but is seen in {seen}"
        else:
            assert not seen or seen >= told.places, f"{told} is seen in {seen} only"

    def _judge_positions(self, views: dict[Write, list[bytes]]) -> None:
        """The position of each name is that of its last committed transaction that set one."""
        queue = TopicPartition(self.host.topic(POSITION_OF.topic).id, POSITION_OF.number)
        assert not self.host.broker.consumers.pending
        for name in {told.name for told in self.told}:
            committed = [
                told.number
                for told in self.told
                if told.name == name and told.has_position and any(told.value(place) in views[place] for place in told.places)
            ]
            position = self.host.broker.consumers.position(f"group-{name}", queue)
            assert (None if position is None else position.offset) == max(committed, default=None), name


class Client:
    """A producer that goes on after every crash, and takes its id over again when it has lost it."""

    def __init__(self, world: World, name: str, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._name = name
        version = rng.choice([TRANSACTIONS_V1, TRANSACTIONS_V2])
        self._producer = SimProducer(world.host, name, version=version)

    async def run(self) -> None:
        """Transactions one after another until it is over."""
        while not self._world.is_ending:
            try:
                await self._patiently(self._producer.initialise)
                while not self._world.is_ending:
                    await self._transaction()
            except (ProducerFencedError, InvalidRequestError):
                await asyncio.sleep(self._rng.random() * PAUSE_S)  # another has the id now, or the transaction is lost

    async def _transaction(self) -> None:
        told = self._world.begin(self._name)
        places = self._rng.sample(PLACES, self._rng.randint(1, len(PLACES)))
        for place in places:
            value = told.value(place)
            await self._patiently(lambda place=place, value=value: self._producer.write(place, [value]))  # type: ignore[misc]
            told.places.add(place)
        if self._rng.random() < 0.7:
            told.has_position = True
            await self._patiently(lambda: self._producer.set_position(f"group-{self._name}", POSITION_OF, told.number))
        await asyncio.sleep(self._rng.random() * PAUSE_S)
        commit = self._rng.random() < 0.7
        await self._patiently(lambda: self._producer.end(commit=commit))
        told.outcome = "committed" if commit else "aborted"

    async def _patiently(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat a request until it is answered or refused for good."""
        while not await _is_answered(attempt):  # noqa: ASYNC110 - there is no event that says when to try again
            await asyncio.sleep(self._rng.random() * PAUSE_S)


class Sink:
    """Writes each of its rounds from two producers that are committed as one, with the number of the round."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._round = 1

    async def run(self) -> None:
        """Rounds one after another; one whose commit was not answered is written again if the record does not have it."""
        while not self._world.is_ending:
            await _is_answered(self._attempt)
            await asyncio.sleep(self._rng.random() * PAUSE_S)

    async def _attempt(self) -> None:
        host = self._world.host
        await host.up.wait()
        found = host.broker.transactions.application_record(RECORD_KEY)
        if found == b"%d" % self._round:
            self._round += 1
        expected = b"%d" % (self._round - 1) if self._round > 1 else None
        assert found in (expected, b"%d" % (self._round - 1)), f"the record is {found!r} in round {self._round}"
        producers = [SimProducer(host, f"sink-{number}", version=TRANSACTIONS_V1) for number in range(2)]
        for producer, places in zip(producers, (PLACES[:2], PLACES[2:]), strict=True):
            await producer.initialise()
            for place in places:
                await producer.write(place, [_sink_value(self._round, place)])
        ends = [TransactionCommit(producer.id, producer.identity) for producer in producers]
        await host.up.wait()
        record = (RECORD_KEY, b"%d" % self._round)
        await host.do(host.broker.transactions.commit_together(ends, record, expected=expected))
        self._round += 1


def _sink_value(number: int, place: Write) -> bytes:
    return f"sink/{number}/{place.topic}{place.number}".encode()


async def _is_answered(attempt: Callable[[], Awaitable[None]]) -> bool:
    """Whether a request was carried out; False if it may be repeated. Raises what refuses it for good."""
    try:
        await attempt()
    except ProcessDiedError:
        return False
    except ProducerFencedError:
        raise
    except (FencedError, ClosedError):
        return False  # a tablet has stopped; the broker or its next life starts it again
    except PenstockError as error:
        if not error.retriable:
            raise
        return False
    return True


async def _main(seed: int, crashes: int) -> int:
    rng = current_loop().fork_random(f"transactions/{seed}")
    world = World(rng)
    await world.start()
    names = ["alone", "other", "shared", "shared"]
    clients = [asyncio.create_task(Client(world, name, Random(rng.getrandbits(64))).run()) for name in names]
    clients.append(asyncio.create_task(Sink(world, Random(rng.getrandbits(64))).run()))
    await world.torment(crashes)
    while world.host.process.crashed:
        await world.revive(0)
    await asyncio.gather(*clients)
    await world.judge()
    await world.host.stop()
    return sum(told.outcome == "committed" for told in world.told)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_each_transaction_is_seen_everywhere_or_nowhere(seed: int) -> None:
    assert _simulate(seed, 10)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 150))
def test_each_transaction_is_seen_everywhere_or_nowhere_for_long(seed: int) -> None:
    assert _simulate(seed, 30)


def _simulate(seed: int, crashes: int) -> int:
    return run_simulation(_main(seed, crashes), seed=seed, timer_slack_s=0.0005, shuffle_ties=True, limits=RunLimits(time_s=3600))


each_kind = pytest.mark.parametrize(
    ("version", "commit"), [(version, commit) for version in (TRANSACTIONS_V1, TRANSACTIONS_V2) for commit in (True, False)]
)


@pytest.mark.slow
@each_kind
def test_a_crash_at_any_step_leaves_the_transaction_whole(version: int, commit: bool) -> None:
    run_simulation(_crash_everywhere(version, commit=commit, stride=7))


@pytest.mark.soak
@pytest.mark.timeout(600)
@each_kind
def test_a_crash_at_every_single_step_leaves_the_transaction_whole(version: int, commit: bool) -> None:
    run_simulation(_crash_everywhere(version, commit=commit, stride=1))


async def _crash_everywhere(version: int, *, commit: bool, stride: int) -> None:
    steps = await _one_transaction(None, version=version, commit=commit)
    for step in range((version + 2 * commit) % stride, steps, stride):
        await _one_transaction(step, version=version, commit=commit)


async def _one_transaction(crash_at: int | None, *, version: int, commit: bool) -> int:
    """One transaction, with a crash on the way; the steps that the broker took."""
    world = World(Random(0))
    await world.start()
    first = world.host.process.steps
    if crash_at is not None:
        world.host.process.crash_at_step(first + crash_at)
    told = world.begin("id")
    producer = SimProducer(world.host, "id", version=version)
    for attempt in _script(producer, told, commit=commit):
        while not await _is_answered(attempt):
            await asyncio.sleep(0.01)
            if world.host.process.crashed:
                await world.host.start()
    told.outcome = "committed" if commit else "aborted"
    steps = world.host.process.steps - first
    await world.judge()
    await world.host.stop()
    return steps


def _script(producer: SimProducer, told: Told, *, commit: bool) -> list[Callable[[], Awaitable[None]]]:
    told.places |= set(PLACES)
    told.has_position = True
    script: list[Callable[[], Awaitable[None]]] = [producer.initialise]
    script += [lambda place=place: producer.write(place, [told.value(place)]) for place in PLACES]  # type: ignore[misc]
    script.append(lambda: producer.set_position("group-id", POSITION_OF, told.number))
    script.append(lambda: producer.end(commit=commit))
    return script
