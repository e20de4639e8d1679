"""Leases in simulated time: what deletes by itself waits for them, also after a crash; what a person asks for is done."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import pytest

from penstock.blob import DiskSpace
from penstock.broker import Position, TopicConfig, TopicPartition, UnknownTopicError
from penstock.broker.leases import LeaseKey
from penstock.broker.namespace import Kind, consumer_name
from penstock.broker.registrations import Ref, Registration
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

KEY = LeaseKey(UUID(int=7), "ann")
PASSES_S = 100  # several of retention, and very many of the queue agent
EXPIRED_MS = 60_000


async def filled(host: SimBroker, name: str = "t", config: dict[str, str] | None = None) -> None:
    """A topic with ten messages, all of which retention deletes within a few passes."""
    await host.do(host.broker.create_topic(name, 1, TopicConfig(config or {"retention.ms": str(EXPIRED_MS)})))
    await write(host, name, 10)
    await asyncio.sleep(1)


async def write(host: SimBroker, name: str, count: int) -> None:
    for _ in range(count):
        batch = make_batch([b"row"], timestamp=int(host.node.clock.wall() * 1000))
        await host.do(host.broker.produce(host.topic(name), 0, batch))


async def take(host: SimBroker, name: str, offset: int, duration_s: float = 600.0) -> None:
    await host.do(host.broker.leases.take(KEY, "scan", duration_s, {TopicPartition(host.topic(name).id, 0): offset}))


async def start_of(host: SimBroker, name: str = "t") -> int:
    """The start of a partition after retention, trimming and compaction had time to run."""
    await asyncio.sleep(PASSES_S)
    return host.partition(name, 0).start_offset


def test_retention_goes_up_to_a_lease_and_on_when_it_is_released() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await filled(host)
        await take(host, "t", 4)
        await filled(host, "free")
        assert (await start_of(host), host.partition("free", 0).start_offset) == (4, 10)
        await take(host, "t", 7)
        assert await start_of(host) == 7
        await host.do(host.broker.leases.release(KEY))
        assert await start_of(host) == 10
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_retention_by_number_waits_too() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await filled(host, "t", {"penstock.retention.messages": "2"})
        await take(host, "t", 1)
        assert await start_of(host) == 1
        await host.do(host.broker.leases.release(KEY))
        assert await start_of(host) == 8
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_a_lease_that_is_not_renewed_holds_nothing_any_more() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await filled(host)
        await take(host, "t", 0, duration_s=250.0)
        assert await start_of(host) == 0
        host.broker.leases.renew(KEY)
        await asyncio.sleep(100)
        assert await start_of(host) == 0
        assert await start_of(host) == 10
        assert len(host.broker.leases) == 0
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_a_lease_outlives_a_crash_of_the_broker() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await filled(host)
        await take(host, "t", 4, duration_s=250.0)
        await host.restart()
        assert await start_of(host) == 4
        host.broker.leases.renew(KEY)
        await host.restart()
        await host.break_system_tablet(1)
        assert await start_of(host) == 4
        await asyncio.sleep(250)
        assert await start_of(host) == 10
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_what_a_person_asks_for_is_done_all_the_same() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await filled(host)
        await take(host, "t", 2)
        assert await host.do(host.partition("t", 0).trim(6)) == 6
        assert await start_of(host) == 6
        await host.do(host.broker.delete_topic("t"))
        with pytest.raises(UnknownTopicError):
            host.topic("t")
        await host.do(host.broker.leases.sweep())
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_the_queue_agent_waits_with_trimming_and_with_what_has_outlived_its_time() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        node = await host.do(host.broker.namespace.create("//tmp/queue", Kind.QUEUE, {}, mounted=True))
        consumer = await host.do(host.broker.namespace.create("//tmp/consumer", Kind.CONSUMER, {}, mounted=True))
        refs = Ref("penstock", "//tmp/queue"), Ref("penstock", "//tmp/consumer")
        await host.do(host.broker.registrations.register(Registration(*refs, vital=True)))
        topic = host.broker.namespace.topic(node)
        await write(host, topic.name, 10)
        position = (TopicPartition(topic.id, 0), Position(8))
        await host.do(host.broker.consumers.commit(consumer_name(consumer), [position]))
        await take(host, topic.name, 3)
        trimming = {"auto_trim_config": json.dumps({"enable": True}).encode()}
        await host.do(host.broker.namespace.set_attributes("//tmp/queue", trimming))
        assert await start_of(host, topic.name) == 3
        outlived = {"max_data_ttl": b"60000", "min_data_versions": b"0"}
        await host.do(host.broker.namespace.set_attributes("//tmp/queue", outlived))
        assert await start_of(host, topic.name) == 3
        await take(host, topic.name, 5)
        assert await start_of(host, topic.name) == 5
        await host.do(host.broker.leases.release(KEY))
        assert await start_of(host, topic.name) == 10
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_a_disk_that_is_nearly_full_is_worth_more_than_a_lease() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await filled(host)
        await take(host, "t", 4)
        vdisk = (await host.node.storage.life(0)).vdisks[0]
        vdisk.space = DiskSpace(total=1000, free=50)
        assert await start_of(host) == 4
        vdisk.space = DiskSpace(total=1000, free=49)
        assert await start_of(host) == 10
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_a_cut_that_began_before_a_lease_is_over_when_its_end_is_told() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await filled(host)
        partition = host.partition("t", 0)
        cutting = asyncio.create_task(host.do(partition.trim(6)))
        await asyncio.sleep(0)
        await take(host, "t", 2)
        assert await host.do(partition.trim(0)) == 6
        await cutting
        await host.stop()

    run_simulation(scenario(), seed=1)
