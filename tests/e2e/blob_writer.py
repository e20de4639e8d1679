"""A process that writes to a group until it is killed, and tells on stdout what it was promised: one line a promise.

    open                              the group serves
    put ID                            the blob was acknowledged
    collect COUNTER BARRIER KEEP DROP the command is about to be sent; ids are joined by commas, - stands for none
    collected COUNTER                 the command was acknowledged

Run as `python -m tests.e2e.blob_writer KIND DIRECTORY GENERATION SEED`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from pathlib import Path
from random import Random

from penstock.blob import BlobId, Disk, Erasure, GroupOptions, GroupProxy, LocalDisk, LocalGroup, Status, VDiskOptions
from penstock.core.clock import SystemClock

GROUP = 0x82000000
TABLET = 1
CHANNEL = 0
WRITERS = 6
SIZE_MAX = 2 << 20
COLLECT_EVERY_S = 0.03
BLOBS_BEHIND_BARRIER = 24

# Small, so that a second of writing goes through many chunks, checkpoints and reclaimings.
VDISK_OPTIONS = VDiskOptions(chunk_size=2 << 20, checkpoint_bytes=2 << 20, checkpoint_records=40, space_reserve=0)


def data_of(blob_id: BlobId) -> bytes:
    """The only bytes that a blob of this id may have."""
    return hashlib.shake_128(blob_id.pack()).digest(blob_id.size)


def group_life(kind: Erasure, directory: Path, *, missing: frozenset[int] = frozenset(), interval: float | None) -> LocalGroup:
    """The group over one directory a disk; those that are missing cannot be opened. `interval` is that of all background work."""

    async def open_disk(order: int) -> Disk:
        if order in missing:
            raise FileNotFoundError(f"disk {order} is gone")
        return await LocalDisk.open(directory / str(order))

    formed = directory / "formed"

    async def note_formed() -> None:
        formed.touch()

    options = GroupOptions(vdisk=VDISK_OPTIONS, sync_interval=interval, scrub_interval=interval)
    return LocalGroup(
        GROUP,
        1,
        kind,
        open_disk,
        clock=SystemClock(),
        random=Random(os.urandom(16)),
        options=options,
        on_formed=None if formed.exists() else note_formed,
    )


class Writer:
    """Several callers that put blobs, and one that moves the barrier behind them."""

    def __init__(self, proxy: GroupProxy, generation: int, random: Random) -> None:
        self._proxy = proxy
        self._generation = generation
        self._random = random
        self._step = 0
        self._in_flight: set[int] = set()
        self._acknowledged: list[BlobId] = []
        self._kept: list[BlobId] = []

    async def run(self) -> None:
        """Write for ever."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._put_blobs(number))
            group.create_task(self._collect())

    async def _put_blobs(self, number: int) -> None:
        while True:
            self._step += 1
            step = self._step
            self._in_flight.add(step)
            size = int(SIZE_MAX ** self._random.random())
            blob_id = BlobId(TABLET, CHANNEL, self._generation, step, number, size)
            reply = await self._proxy.put(blob_id, data_of(blob_id))
            if reply.status is not Status.OK:
                raise RuntimeError(f"put {blob_id}: {reply}")
            say(f"put {blob_id}")
            self._acknowledged.append(blob_id)
            self._in_flight.remove(step)

    async def _collect(self) -> None:
        counter = 0
        while True:
            await asyncio.sleep(COLLECT_EVERY_S * self._random.random() * 2)
            limit = min(self._in_flight, default=self._step) - 1 - self._random.randrange(2 * BLOBS_BEHIND_BARRIER)
            behind = [blob_id for blob_id in self._acknowledged if blob_id.step <= limit]
            if not behind:
                continue
            counter += 1
            keep = self._random.sample(behind, self._random.randrange(2))
            drop = self._random.sample(self._kept, self._random.randrange(2)) if self._kept else []
            say(f"collect {counter} {self._generation}:{limit} {_joined(keep)} {_joined(drop)}")
            barrier = (self._generation, limit)
            reply = await self._proxy.collect_garbage(
                TABLET, CHANNEL, self._generation, counter, barrier=barrier, keep=keep, do_not_keep=drop
            )
            if reply.status is not Status.OK:
                raise RuntimeError(f"collect {counter}: {reply}")
            say(f"collected {counter}")
            self._acknowledged = [blob_id for blob_id in self._acknowledged if blob_id.step > limit]
            self._kept = [blob_id for blob_id in (*self._kept, *keep) if blob_id not in drop]


def say(line: str) -> None:
    """Unbuffered: what the parent has read when this process dies is all that this process was promised."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def _joined(blob_ids: list[BlobId]) -> str:
    return ",".join(map(str, blob_ids)) or "-"


async def main(kind: Erasure, directory: Path, generation: int, seed: int) -> None:
    """Open the group as a new generation of the tablet and write."""
    life = group_life(kind, directory, interval=0.02)
    await life.start()
    reply = await life.proxy.block(TABLET, generation, generation)
    if reply.status is not Status.OK:
        raise RuntimeError(f"block {generation}: {reply}")
    say("open")
    await Writer(life.proxy, generation, Random(seed)).run()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(Erasure(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
