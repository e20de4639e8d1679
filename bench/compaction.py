"""Compaction, against a copy of the same bytes: the work on bytes alone, on one core, and passes over a partition on disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

from bench.measure import MIB, Row, Setting, bytes_rate, limit_row, quartiles
from bench.queues import CONFIG, open_node
from bench.raw import RawLog
from penstock.core.clock import SystemClock
from penstock.queue import Partition, compact
from penstock.queue.config import PartitionConfig
from penstock.queue.key_map import KeyMap
from penstock.queue.sifting import AbortedIndex, Sieve, note_keys
from penstock.testing.batches import make_keyed_batch

VALUE_BYTES = 1000
BATCH_MESSAGES = 60
RUN_BATCHES = 130  # about 8 MiB
MIB_PER_S = 100
PASS_BYTES = 96 * MIB
ASK = PartitionConfig(batch_bytes_max=CONFIG.batch_bytes_max, is_compacted=True, min_dirty_ratio=0.0, segment_bytes=1)


async def rows(setting: Setting) -> list[Row]:
    """The bytes alone, uncompressed and compressed, then passes."""
    found = [_work(setting, 0, "uncompressed"), _work(setting, 4, "zstd")]
    found.append(await _passes(setting, setting.directory("compaction")))
    return found


def _work(setting: Setting, codec: int, name: str) -> Row:
    """Keys noted, and one half of the messages left out."""
    run = b"".join(_stored(at * BATCH_MESSAGES, codec) for at in range(RUN_BATCHES))
    messages = RUN_BATCHES * BATCH_MESSAGES
    rates: list[float] = []
    copies: list[float] = []
    nothing = AbortedIndex(())
    for _ in range(setting.rounds(25)):
        started = time.perf_counter()
        keys = KeyMap(messages, 64 * MIB, Random(1))
        assert note_keys(keys, run, nothing, 0) is None
        left = Sieve(keys, nothing, noted_to=messages, ripe_to=0).sift(run, is_last=True)
        rates.append(messages * (VALUE_BYTES + 24) / (time.perf_counter() - started))
        assert left.is_changed
        started = time.perf_counter()
        bytearray(run)
        copies.append(len(run) / (time.perf_counter() - started))
    return limit_row(
        f"compaction: 1 KiB messages, {name}, work on bytes alone",
        [rate / 1e6 for rate in rates],
        unit="MB/s",
        goal=MIB_PER_S if codec == 0 else None,
        at_least=True,
        beside=f"copy {bytes_rate(median(copies))}",
    )


def _stored(offset: int, codec: int) -> bytes:
    raw = _batch(Random(offset), offset, RUN_BATCHES * BATCH_MESSAGES // 2, codec)
    return offset.to_bytes(8, "big") + raw[8:]


def _batch(random: Random, offset: int, keys: int, codec: int = 0) -> bytes:
    pairs: list[tuple[bytes | None, bytes | None]] = []
    for at in range(BATCH_MESSAGES):
        value = random.randbytes(VALUE_BYTES // 4) * 4 if codec else random.randbytes(VALUE_BYTES)
        pairs.append((b"key-%010d" % ((offset + at) % keys), value))
    return make_keyed_batch(pairs, timestamps=[1], codec=codec)


async def _passes(setting: Setting, directory: Path) -> Row:
    """A pass over a partition of which one half is superseded, against reading as many bytes and writing half of them."""
    ratios: list[float] = []
    ours: list[float] = []
    raw: list[float] = []
    amount = PASS_BYTES // 3 if setting.quick else PASS_BYTES
    source = directory / "source"
    source.write_bytes(os.urandom(MIB) * (amount // MIB))
    async with open_node(directory) as node:
        queue = await node.boot()
        queue.set_config(ASK)
        for number in range(setting.rounds(9)):
            partition = await queue.add_partition(number)
            await _fill(partition, amount)
            ours.append(await _rate(partial(_pass, partition)))
            log = RawLog(directory / "raw")
            raw.append(await _rate(partial(asyncio.to_thread, _raw_copy, source, log)))
            log.close()
            ratios.append(ours[-1] / raw[-1])
            await partition.trim(partition.end_offset)
        await queue.stop()
    low, high = quartiles(ratios)
    name = f"compaction: passes over {amount // MIB} MiB of 1 KiB messages, fsync"
    return Row(name, bytes_rate(median(ours)), f"raw {bytes_rate(median(raw))}", median(ratios), "x", 0.3, True, low, high)


async def _rate(work: Callable[[], Awaitable[int]]) -> float:
    started = time.perf_counter()
    size = await work()
    return size / (time.perf_counter() - started)


async def _fill(partition: Partition, amount: int) -> None:
    random = Random(1)
    offset = 0
    count = amount // (BATCH_MESSAGES * (VALUE_BYTES + 24))
    while offset < count * BATCH_MESSAGES:
        batches = [_batch(random, offset + at * BATCH_MESSAGES, count * BATCH_MESSAGES // 2) for at in range(16)]
        await asyncio.gather(*map(partition.write, batches))
        offset += 16 * BATCH_MESSAGES


async def _pass(partition: Partition) -> int:
    size = partition.size
    summary = await compact(partition, clock=SystemClock(), random=Random(1), offload=asyncio.to_thread)
    assert summary is not None
    assert summary.is_complete
    assert summary.bytes_freed > size // 3
    return size


def _raw_copy(source: Path, log: RawLog) -> int:
    """Read a file in pieces of a body, twice as a pass does, and append half of it to a log."""
    amount = 0
    for is_copied in (False, True):
        with source.open("rb") as file:
            while piece := file.read(8 * MIB):
                for begin in range(0, len(piece) // 2 if is_copied else 0, MIB):
                    log.append(piece[begin : begin + MIB])
                amount += len(piece)
    return amount // 2
