"""Two brokers on one storage, as when a node takes over from one that lives: the first is told so and starts nothing again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.blob import Confirmations
from penstock.broker import Broker, BrokerOptions, TopicPartition
from penstock.broker.tablets import tablet_info
from penstock.core.errors import PenstockError
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import current_loop, run_simulation
from tests.sim_tablet import SimNode

QUIET_S = 60.0


async def start(node: SimNode, fenced: list[str], name: str) -> Broker:
    """A broker that notes when it is fenced."""
    options = BrokerOptions(on_fenced=lambda: fenced.append(name))
    return await Broker.start(node.storage, options, clock=node.clock, random=Random(len(name)))


async def newest_generation(node: SimNode, tablet: int) -> int:
    """The newest generation of a tablet that was started."""
    return (await node.storage.tablet(tablet_info(tablet, 0)).next_generation()) - 1


def test_a_superseded_broker_is_told_and_starts_no_tablet_again() -> None:
    async def test() -> None:
        node = SimNode()
        node.start()
        fenced: list[str] = []
        first = await start(node, fenced, "first")
        topic = await first.create_topic("t", 1)
        second = await start(node, fenced, "second")
        tablets = (2, 3, 4, 5, 8, topic.tablets[0])
        generations = [await newest_generation(node, tablet) for tablet in tablets]
        with pytest.raises(PenstockError):
            await first.produce(topic, 0, make_batch([b"late"]))
        with pytest.raises(PenstockError):
            await first.create_topic("late", 1)
        await asyncio.sleep(QUIET_S)
        assert set(fenced) == {"first"}
        assert [await newest_generation(node, tablet) for tablet in tablets] == generations
        served = second.catalog.topic("t")
        assert (await second.produce(served, 0, make_batch([b"message"]))).base_offset == 0
        await first.stop()
        await second.stop()

    run_simulation(test())


def test_a_superseded_coordinator_admits_no_write_that_its_memory_would() -> None:
    async def test() -> None:
        node = SimNode()
        node.start()
        fenced: list[str] = []
        confirmations = node.storage.confirmations = Confirmations(node.storage.proxy, current_loop().time)
        confirming = asyncio.create_task(confirmations.run())
        first = await start(node, fenced, "first")
        topic = await first.create_topic("t", 1)
        queue = TopicPartition(topic.id, 0)
        producer = await first.transactions.initialise("id", 60_000)
        await first.transactions.admit("id", producer, queue, adds=True)
        await first.transactions.admit("id", producer, queue, adds=False)
        node.storage.confirmations = None  # the second node has its own, of which this test asks nothing
        second = await start(node, fenced, "second")
        node.storage.confirmations = confirmations
        await second.transactions.end("id", producer, commit=False, version=1)
        first.transactions.check_write("id", producer, queue)
        for adds in (True, False):
            with pytest.raises(PenstockError):
                await first.transactions.admit("id", producer, queue, adds=adds)
        assert set(fenced) == {"first"}
        await first.stop()
        await second.stop()
        confirming.cancel()
        await asyncio.gather(confirming, return_exceptions=True)

    run_simulation(test())
