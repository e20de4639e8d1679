"""Compacted bodies read as pieces of open files, from a real disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from penstock.blob import BlobStorage, ChannelHistory, Erasure, FilePiece, GroupConfig, TabletInfo
from penstock.core.clock import SystemClock
from penstock.queue import BlobCache, Partition, PartitionConfig, QueueTablet, ReadResult, compact, head, piece
from penstock.tablet import CHANNELS
from penstock.testing.batches import make_keyed_batch
from tests.keyed_log import data_records

CONFIG = PartitionConfig(low_watermark=20_000, is_compacted=True, min_dirty_ratio=0.0, segment_bytes=1)
INFO = TabletInfo(5, tuple(ChannelHistory([(0, 0)]) for _ in range(CHANNELS)))


@asynccontextmanager
async def _node(path: Path) -> AsyncIterator[BlobStorage]:
    storage = BlobStorage([GroupConfig(0, Erasure.NONE, (path,))], clock=SystemClock(), random=Random(1), durable=False)
    try:
        yield storage
    finally:
        await storage.close()


async def _boot(storage: BlobStorage, generation: int) -> QueueTablet:
    random = Random(generation)
    return await QueueTablet.boot(storage.tablet(INFO), generation, CONFIG, cache=BlobCache(), clock=SystemClock(), random=random)


async def _compact(partition: Partition) -> None:
    assert await compact(partition, clock=SystemClock(), random=Random(1), offload=asyncio.to_thread) is not None


def _bytes_of(result: ReadResult) -> bytes:
    parts = [
        os.pread(part.fd, part.length, part.offset) if isinstance(part, FilePiece) else bytes(part) for part in result.batches
    ]
    return b"".join(parts)


async def _fill(partition: Partition, kept: set[int], count: int, size: int = 60) -> None:
    for number in range(count):
        key = b"kept-%d" % number if number in kept else b"superseded"
        await partition.write(make_keyed_batch([(key, b"%d" % number * size)], timestamps=[number]))


@pytest.mark.parametrize("bytes_max", [1, 700, 1 << 20])
def test_an_offset_in_a_gap_gives_what_comes_next(tmp_path: Path, bytes_max: int) -> None:
    kept = {offset for offset in range(300) if offset % 7 < 2 and not 100 < offset < 200}

    async def scenario() -> None:
        async with _node(tmp_path) as storage:
            tablet = await _boot(storage, 1)
            partition = await tablet.add_partition(0)
            await _fill(partition, kept, 300)
            await _compact(partition)
            await tablet.stop()
            tablet = await _boot(storage, 2)
            partition = tablet.partition(0)
            left = sorted(kept | {299})
            for offset in range(300):
                result = await partition.read(offset, bytes_max, files=True)
                # Where the limit ends before the next mark does, what is between is cut in memory.
                assert any(isinstance(part, FilePiece) for part in result.batches) == (bytes_max > 1)
                assert result.size <= max(bytes_max, 400), "more than was asked for, and not a single batch"
                found = [record.offset for record in data_records(_bytes_of(result)) if record.offset >= offset]
                assert found == [at for at in left if offset <= at < result.next_offset]
                assert found, f"a client that reads at {offset} is given nothing it can use, and asks for it again"
            await tablet.stop()

    with mock.patch.object(piece, "MARK_EVERY", 300), mock.patch.object(head, "BODY_SIZE", 30_000):
        asyncio.run(scenario())


def test_pieces_that_a_reader_holds_outlive_the_body_they_are_of(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _node(tmp_path) as storage:
            tablet = await _boot(storage, 1)
            await _fill(await tablet.add_partition(0), set(range(0, 300, 5)), 300, 1000)
            await tablet.stop()
            tablet = await _boot(storage, 2)
            partition = tablet.partition(0)
            held = await partition.read(0, 1 << 20, files=True)
            assert any(isinstance(part, FilePiece) for part in held.batches)
            await _compact(partition)
            await tablet.tablet.collect_garbage()
            assert [record.offset for record in data_records(_bytes_of(held))] == list(range(held.next_offset))
            after = await partition.read(0, 1 << 20, files=True)
            assert after.size < held.size
            await tablet.stop()

    asyncio.run(scenario())
