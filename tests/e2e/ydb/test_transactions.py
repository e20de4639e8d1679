"""Transactions of the SDK about topics alone: what is read and what is written take effect together, or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ydb

from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.copier import copy
from tests.e2e.ydb.ydb_node import connected, read_all, ydb_node, ydb_port

COUNT = 400


def _driver(port: str) -> Any:
    return ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{port}", database="/local")


def test_messages_are_copied_exactly_once(node: RunningNode, driver: Any, path: str) -> None:
    target = path + "-copy"
    driver.topic_client.create_topic(target, min_active_partitions=3, consumers=["reader"])
    with driver.topic_client.writer(path, producer_id="source") as writer:
        writer.write([f"message {number}" for number in range(50)])

    async def run() -> None:
        async with _driver(ydb_port(node)) as own, ydb.aio.QuerySessionPool(own) as pool:
            await copy(own, pool, source=path, target=target, count=50, told=lambda _: None)

    asyncio.run(run())
    found = Counter(message.data for message in read_all(driver.topic_client, target, "reader", 50))
    assert found == Counter(f"MESSAGE {number}".encode() for number in range(50))
    stats = driver.topic_client.describe_consumer(path, "reader", include_stats=True).partitions
    assert sum(one.partition_consumer_stats.committed_offset for one in stats) == 50


def test_nothing_of_a_rolled_back_transaction_is_seen(node: RunningNode, driver: Any, path: str) -> None:
    with driver.topic_client.writer(path, producer_id="source") as writer:
        writer.write(["one", "two"])

    async def run() -> None:
        async with (
            _driver(ydb_port(node)) as own,
            ydb.aio.QuerySessionPool(own) as pool,
            own.topic_client.reader(path, consumer="reader") as reader,
        ):

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
def test_a_copy_is_exact_though_node_and_copier_are_killed(tmp_path: Path) -> None:
    for goal in (COUNT // 3, 2 * COUNT // 3, COUNT):
        with ydb_node(tmp_path) as node:
            with connected(node) as driver:
                client = driver.topic_client
                if goal == COUNT // 3:
                    for name in ("from", "to"):
                        client.create_topic(f"/local/{name}", min_active_partitions=2, consumers=["reader"])
                    with client.writer("/local/from", producer_id="source") as writer:
                        writer.write([f"{number}" for number in range(COUNT)])
                # What was committed when all was killed may not have been told.
                stats = client.describe_consumer("/local/from", "reader", include_stats=True).partitions
                done = sum(one.partition_consumer_stats.committed_offset for one in stats)
            _copy_until(ydb_port(node), goal, done)
            if goal < COUNT:
                node.kill()
                continue
            with connected(node) as driver:
                found = Counter(message.data for message in read_all(driver.topic_client, "/local/to", "reader", COUNT))
                assert found == Counter(f"{number}".encode() for number in range(COUNT))
                stats = driver.topic_client.describe_topic("/local/to", include_stats=True).partitions
                # Each transaction leaves a marker in the partition that it wrote to.
                assert sum(one.partition_stats.partition_end for one in stats) >= COUNT


def _copy_until(port: str, goal: int, done: int) -> None:
    """Copy in a process of its own, which is killed in the middle of it."""
    argv = [sys.executable, "-m", "tests.e2e.ydb.copier", port, str(COUNT - done)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as copier:
        assert copier.stdout is not None
        while done < goal:
            done += int(copier.stdout.readline())
        copier.kill()
