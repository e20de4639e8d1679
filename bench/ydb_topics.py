"""YDB topics over gRPC: what the SDK writes and reads through a node, against a server that does nothing, and the CPU that
each of the two takes for a message."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any

from bench.measure import Duel, Row, Setting, count_rate, limit_row
from bench.process_cpu import cpu_s
from bench.ydb_null import MESSAGE_BYTES, MESSAGES

AT_ONCE = 1000
GOAL = 0.7

Side = tuple[int, Callable[[], Awaitable[float]]]
"""A server, by its process, and a share of work to be done with it."""


async def rows(setting: Setting) -> list[Row]:
    """StreamWrite and StreamRead of 1 KB messages, through one writer and one reader."""
    import ydb

    node = [sys.executable, "-m", "penstock.cli.main", "up", "-o", "json", "--kafka-port", "none", "--ydb-port", "0"]
    node += ["--http-port", "none", "--data-dir", str(setting.directory("ydb")), "--log-level", "warning"]
    found: list[Row] = []
    async with _server(node) as (pid, line), _server([sys.executable, "-m", "bench.ydb_null"]) as (null_pid, null_line):
        port = json.loads(line)["listeners"]["ydb"]["port"]
        async with (
            ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{port}", database="/local") as ours,
            ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{int(null_line)}", database="/local") as null,
        ):
            await ours.topic_client.create_topic("/local/topic")
            rounds = setting.rounds(15)
            for name, work in (
                ("StreamWrite of 1 KB messages, 1000 at a time, fsync", _write),
                ("StreamRead of 1 KB messages", _read),
            ):
                found += await _rows(f"ydb: {name}", rounds, (null_pid, partial(work, null)), (pid, partial(work, ours)))
    return found


@asynccontextmanager
async def _server(argv: list[str]) -> AsyncIterator[tuple[int, str]]:
    """A process, and its first line, on which it says where it listens."""
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process.pid, (await process.stdout.readline()).decode()
    finally:
        process.terminate()
        await process.wait()


async def _rows(name: str, rounds: int, raw: Side, ours: Side) -> list[Row]:
    """As Duel.run, with both of them in the event loop; the first round is not counted."""
    duel = Duel()
    cpu_us: dict[int, list[float]] = {raw[0]: [], ours[0]: []}
    for number in range(rounds + 1):
        pair = [(raw, duel.raw), (ours, duel.ours)]
        for (pid, work), rates in pair if number % 2 else reversed(pair):
            started, before = time.perf_counter(), cpu_s(pid)
            amount = await work()
            if number:
                rates.append(amount / (time.perf_counter() - started))
                cpu_us[pid].append((cpu_s(pid) - before) * 1e6 / amount)
    beside = f"null {median(cpu_us[raw[0]]):.2f} us"
    return [
        duel.row(name, show=count_rate, goal=GOAL),
        limit_row(f"{name}: CPU of the node, each", cpu_us[ours[0]], unit="us", goal=None, beside=beside),
    ]


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
