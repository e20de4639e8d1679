"""A broker on one simulated disk, in a process that can be killed, and transactional producers that use it as a gateway would."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, NamedTuple, TypeVar

from penstock.blob import Buffer, FilePiece
from penstock.broker import Broker, BrokerOptions, Position, Topic, TopicPartition
from penstock.broker.transactions import V2 as TRANSACTIONS_V2
from penstock.broker.transactions import Producer, TransactionOptions
from penstock.core.errors import PenstockError
from penstock.queue import Partition, WriteResult
from penstock.testing.batches import make_batch, values_of
from penstock.testing.sim_loop import SimProcess, current_loop
from tests.sim_tablet import SimNode

T = TypeVar("T")

TIMEOUT_MS = 600_000
PROMPT = TransactionOptions(restart_grace_s=0.0, end_wait_s=2.0)


class SimBroker:
    """The disk stays; the broker on it comes and goes."""

    def __init__(self, options: TransactionOptions = PROMPT) -> None:
        self.node = SimNode()
        self._options = BrokerOptions(transactions=options)
        self._starts = 0
        self.up = asyncio.Event()
        self.process: SimProcess
        self.broker: Broker

    async def start(self, *, crash_at: int | None = None) -> SimBroker:
        """Start a broker in a process of its own, which is killed at one of its steps if that is wanted."""
        self._starts += 1
        self.process = SimProcess(current_loop(), f"broker-{self._starts}")
        if crash_at is not None:
            self.process.crash_at_step(crash_at)
        self.node.start()
        random = Random(self._starts)
        starting = Broker.start(self.node.storage, self._options, clock=self.node.clock, random=random)
        self.broker = await self.do(starting)
        self.process.on_crash(self.up.clear)
        self.up.set()
        return self

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the process; ProcessDiedError if that dies first."""
        return await self.process.call(work)

    async def restart(self) -> None:
        """Kill the process and start another."""
        self.process.crash()
        await self.start()

    async def stop(self) -> None:
        """End it as on a shutdown."""
        await self.do(self._close())

    async def _close(self) -> None:
        await self.broker.stop()
        await self.node.storage.close()

    def topic(self, name: str) -> Topic:
        """A topic as the catalog has it now."""
        return self.broker.catalog.topic(name)

    def partition(self, name: str, number: int) -> Partition:
        """A partition that is served now."""
        return self.broker.partition(self.topic(name), number)

    async def break_tablet(self, name: str) -> None:
        """The tablet of a topic's first partition stops; the broker starts it again by itself."""
        tablet = self.broker.tablets._hosted[self.topic(name).tablets[0]].tablet
        if tablet is not None:
            await self.do(tablet.stop())

    async def break_system_tablet(self, number: int) -> None:
        """One of the broker's own tablets stops; it is started again as well."""
        await self.do(self.broker.system_tablets.running[number].latest.stop())


class Write(NamedTuple):
    """A place to write to."""

    topic: str
    number: int


class SimProducer:
    """A transactional producer. It numbers its batches in each partition as clients do, and can send one again."""

    def __init__(self, host: SimBroker, transactional_id: str, *, version: int) -> None:
        self._host = host
        self.id = transactional_id
        self.version = version
        self.identity = Producer(-1, -1)
        self._sequences: dict[Write, int] = {}

    async def initialise(self, timeout_ms: int = TIMEOUT_MS) -> None:
        """Take the id over."""
        await self._host.up.wait()
        self._become(await self._host.do(self._host.broker.transactions.initialise(self.id, timeout_ms)))

    async def write(self, place: Write, values: list[bytes]) -> None:
        """Write one batch as part of the transaction; it can be called again after an error, and is stored once."""
        await self._host.up.wait()
        await self._host.do(self._write(place, values))
        self._sequences[place] = self._sequences.get(place, 0) + len(values)

    async def set_position(self, group: str, place: Write, offset: int) -> None:
        """Set a position of a group as part of the transaction."""
        await self._host.up.wait()
        transactions = self._host.broker.transactions
        queue = TopicPartition(self._host.topic(place.topic).id, place.number)
        adds_group = self.version >= TRANSACTIONS_V2
        if not adds_group:
            await self._host.do(transactions.add(self.id, self.identity, groups=frozenset({group})))
        positions = [(queue, Position(offset))]
        await self._host.do(transactions.set_positions(self.id, self.identity, group, positions, adds_group=adds_group))

    async def end(self, *, commit: bool) -> None:
        """Commit or abort; it can be called again after an error."""
        await self._host.up.wait()
        transactions = self._host.broker.transactions
        self._become(await self._host.do(transactions.end(self.id, self.identity, commit=commit, version=self.version)))

    def _become(self, identity: Producer) -> None:
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()

    async def _write(self, place: Write, values: list[bytes]) -> None:
        broker, topic = self._host.broker, self._host.topic(place.topic)
        queue = TopicPartition(topic.id, place.number)
        loop = asyncio.get_running_loop()
        batch = make_batch(
            values,
            timestamp=int(self._host.node.clock.wall() * 1000),
            attributes=0x10,
            producer_id=self.identity.id,
            producer_epoch=self.identity.epoch,
            base_sequence=self._sequences.get(place, 0),
        )
        if self.version >= TRANSACTIONS_V2:
            registered: asyncio.Future[PenstockError | None] = loop.create_future()
            broker.transactions.register(self.id, self.identity, queue, registered.set_result)
            trouble = await registered
            if trouble is not None:
                raise trouble
        else:
            await broker.transactions.add(self.id, self.identity, queues=frozenset({queue}))
            broker.transactions.check_write(self.id, self.identity, queue)
        stored: asyncio.Future[WriteResult] = loop.create_future()
        broker.begin_produce(broker.route(place.topic, place.number), batch, stored)
        await stored


class Committed(NamedTuple):
    """What readers of committed data see of a partition."""

    values: list[bytes]
    hidden: int  # batches of aborted transactions that they leave out


async def read_committed(partition: Partition) -> Committed:
    """Read as clients do: up to the last stable offset, leaving out what the list of aborted transactions tells them to."""
    values: list[bytes] = []
    hidden = 0
    offset = partition.start_offset
    while offset < partition.stable_offset:
        found = await partition.read(offset, 2000, until=partition.stable_offset)
        aborted = sorted(partition.aborted_between(offset, found.next_offset), key=lambda one: one.first_offset)
        skipping: set[int] = set()
        for batch in _batches(found.batches):
            base_offset = int.from_bytes(batch[0:8], "big")
            producer, attributes = int.from_bytes(batch[43:51], "big", signed=True), batch[22]
            while aborted and aborted[0].first_offset <= base_offset:
                skipping.add(aborted.pop(0).producer_id)
            if attributes & 0x20:
                skipping.discard(producer)
            elif attributes & 0x10 and producer in skipping:
                hidden += 1
            else:
                values += (value for place, value in values_of(batch) if place >= offset)
        offset = found.next_offset
    return Committed(values, hidden)


def _batches(buffers: tuple[Buffer | FilePiece, ...]) -> list[bytes]:
    data = b"".join(buffer for buffer in buffers if not isinstance(buffer, FilePiece))
    found: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append(data[at:end])
        at = end
    return found
