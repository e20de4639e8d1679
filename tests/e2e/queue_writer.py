"""A process that writes to the partitions of a tablet until it is killed, and tells on stdout what it was promised.

    open                                  the tablet serves
    ack PARTITION SOURCE NUMBER OFFSET    the batch of this number was acknowledged at this offset
    dup PARTITION SOURCE NUMBER OFFSET    it was acknowledged as a duplicate of an earlier write

Run as `python -m tests.e2e.queue_writer DIRECTORY GENERATION NEXT`, where NEXT is a JSON list of [partition, source, number]: the
first batch of each source that was not acknowledged to an earlier process. It and those after it are sent, perhaps again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from penstock.blob import BlobStorage, ChannelHistory, Erasure, GroupConfig, GroupOptions, TabletInfo, VDiskOptions
from penstock.core.clock import SystemClock
from penstock.queue import BlobCache, Partition, PartitionConfig, QueueTablet, SourceWrite
from penstock.tablet import CHANNELS, KvOptions
from penstock.testing.batches import make_batch

GROUP = 0
TABLET = 7
PARTITIONS = 3
SOURCES = 3
WINDOW = 3
MESSAGES_MAX = 4
VALUE_BYTES_MAX = 60_000

# Small, so that every life goes through compactions, snapshots and collections.
VDISK_OPTIONS = VDiskOptions(chunk_size=4 << 20, checkpoint_bytes=4 << 20, checkpoint_records=500, space_reserve=0)
GROUP_OPTIONS = GroupOptions(vdisk=VDISK_OPTIONS, sync_interval=0.02, scrub_interval=None)
KV_OPTIONS = KvOptions(snapshot_entries=40, snapshot_bytes=20_000, garbage_bytes=200_000, garbage_blobs=20, idle_garbage_s=0.05)
CONFIG = PartitionConfig(low_watermark=300_000)


def values_in(partition: int, source: int, number: int) -> list[bytes]:
    """The values of a source's batch: always the same for its number."""
    digest = hashlib.sha256(f"{partition} {source} {number}".encode()).digest()
    size = int(VALUE_BYTES_MAX ** (digest[1] / 255))
    tail = f" {partition} {source} {number}".encode()
    return [hashlib.shake_128(digest + bytes([at])).digest(size) + tail for at in range(1 + digest[0] % MESSAGES_MAX)]


@asynccontextmanager
async def queue_tablet(directory: Path, generation: int) -> AsyncIterator[QueueTablet]:
    """The tablet over one directory, with every write on disk before it is acknowledged."""
    clock, random = SystemClock(), Random(os.urandom(16))
    groups = [GroupConfig(GROUP, Erasure.NONE, (directory,))]
    storage = BlobStorage(groups, clock=clock, random=random, durable=True, options=GROUP_OPTIONS)
    info = TabletInfo(TABLET, tuple(ChannelHistory([(0, GROUP)]) for _ in range(CHANNELS)))
    tablet = await QueueTablet.boot(
        storage.tablet(info), generation, CONFIG, cache=BlobCache(1 << 20), clock=clock, random=random, options=KV_OPTIONS
    )
    try:
        yield tablet
    finally:
        await tablet.stop()
        await storage.close()


async def write_from(partition: Partition, source: int, number: int) -> None:
    """Write a source's batches for ever, a few at a time, in order."""
    while True:
        async with asyncio.TaskGroup() as window:
            for at in range(number, number + WINDOW):
                window.create_task(_write(partition, source, at))
        number += WINDOW


async def _write(partition: Partition, source: int, number: int) -> None:
    batch = make_batch(values_in(partition.number, source, number))
    # Numbers of messages have gaps between batches, so that a batch has the same ones however long those before it were.
    written = await partition.write(batch, SourceWrite(b"source-%d" % source, number * MESSAGES_MAX))
    say(f"{'dup' if written.duplicate else 'ack'} {partition.number} {source} {number} {written.base_offset}")


def say(line: str) -> None:
    """Unbuffered: what the parent has read when this process dies is all that this process was promised."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


async def main(directory: Path, generation: int, next_numbers: list[tuple[int, int, int]]) -> None:
    """Boot the next generation of the tablet and write."""
    async with queue_tablet(directory, generation) as tablet:
        for number in range(PARTITIONS):
            if number not in tablet.partitions:
                await tablet.add_partition(number)
        say("open")
        async with asyncio.TaskGroup() as writers:
            for number, source, batch in next_numbers:
                writers.create_task(write_from(tablet.partition(number), source, batch))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])))
