"""Transactions under crashes: whatever the broker is doing when it dies, each transaction is seen everywhere or nowhere.

Producers write numbered transactions over two topics and set a position with each; the broker is killed at steps drawn by the
seed or at every step in turn, tablets of partitions stop, the disk fails now and then, and some transactional ids have two
producers that do not know of each other. Whoever asked for a commit repeats the request until it is answered or refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.broker import TRANSACTIONS_V1, TRANSACTIONS_V2, Broker, Ended, Queue, TransactionOptions
from penstock.core.errors import FencedError, InvalidRequestError, PenstockError
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
            if rng.random() < 0.4:
                try:
                    await host.break_tablet(rng.choice("ab"))
                except (ProcessDiedError, PenstockError, AttributeError):
                    pass
            if rng.random() < 0.7:
                await self.revive(crash_at=host.process.steps + rng.randrange(1, 400))
        host.node.faults.error_rate = {}
        self.is_ending = True

    async def revive(self, crash_at: int) -> None:
        """Let the broker run into a crash, then start it, however often it dies on the way."""
        process = self.host.process
        if not process.crashed:
            process.crash_at_step(crash_at)
            while not process.crashed:
                await asyncio.sleep(0.01)
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
        queue = Queue(self.host.topic(POSITION_OF.topic).id, POSITION_OF.number)
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
            except (FencedError, InvalidRequestError):
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

    async def _patiently(self, attempt) -> None:  # type: ignore[no-untyped-def]
        """Repeat a request until it is answered or refused for good."""
        while True:
            try:
                await attempt()
                return
            except ProcessDiedError:
                pass
            except PenstockError as error:
                if not error.retriable and not self._is_passing(error):
                    raise
            await asyncio.sleep(self._rng.random() * PAUSE_S)

    def _is_passing(self, error: PenstockError) -> bool:
        return error.code in ("fenced", "closed")  # a tablet has stopped; the broker or its next life starts it again


async def _main(seed: int, crashes: int) -> int:
    rng = current_loop().fork_random(f"transactions/{seed}")
    world = World(rng)
    await world.start()
    names = ["alone", "other", "shared", "shared"]
    clients = [asyncio.create_task(Client(world, name, Random(rng.getrandbits(64))).run()) for name in names]
    await world.torment(crashes)
    while world.host.process.crashed:
        await world.revive(0)
    await asyncio.gather(*clients)
    await world.judge()
    await world.host.stop()
    return sum(told.outcome == "committed" for told in world.told)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_each_transaction_is_seen_everywhere_or_nowhere(seed: int) -> None:
    assert run_simulation(_main(seed, 25), seed=seed, timer_slack_s=0.0005, shuffle_ties=True)
