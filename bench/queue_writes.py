"""Writes to partitions, against appends of as many bytes at a time as a commit of ours takes to the disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench.measure import MIB, Duel, Row, Setting, bytes_rate, limit_row
from bench.none_puts import raw_puts
from bench.queues import QueueNode, open_node
from bench.raw import RawLog
from penstock.queue import Partition, QueueTablet, SourceWrite
from penstock.tablet import GetStatus, Request, TabletStatus
from penstock.testing.batches import make_batch

IN_FLIGHT = 64
WRITERS = 256


async def rows(setting: Setting) -> list[Row]:
    """Large batches with and without sync, small ones from many writers, and one writer alone."""
    found: list[Row] = []
    for durable in (True, False):
        for size in (64 << 10, MIB):
            for partitions in (1, 4):
                directory = setting.directory(f"queue-{durable}-{size}-{partitions}")
                found.append(await _large(setting, directory, size, partitions, durable=durable))
    found += await _small(setting, setting.directory("queue-small"))
    return found


async def _large(setting: Setting, directory: Path, size: int, partitions: int, *, durable: bool) -> Row:
    batch = make_batch([os.urandom(size - 100)])
    async with open_node(directory, durable=durable) as node:
        queue = await node.boot()
        parts = [await queue.add_partition(number) for number in range(partitions)]
        amount = 32 * MIB
        ours = partial(write_all, parts, batch, amount)
        commit = await _commit_size(queue, ours, amount)
        log = RawLog(directory / "raw", synced=durable)
        raw = partial(raw_puts, log, os.urandom(commit), amount)
        duel = await Duel().run(setting.rounds(25), raw, ours, partial(trim_all, parts))
        log.close()
        await queue.stop()
    name = f"queue: {size >> 10} KiB batches, {partitions} partition{'s' if partitions > 1 else ''}, "
    name += f"{'fsync' if durable else 'no fsync'}, commits of {commit >> 10} KiB"
    return duel.row(name, show=bytes_rate, goal=0.8 if durable else 0.7)


async def _commit_size(queue: QueueTablet, ours: Callable[[], Awaitable[float]], amount: int) -> int:
    """How many bytes a commit takes on average, in this very setting."""
    before = await _commits(queue)
    await ours()
    return max(4096, min(amount // max(await _commits(queue) - before, 1), 8 * MIB))


async def _commits(queue: QueueTablet) -> int:
    status = (await queue.tablet.execute(Request((GetStatus(),))))[0]
    assert isinstance(status, TabletStatus)
    return status.step


async def write_all(partitions: list[Partition], batch: bytes, amount: int) -> float:
    """Write `amount` bytes with many batches in flight; how many that were."""
    each = max(1, amount // len(batch) // IN_FLIGHT)
    writers = [partitions[number % len(partitions)] for number in range(IN_FLIGHT)]

    async def writer(partition: Partition) -> None:
        for _ in range(each):
            await partition.write(batch)

    await asyncio.gather(*map(writer, writers))
    return each * IN_FLIGHT * len(batch)


async def trim_all(partitions: list[Partition]) -> None:
    """Trim all there is, to spare the disk."""
    for partition in partitions:
        await partition.trim(partition.end_offset)


async def _small(setting: Setting, directory: Path) -> list[Row]:
    async with open_node(directory) as node:
        queue = await node.boot()
        partition = await queue.add_partition(0)
        found = [await _amplification(node, partition, tiny=False), await _amplification(node, partition, tiny=True)]
        rates: list[float] = []
        for number in range(setting.rounds(15)):
            started = time.perf_counter()
            count = await write_small(partition, number, 40)
            rates.append(count / (time.perf_counter() - started))
        goal = 25_000
        found.append(limit_row(f"queue: {WRITERS} writers of 100 B, fsync", rates, unit="/s", goal=goal, at_least=True))
        found.append(await _alone(setting, partition, RawLog(directory / "raw")))
        await queue.stop()
    return found


async def write_small(partition: Partition, number: int, each: int) -> int:
    """One 100-byte message at a time from each of many writers, every writer a source of its own; how many that were."""
    batch = make_batch([os.urandom(100)])

    async def writer(source: bytes) -> None:
        for seqno in range(each):
            await partition.write(batch, SourceWrite(source, number * each + seqno))

    await asyncio.gather(*(writer(b"writer-%d" % writer_number) for writer_number in range(WRITERS)))
    return WRITERS * each


async def _amplification(node: QueueNode, partition: Partition, *, tiny: bool) -> Row:
    """Bytes written for each byte accepted, over enough of them for several bodies."""
    before, size = await node.bytes_written(), partition.size
    if tiny:
        for number in range(100, 106):
            await write_small(partition, number, 40)
    else:
        batch = make_batch([os.urandom(MIB - 100)])
        for _ in range(40):
            await partition.write(batch)
    ratio = (await node.bytes_written() - before) / (partition.size - size)
    name = f"queue: bytes written for a byte accepted, {'100 B messages' if tiny else '1 MiB batches'}"
    return limit_row(name, [ratio], unit="x", goal=2.1 if tiny else 1.1)


async def _alone(setting: Setting, partition: Partition, log: RawLog) -> Row:
    """One writer at a time, against the raw append and sync next to it."""
    batch = make_batch([os.urandom(100)])
    over: list[float] = []
    ours_us: list[float] = []
    raw_us: list[float] = []
    for _ in range(setting.rounds(25)):
        # In blocks, not in turns: each sync of one file would wait for what the other has just left in the journal.
        ours, raw = [], []
        for _ in range(20):
            started = time.perf_counter()
            await partition.write(batch)
            ours.append(time.perf_counter() - started)
        for _ in range(20):
            started = time.perf_counter()
            log.append(batch)
            raw.append(time.perf_counter() - started)
        ours_us.append(median(ours) * 1e6)
        raw_us.append(median(raw) * 1e6)
        over.append(ours_us[-1] - raw_us[-1])
    log.close()
    beside = f"raw {median(raw_us):.0f} us"
    return limit_row(
        "queue: one writer at a time, p50 over raw", over, unit="us", goal=150, beside=beside, ours=f"{median(ours_us):.0f} us"
    )
