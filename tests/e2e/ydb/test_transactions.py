"""Transactions of the SDK about topics alone: what is read and what is written take effect together, or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ydb

from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import read_all, ydb_node, ydb_port


def _driver(port: str) -> Any:
    return ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{port}", database="/local")


async def _copy(driver: Any, pool: Any, source: str, target: str, count: int, copied: list[int]) -> None:
    """Copy messages from one topic to another, each batch with its position."""
    async with driver.topic_client.reader(source, consumer="reader") as reader:

        async def once(tx: Any) -> int:
            batch = await asyncio.wait_for(reader.receive_batch_with_tx(tx, max_messages=10), 10)
            writer = driver.topic_client.tx_writer(tx, target)
            await writer.write([message.data.upper() for message in batch.messages])
            return len(batch.messages)

        while copied[0] < count:
            copied[0] += await pool.retry_tx_async(once)


def test_messages_are_copied_exactly_once(node: RunningNode, driver: Any, path: str) -> None:
    target = path + "-copy"
    driver.topic_client.create_topic(target, min_active_partitions=3, consumers=["reader"])
    with driver.topic_client.writer(path, producer_id="source") as writer:
        writer.write([f"message {number}" for number in range(50)])

    async def run() -> None:
        async with _driver(ydb_port(node)) as own, ydb.aio.QuerySessionPool(own) as pool:
            await _copy(own, pool, path, target, 50, [0])

    asyncio.run(run())
    found = Counter(message.data for message in read_all(driver.topic_client, target, "reader", 50))
    assert found == Counter(f"MESSAGE {number}".encode() for number in range(50))
    stats = driver.topic_client.describe_consumer(path, "reader", include_stats=True).partitions
    assert sum(one.partition_consumer_stats.committed_offset for one in stats) == 50


def test_nothing_of_a_rolled_back_transaction_is_seen(node: RunningNode, driver: Any, path: str) -> None:
    with driver.topic_client.writer(path, producer_id="source") as writer:
        writer.write(["one", "two"])

    async def run() -> None:
        async with _driver(ydb_port(node)) as own, ydb.aio.QuerySessionPool(own) as pool:
            async with own.topic_client.reader(path, consumer="reader") as reader:

                async def fail(tx: Any) -> None:
                    await asyncio.wait_for(reader.receive_batch_with_tx(tx), 10)
                    await own.topic_client.tx_writer(tx, path).write("never seen")
                    raise KeyError("on purpose")

                with pytest.raises(KeyError):
                    await pool.retry_tx_async(fail)

    asyncio.run(run())
    assert [message.data for message in read_all(driver.topic_client, path, "reader", 2)] == [b"one", b"two"]
    stats = driver.topic_client.describe_topic(path, include_stats=True).partitions
    assert sum(one.partition_stats.partition_end for one in stats) == 2


def test_a_query_is_refused(node: RunningNode) -> None:
    async def run() -> None:
        async with _driver(ydb_port(node)) as own, ydb.aio.QuerySessionPool(own) as pool:
            with pytest.raises(ydb.Unsupported, match="no tables here"):
                await pool.execute_with_retries("SELECT 1")

    asyncio.run(run())


@pytest.mark.slow
def test_a_copy_is_exact_though_the_node_is_killed(tmp_path: Path) -> None:
    count = 400
    with ydb_node(tmp_path) as node:
        port = ydb_port(node)
        node.stop()

    async def run() -> None:
        copied = [0]
        async with _driver(port) as own:
            for kill in range(3):
                with ydb_node(tmp_path, ["--ydb-port", port]) as node:
                    if not kill:
                        for name in ("from", "to"):
                            await own.topic_client.create_topic(f"/local/{name}", min_active_partitions=2, consumers=["reader"])
                        async with own.topic_client.writer("/local/from", producer_id="source") as writer:
                            await writer.write([f"{number}" for number in range(count)])
                    await _copy_until(port, node, count * (kill + 1) // 3 if kill < 2 else count, copied)
                    if kill == 2:
                        await _check_copy(port, count)

    asyncio.run(run())


async def _copy_until(port: str, node: RunningNode, goal: int, copied: list[int]) -> None:
    """Copy, and kill the node in the middle of it unless the goal is all there is."""
    async with _driver(port) as own, ydb.aio.QuerySessionPool(own) as pool:
        # What was committed when the node was killed may not have been counted.
        stats = (await own.topic_client.describe_consumer("/local/from", "reader", include_stats=True)).partitions
        copied[0] = sum(one.partition_consumer_stats.committed_offset for one in stats)
        work = asyncio.create_task(_copy(own, pool, "/local/from", "/local/to", 400, copied))
        while copied[0] < goal and not work.done():
            await asyncio.sleep(0.01)  # noqa: ASYNC110 - the kill may come at any moment, not only after a commit
        if goal < 400:
            node.kill()
            work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _check_copy(port: str, count: int) -> None:
    async with _driver(port) as own, own.topic_client.reader("/local/to", consumer="reader") as reader:
        found: Counter[bytes] = Counter()
        while found.total() < count:
            found.update(message.data for message in (await asyncio.wait_for(reader.receive_batch(), 30)).messages)
        assert found == Counter(f"{number}".encode() for number in range(count))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.receive_batch(), 1)
