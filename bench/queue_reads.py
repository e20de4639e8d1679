"""Reads of partitions against sendfile, booting a large one, and a million source ids."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
import time
from functools import partial
from pathlib import Path

import uvloop

from bench.measure import MIB, Duel, Row, Setting, bytes_rate, limit_row
from bench.million import resident_mb
from bench.none_reads import drained_socket, send_all
from bench.queues import open_node
from penstock.blob import Buffer, FilePiece
from penstock.queue import BlobCache, Partition, SourceWrite
from penstock.queue.keys import BODY, DataKey, Description, Meta, prefix
from penstock.tablet import Request, Write
from penstock.testing.batches import make_batch

ROOT = Path(__file__).resolve().parents[1]
DATA = 48 * MIB
BODIES = 12_800  # of 8 MiB each: 100 GB
SOURCES = 1_000_000


async def rows(setting: Setting) -> list[Row]:
    """The tail from memory, the body from files, the boot, the sources."""
    return [*await _reads(setting), await _boot(setting), *await _sources(setting)]


async def _reads(setting: Setting) -> list[Row]:
    found: list[Row] = []
    batch = make_batch([os.urandom(64 << 10)])
    async with open_node(setting.directory("queue-reads")) as node:
        queue = await node.boot()
        partition = await queue.add_partition(0)
        await asyncio.gather(*(partition.write(batch) for _ in range(DATA // len(batch))))
        await queue.stop()
        cold = (await node.boot(BlobCache(bytes_max=0))).partition(0)
        pieces = await _files(cold)
        warm = (await node.boot()).partition(0)
        await _read_all(warm, None, files=False)
        with drained_socket() as sink:
            for name, reader, files in (("of the tail, from memory", warm, False), ("of bodies, from files", cold, True)):
                duel = await Duel().run(
                    setting.rounds(40), partial(send_all, sink, pieces), partial(_read_all, reader, sink, files=files)
                )
                found.append(duel.row(f"queue: reads {name}, against sendfile", show=bytes_rate, goal=0.8))
    return found


async def _files(partition: Partition) -> list[FilePiece]:
    """All of the body as it lies in files."""
    found: list[FilePiece] = []
    offset = partition.start_offset
    while True:
        result = await partition.read(offset, 8 * MIB, files=True)
        pieces = [part for part in result.batches if isinstance(part, FilePiece)]
        if len(pieces) < len(result.batches) or not pieces:
            return found
        found += pieces
        offset = result.next_offset


async def _read_all(partition: Partition, sink: socket.socket | None, *, files: bool) -> float:
    """Read the partition a megabyte at a time and send it on; the bytes."""
    total = 0
    offset = partition.start_offset
    while offset < partition.end_offset:
        result = await partition.read(offset, MIB, files=files)
        if sink is not None:
            for part in result.batches:
                _send(sink, part)
        total += result.size
        offset = result.next_offset
    return total


def _send(sink: socket.socket, part: Buffer | FilePiece) -> None:
    if isinstance(part, FilePiece):
        send_all(sink, [part])
    else:
        sink.sendall(part)


async def _boot(setting: Setting) -> Row:
    """A partition of 100 GB by its keys: booting reads those and the head, never the body."""
    async with open_node(setting.directory("queue-boot")) as node:
        queue = await node.boot()
        tablet = queue.tablet
        description = Description(8 * MIB, 2000, 0, 0).pack()
        for begin in range(0, BODIES, 1000):
            keys = [DataKey(0, number * 1000, 1000, BODY).pack() for number in range(begin, min(begin + 1000, BODIES))]
            await tablet.execute(Request(tuple(Write(key, b"", head=description) for key in keys)))
        end = BODIES * 1000
        await tablet.execute(Request((Write(prefix(b"m", 0), Meta(0, end).pack()),)))
        await queue.stop()
        queue = await node.boot()
        batch = make_batch([os.urandom(128 << 10)])
        for _ in range(44):
            await queue.partition(0).write(batch)
        seconds: list[float] = []
        for _ in range(setting.rounds(10)):
            await queue.stop()
            started = time.perf_counter()
            queue = await node.boot()
            seconds.append(time.perf_counter() - started)
        await queue.stop()
    return limit_row("queue: boot with 100 GB of body and a full head", seconds, unit="s", goal=1.0)


async def _sources(setting: Setting) -> list[Row]:
    """The memory of a million sources, and what they cost a write."""
    count = SOURCES // 10 if setting.quick else SOURCES
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.queue_reads", str(setting.directory("queue-sources")), str(count),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError("filling the sources failed; its error is above")
    result = json.loads(out)
    note = f"{count:,} ids"
    scale = SOURCES / count
    return [
        limit_row("queue: memory of a million source ids", [result["rss_mb"] * scale], unit="MB", goal=400, beside=note),
        limit_row("queue: write with them, against ten ids", result["ratios"], unit="x", goal=1.1, beside=note),
    ]


async def fill_sources(directory: Path, count: int) -> dict[str, object]:
    """Write once from each of so many sources; the memory that took, and the time of a write against one with ten sources."""
    batch = make_batch([b"x" * 10])
    async with open_node(directory, durable=False) as node:
        queue = await node.boot(BlobCache(bytes_max=0))
        many, few = await queue.add_partition(0), await queue.add_partition(1)
        gc.collect()
        before = resident_mb()
        for begin in range(0, count, 2000):
            sources = range(begin, min(begin + 2000, count))
            await asyncio.gather(*(many.write(batch, SourceWrite(b"source-%09d" % number, 0)) for number in sources))
        gc.collect()
        rss = resident_mb() - before
        await few.write(batch, SourceWrite(b"few-0", 0))
        ratios: list[float] = []
        for number in range(1, 40):
            ratios.append(await _timed(many, batch, b"source-%09d", number) / await _timed(few, batch, b"few-%d", number))
        await queue.stop()
    return {"rss_mb": rss, "ratios": ratios}


async def _timed(partition: Partition, batch: bytes, name: bytes, seqno: int) -> float:
    started = time.perf_counter()
    for _ in range(20):
        await asyncio.gather(*(partition.write(batch, SourceWrite(name % number, seqno)) for number in range(10)))
        seqno += 1000
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps(uvloop.run(fill_sources(Path(sys.argv[1]), int(sys.argv[2])))))
