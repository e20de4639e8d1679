"""A node of many topics: lists are paged in the server, and no request looks at all partitions. What that takes is the same for
two thousand topics as for ten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from penstock.blob import BlobStorage, Erasure, GroupConfig
from penstock.broker import Broker, BrokerOptions, Position, Topic, TopicPartition
from penstock.core.clock import SystemClock
from penstock.gateway.http_port import HttpPort
from penstock.queue import Partition
from penstock.server import NodeConfig
from penstock.server.http import Figures, HttpListener, NodeContext
from penstock.server.metrics import Observatory
from penstock.server.pipelines import DeploymentKeeper

TOPICS = 2_000
CONSUMERS = 300
AT_ONCE = 200

Get = Callable[..., Any]


class StandingClock(SystemClock):
    """Figures by this clock never grow old."""

    def monotonic(self) -> float:
        return 0.0


class CountedBroker:
    """Counts how many partitions are looked at."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        look = broker.partition

        def partition(topic: Topic, number: int) -> Partition:
            self.count += 1
            return look(topic, number)

        monkeypatch.setattr(broker, "partition", partition)


async def make_topics(broker: Broker) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def make(number: int) -> None:
        async with turn:
            topic = await broker.create_topic(f"topic-{number:05}", 1)
            if number < CONSUMERS:
                await broker.consumers.commit(f"consumer-{number:03}", [(TopicPartition(topic.id, 0), Position(0))])

    async with asyncio.TaskGroup() as making:
        for number in range(TOPICS):
            making.create_task(make(number))


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[Broker, Figures, str]]:
    """A broker with its HTTP listener in this process, and the address of its API."""
    clock = SystemClock()
    group = GroupConfig(0, Erasure.NONE, (path,))
    storage = BlobStorage([group], clock=clock, random=Random(1), durable=False)
    broker = await Broker.start(storage, BrokerOptions(), clock=clock, random=Random(2))
    figures = Figures(broker, StandingClock())
    config = NodeConfig(data_dir=path, http_port=0)
    node = NodeContext(
        config=config,
        cluster_id="many",
        node_id=1,
        erasure="none",
        broker=broker,
        storage=storage,
        streams=None,
        listeners={},
        clock=clock,
        started_ms=0,
        figures=figures,
        observatory=Observatory(clock=clock),
        deployments=DeploymentKeeper(broker, config, str, Random(3)),
    )
    port = HttpPort("127.0.0.1", 0)
    listener = HttpListener(node, port=port, advertised_host="localhost", tls=None)
    try:
        await make_topics(broker)
        await listener.start()
        yield broker, figures, f"http://127.0.0.1:{port.port}/api/v1"
    finally:
        await listener.stop()
        port.close()
        await broker.stop()
        await storage.close()


def test_no_request_looks_at_all_of_many_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with served(tmp_path) as (broker, figures, address), aiohttp.ClientSession() as session:

            async def get(path: str, **query: str | int) -> Any:
                async with session.get(address + path, params=query) as answer:
                    assert answer.status == 200, await answer.text()
                    return await answer.json()

            snapshot = await figures.snapshot()
            assert len(snapshot.topics) == TOPICS
            counted = CountedBroker(broker, monkeypatch)
            page = await get("/topics", limit=50, offset=1900)
            assert page["total"] == TOPICS
            assert [item["name"] for item in page["items"]] == [f"topic-{number:05}" for number in range(1900, 1950)]
            assert counted.count <= 50
            await get("/cluster")
            await get("/overview")
            assert (await get("/topics", search="99"))["total"] == sum("99" in f"{number:05}" for number in range(TOPICS))
            busiest = await get("/topics", sort="consumers", order="desc", limit=1)
            assert busiest["items"][0]["consumers"] == 1
            assert (await get("/queues", limit=10))["total"] == TOPICS
            found = await get("/consumers", limit=20, offset=100, sort="lag_messages")
            assert (found["total"], len(found["items"])) == (CONSUMERS, 20)
            assert (await get("/consumers/consumer-007"))["positions"][0]["topic"] == "topic-00007"
            assert counted.count <= 200

    asyncio.run(run())
