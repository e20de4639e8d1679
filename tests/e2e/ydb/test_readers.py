"""Readers of one consumer share its partitions, as readers join and leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import ydb
from ydb import TopicReaderPartitionExpiredError as Expired

from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import ydb_port

READERS = 50
PARTITIONS = 10
MESSAGES = 3000


class Reading:
    """What the readers have seen of a topic, together."""

    def __init__(self, client: Any, path: str) -> None:
        self._client = client
        self._path = path
        self.seen: Counter[bytes] = Counter()
        self.all_seen = asyncio.Event()

    async def read(self, until: int | None = None) -> None:
        """Read and commit until all was seen, or so many messages are."""
        own = 0
        async with self._client.reader(self._path, consumer="reader") as reader:
            while until is None or own < until:
                batch = await reader.receive_batch(max_messages=20)
                self.seen.update(message.data for message in batch.messages)
                own += len(batch.messages)
                if len(self.seen) == MESSAGES:
                    self.all_seen.set()
                try:
                    await reader.commit_with_ack(batch)
                except Expired:
                    continue  # another has the partition now, and will be given this again


async def _until_shared(client: Any, path: str, shares: list[int]) -> None:
    """Wait until the readers have so many partitions each."""
    async with asyncio.timeout(30):
        while True:
            found = await client.describe_consumer(path, "reader", include_stats=True)
            owners = Counter(one.partition_consumer_stats.read_session_id for one in found.partitions)
            if sorted(owners.values()) == shares:
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_fifty_readers_come_and_go_and_miss_nothing(node: RunningNode) -> None:
    path = "/local/shared"

    async def run() -> None:
        async with ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{ydb_port(node)}", database="/local") as driver:
            client = driver.topic_client
            await client.create_topic(path, min_active_partitions=PARTITIONS, consumers=["reader"])
            reading = Reading(client, path)
            tasks = [asyncio.create_task(reading.read(until=40)) for _ in range(READERS - 5)]
            for number in range(PARTITIONS):
                async with client.writer(path, producer_id=f"source-{number}", partition_id=number) as writer:
                    await writer.write([f"{number} {at}" for at in range(MESSAGES // PARTITIONS)])
            tasks += [asyncio.create_task(reading.read()) for _ in range(5)]
            async with asyncio.timeout(60):
                await reading.all_seen.wait()
                for task in tasks[:-5]:
                    task.cancel()
                await asyncio.gather(*tasks[:-5], return_exceptions=True)
                await _until_shared(client, path, [2] * 5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            found = await client.describe_consumer(path, "reader", include_stats=True)
            each = MESSAGES // PARTITIONS
            assert [one.partition_stats.partition_end for one in found.partitions] == [each] * PARTITIONS
            assert len(reading.seen) == MESSAGES

    asyncio.run(run())


def test_partitions_move_to_a_second_reader_and_back(node: RunningNode, path: str) -> None:
    async def run() -> None:
        async with ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{ydb_port(node)}", database="/local") as driver:
            client = driver.topic_client
            async with client.reader(path, consumer="reader"):
                await _until_shared(client, path, [2])
                async with client.reader(path, consumer="reader"):
                    await _until_shared(client, path, [1, 1])
                await _until_shared(client, path, [2])
                await client.alter_topic(path, set_min_active_partitions=3)
                await _until_shared(client, path, [3])

    asyncio.run(run())


def test_a_reader_of_a_dropped_topic_is_told(driver: Any, path: str) -> None:
    with driver.topic_client.reader(path, consumer="reader") as reader:
        with pytest.raises(TimeoutError):
            reader.receive_batch(timeout=0.5)
        driver.topic_client.drop_topic(path)
        with pytest.raises(ydb.SchemeError):
            reader.receive_batch(timeout=30)


def test_a_reader_of_a_dropped_consumer_is_told(driver: Any, path: str) -> None:
    with driver.topic_client.reader(path, consumer="reader") as reader:
        with pytest.raises(TimeoutError):
            reader.receive_batch(timeout=0.5)
        driver.topic_client.alter_topic(path, drop_consumers=["reader"])
        with pytest.raises(ydb.SchemeError, match="has no consumer"):
            reader.receive_batch(timeout=30)
