"""The Queue Agent in simulated time: what is retained by age and by number, and what is deleted although a consumer needs it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from penstock.broker import Position, TopicPartition
from penstock.broker.namespace import Kind, MountState, consumer_name
from penstock.broker.registrations import Ref, Registration
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

HERE = "penstock"
QUEUE, CONSUMER = "//tmp/queue", "//tmp/consumer"


class Watched:
    """A queue of one row a minute, ten of them, and a vital consumer."""

    def __init__(self, host: SimBroker) -> None:
        self.host = host
        self.broker = host.broker

    async def make(self, *, vital: bool = True) -> None:
        node = await self.host.do(self.broker.namespace.create(QUEUE, Kind.QUEUE, {}, mounted=True))
        consumer = await self.host.do(self.broker.namespace.create(CONSUMER, Kind.CONSUMER, {}, mounted=True))
        self.topic = self.broker.namespace.topic(node)
        self.name = consumer_name(consumer)
        await self.host.do(self.broker.registrations.register(Registration(Ref(HERE, QUEUE), Ref(HERE, CONSUMER), vital=vital)))
        for _ in range(10):
            now_ms = int(self.host.node.clock.wall() * 1000)
            await self.host.do(self.broker.produce(self.topic, 0, make_batch([b"row"], timestamp=now_ms)))
            await asyncio.sleep(60)

    async def set(self, **attributes: Any) -> None:
        stored = {name: json.dumps(value).encode() for name, value in attributes.items()}
        await self.host.do(self.broker.namespace.set_attributes(QUEUE, stored))

    async def advance(self, offset: int) -> None:
        await self.host.do(self.broker.consumers.commit(self.name, [(TopicPartition(self.topic.id, 0), Position(offset))]))

    async def start(self) -> int:
        """Where the partition begins after the agent had time for a few passes."""
        await asyncio.sleep(5)
        return self.host.partition("tmp.queue", 0).start_offset

    def alerts(self) -> bool:
        node = self.broker.namespace.node(QUEUE)
        return "alerts" in self.broker.queue_agent.queue_status(node, has_timestamp=False, has_weight=False)


def test_young_rows_stay_though_they_are_read() -> None:
    async def scenario() -> None:
        watched = Watched(await SimBroker().start())
        await watched.make()
        await watched.advance(10)
        await watched.set(auto_trim_config={"enable": True, "retained_lifetime_duration": 330_000})
        assert await watched.start() == 5  # what is older than five minutes and a half goes
        await asyncio.sleep(120)
        assert await watched.start() == 7
        await watched.set(auto_trim_config={"enable": True, "retained_rows": 2})
        assert await watched.start() == 8
        await watched.host.stop()

    run_simulation(scenario(), seed=1)


def test_what_has_outlived_its_time_goes_whoever_needs_it() -> None:
    async def scenario() -> None:
        watched = Watched(await SimBroker().start())
        await watched.make()
        await watched.set(max_data_ttl=330_000)
        assert await watched.start() == 0
        await watched.set(max_data_ttl=330_000, min_data_versions=0, row_count_to_keep=7)
        assert await watched.start() == 3
        await watched.set(min_data_ttl=390_000, row_count_to_keep=0)
        assert await watched.start() == 4  # the longer of the two times counts
        await watched.set(min_data_ttl=0)
        assert await watched.start() == 5
        await watched.set(auto_trim_config={"enable": True})
        assert await watched.start() == 5
        await watched.advance(8)
        assert await watched.start() == 8
        await watched.host.stop()

    run_simulation(scenario(), seed=1)


def test_without_a_vital_consumer_nothing_goes_and_somebody_is_told() -> None:
    async def scenario() -> None:
        watched = Watched(await SimBroker().start())
        await watched.make(vital=False)
        await watched.advance(10)
        await watched.set(auto_trim_config={"enable": True})
        assert (await watched.start(), watched.alerts()) == (0, True)
        registration = Registration(Ref(HERE, QUEUE), Ref(HERE, CONSUMER), vital=True, partitions=(3,))
        await watched.host.do(watched.broker.registrations.register(registration))
        assert await watched.start() == 0  # it is vital for another partition
        await watched.host.do(watched.broker.registrations.register(registration._replace(partitions=None)))
        await watched.host.do(watched.broker.namespace.set_mount_state(QUEUE, MountState.UNMOUNTED))
        assert await watched.start() == 0
        await watched.host.do(watched.broker.namespace.set_mount_state(QUEUE, MountState.MOUNTED))
        assert (await watched.start(), watched.alerts()) == (10, False)
        await watched.host.stop()

    run_simulation(scenario(), seed=1)


def test_a_vital_consumer_that_was_removed_holds_everything() -> None:
    async def scenario() -> None:
        watched = Watched(await SimBroker().start())
        await watched.make()
        await watched.advance(10)
        await watched.host.do(watched.broker.namespace.remove(CONSUMER))
        await watched.set(auto_trim_config={"enable": True})
        assert (await watched.start(), watched.alerts()) == (0, True)
        await watched.host.stop()

    run_simulation(scenario(), seed=1)


def test_rates_are_told_of_writes_and_reads() -> None:
    async def scenario() -> None:
        watched = Watched(await SimBroker().start())
        await watched.make()
        await watched.advance(3)
        await asyncio.sleep(3)
        await watched.advance(9)
        await asyncio.sleep(2)
        node = watched.broker.namespace.node(CONSUMER)
        status = await watched.host.do(watched.broker.queue_agent.consumer_status(node))
        rate = status["queues"][f"{HERE}:{QUEUE}"]["read_row_count_rate"]
        assert rate["1m_raw"] > 0
        await watched.host.stop()

    run_simulation(scenario(), seed=1)
