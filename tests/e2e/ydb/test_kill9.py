"""The node is killed under load, again and again: nothing is lost, repeated or out of order for any producer."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import ydb

from tests.e2e.ydb.ydb_node import ydb_node, ydb_port

PRODUCERS = 6
MESSAGES = 1500
AT_ONCE = 20
KILLS = 3
PATH = "/local/orders"


class Progress:
    """How many messages are acknowledged."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Condition()

    async def add(self, count: int) -> None:
        """Some more are."""
        async with self._changed:
            self._count += count
            self._changed.notify_all()

    async def reach(self, count: int) -> None:
        """Wait until so many are."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._count >= count)


async def _write(client: Any, producer: str, progress: Progress) -> None:
    """Write numbered messages, some at a time; each batch only once the one before it is acknowledged."""
    async with client.writer(PATH, producer_id=producer) as writer:
        for begin in range(0, MESSAGES, AT_ONCE):
            await writer.write_with_ack([f"{producer} {number}" for number in range(begin, begin + AT_ONCE)])
            await progress.add(AT_ONCE)


async def _read(client: Any, seen: dict[str, list[int]]) -> None:
    """Read and commit until everything was seen; what was not committed before a kill comes again."""
    while not _is_all(seen):
        try:
            async with client.reader(PATH, consumer="reader") as reader:
                while not _is_all(seen):
                    batch = await reader.receive_batch()
                    for message in batch.messages:
                        producer, number = message.data.decode().split()
                        seen[producer].append(int(number))
                    reader.commit(batch)
        except asyncio.CancelledError:
            # A driver that loses a connection cancels what is being opened on it, and the SDK's reader gives up then.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise


def _is_all(seen: dict[str, list[int]]) -> bool:
    return sum(len(set(numbers)) for numbers in seen.values()) == PRODUCERS * MESSAGES


async def _audit(client: Any) -> dict[str, list[int]]:
    """Everything that is stored, in its order."""
    stored: dict[str, list[int]] = defaultdict(list)
    async with client.reader(PATH, consumer="audit") as reader:
        while sum(map(len, stored.values())) < PRODUCERS * MESSAGES:
            batch = await asyncio.wait_for(reader.receive_batch(), 30)
            for message in batch.messages:
                producer, number = message.data.decode().split()
                assert (message.producer_id, message.seqno) == (producer, int(number) + 1)
                stored[producer].append(int(number))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.receive_batch(), 1)
    return stored


@pytest.mark.slow
def test_nothing_is_lost_repeated_or_reordered_by_kill_9(tmp_path: Path) -> None:
    with ydb_node(tmp_path) as node:
        ports = ["--ydb-port", ydb_port(node), "--kafka-port", node.bootstrap.rsplit(":", 1)[1]]
        node.stop()

    async def run() -> None:
        endpoint = f"grpc://127.0.0.1:{ports[1]}"
        progress, seen = Progress(), defaultdict[str, list[int]](list)
        stored: dict[str, list[int]] = {}
        async with ydb.aio.Driver(endpoint=endpoint, database="/local") as driver:
            work: asyncio.Future[Any] | None = None
            for kill in range(KILLS + 1):
                with ydb_node(tmp_path, ports) as node:
                    client = driver.topic_client
                    if work is None:
                        await client.create_topic(PATH, min_active_partitions=3, consumers=["reader", "audit"])
                        writers = [_write(client, f"producer-{number}", progress) for number in range(PRODUCERS)]
                        work = asyncio.ensure_future(asyncio.gather(*writers, _read(client, seen)))
                    if kill < KILLS:
                        await progress.reach(PRODUCERS * MESSAGES * (kill + 1) // (KILLS + 1))
                        node.kill()
                        continue
                    await asyncio.wait_for(work, 90)
                    stored = await _audit(client)
        every = list(range(MESSAGES))
        assert {producer: numbers == every for producer, numbers in stored.items()} == dict.fromkeys(stored, True)
        assert len(stored) == PRODUCERS
        assert all(sorted(set(numbers)) == every for numbers in seen.values())

    asyncio.run(run())
