"""YDB topics over gRPC: what the SDK writes and reads through a node, against a server that does nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from bench.measure import Duel, Row, Setting, count_rate
from bench.ydb_null import MESSAGE_BYTES, MESSAGES

AT_ONCE = 1000
GOAL = 0.7


async def rows(setting: Setting) -> list[Row]:
    """StreamWrite and StreamRead of 1 KB messages, through one writer and one reader."""
    import ydb

    node = [sys.executable, "-m", "penstock.cli.main", "up", "-o", "json", "--kafka-port", "none", "--ydb-port", "0"]
    node += ["--http-port", "none", "--data-dir", str(setting.directory("ydb")), "--log-level", "warning"]
    found: list[Row] = []
    async with _server(node) as line, _server([sys.executable, "-m", "bench.ydb_null"]) as null_line:
        port = json.loads(line)["listeners"]["ydb"]["port"]
        async with (
            ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{port}", database="/local") as ours,
            ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{int(null_line)}", database="/local") as null,
        ):
            await ours.topic_client.create_topic("/local/topic")
            rounds = setting.rounds(15)
            duel = await _duel(rounds, lambda: _write(null), lambda: _write(ours))
            found.append(duel.row("ydb: StreamWrite of 1 KB messages, 1000 at a time, fsync", show=count_rate, goal=GOAL))
            duel = await _duel(rounds, lambda: _read(null), lambda: _read(ours))
            found.append(duel.row("ydb: StreamRead of 1 KB messages", show=count_rate, goal=GOAL))
    return found


@asynccontextmanager
async def _server(argv: list[str]) -> AsyncIterator[str]:
    """A process that says on its first line where it listens."""
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode()
    finally:
        process.terminate()
        await process.wait()


async def _duel(rounds: int, raw: Callable[[], Awaitable[float]], ours: Callable[[], Awaitable[float]]) -> Duel:
    """As Duel.run, with both of them in the event loop; the first round is not counted."""
    duel = Duel()
    for number in range(rounds + 1):
        pair = [(raw, duel.raw), (ours, duel.ours)]
        for work, rates in pair if number % 2 else reversed(pair):
            started = time.perf_counter()
            amount = await work()
            if number:
                rates.append(amount / (time.perf_counter() - started))
    return duel


async def _write(driver: Any) -> float:
    import ydb

    data = os.urandom(MESSAGE_BYTES)
    async with driver.topic_client.writer("/local/topic", codec=ydb.TopicCodec.RAW) as writer:
        for _ in range(MESSAGES // AT_ONCE):
            await writer.write([data] * AT_ONCE)
    return MESSAGES


async def _read(driver: Any) -> float:
    import ydb

    class FromStart(ydb.TopicReaderEvents.EventHandler):  # type: ignore[misc]
        def on_partition_get_start_offset(self, event: Any) -> Any:
            return ydb.TopicReaderEvents.OnPartitionGetStartOffsetResponse(0)

    selector = ydb.TopicReaderSelector(path="/local/topic", partitions=[0])
    count = 0
    async with driver.topic_client.reader(selector, consumer=None, event_handler=FromStart()) as reader:
        while count < MESSAGES:
            count += len((await reader.receive_batch()).messages)
    return count
