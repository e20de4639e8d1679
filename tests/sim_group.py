"""A whole group over simulated disks, in one process that can be stopped, killed and started again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from penstock.blob import BlobId, Disk, Erasure, GroupOptions, GroupProxy, LocalGroup, Status, VDiskOptions
from penstock.testing.sim_disk import DiskFaults, SimDisk, SimPlatter
from penstock.testing.sim_loop import SimClock, SimLoop, SimProcess, current_loop, run_simulation

T = TypeVar("T")

GROUP_ID = 0x82000000
SMALL = VDiskOptions(chunk_size=1 << 16, space_reserve=0, checkpoint_bytes=1 << 18, checkpoint_records=500)
BY_HAND = GroupOptions(vdisk=SMALL, sync_interval=None, scrub_interval=None)
"""Nothing happens in the background; chunks are small, so that there are many."""


def options(vdisk: VDiskOptions) -> GroupOptions:
    """Rounds by hand, over VDisks with options of their own."""
    return GroupOptions(vdisk=vdisk, sync_interval=None, scrub_interval=None)


def payload(size: int, seed: int = 0) -> bytes:
    """Bytes that no two blobs share by chance."""
    return Random(f"{size}/{seed}").randbytes(size)


def blob_at(step: int, size: int, *, generation: int = 1, cookie: int = 0, channel: int = 0, tablet: int = 1) -> BlobId:
    """The id of a blob; most tests vary the step alone."""
    return BlobId(tablet, channel, generation, step, cookie, size)


class SimGroup:
    """Platters that stay, and the life of a group on them that comes and goes. Disks in `absent` cannot be opened."""

    def __init__(self, erasure: Erasure, settings: GroupOptions = BY_HAND, *, loop: SimLoop | None = None) -> None:
        self.erasure = erasure
        self.orders = range(erasure.shape.disks)
        self.platters = [SimPlatter() for _ in self.orders]
        self.faults = [DiskFaults() for _ in self.orders]
        self.absent: set[int] = set()
        self.is_formed = False
        self._settings = settings
        self._loop = loop or current_loop()
        self._random = self._loop.fork_random("group")
        self._incarnations = 0

    @property
    def proxy(self) -> GroupProxy:
        """The commands of the group."""
        return self.life.proxy

    async def start(self) -> SimGroup:
        """Open the group in a process of its own."""
        self._incarnations += 1
        self.process = SimProcess(self._loop, f"group-{self._incarnations}")
        self.life = LocalGroup(
            GROUP_ID,
            1,
            self.erasure,
            self.open_disk,
            clock=SimClock(self._loop),
            random=self._random,
            options=self._settings,
            on_formed=None if self.is_formed else self._note_formed,
        )
        await self.do(self.life.start())
        return self

    async def _note_formed(self) -> None:
        self.is_formed = True

    async def open_disk(self, order: int) -> Disk:
        """One opening of a platter."""
        if order in self.absent:
            raise OSError(5, "the disk is not there")
        return SimDisk(self.platters[order], self._random, self.faults[order])

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something inside the process, so that it dies with it."""
        return await self.process.call(work)

    async def restart(self, *, crash: bool = False) -> SimGroup:
        """Stop or kill the process and start another."""
        if crash:
            self.process.crash()
        else:
            await self.do(self.life.stop())
        return await self.start()

    async def settle(self) -> None:
        """Wait for requests in flight, and sync every disk."""
        await self.do(self.life.group.drain())
        await self.do(self.life.sync())
        await self.do(self.life.sync())

    async def refill(self) -> None:
        """Let every disk get what it should hold, and give up what it should not."""
        await self.settle()
        await self.do(self.life.replicate())
        await self.do(self.life.replicate())

    async def take_out(self, *orders: int) -> None:
        """Disks fail."""
        for order in orders:
            self.absent.add(order)
            await self.do(self.life.take_out(order))

    async def put_in(self, *orders: int) -> None:
        """Disks come back as they are; whatever they missed they still miss."""
        for order in orders:
            self.absent.discard(order)
            await self.do(self.life.put_in(order))

    async def put(self, blob_id: BlobId, data: bytes) -> Status:
        """The status of a put."""
        return (await self.do(self.proxy.put(blob_id, data))).status

    async def get(self, blob_id: BlobId) -> tuple[Status, bytes]:
        """The status and data of a get of the whole blob."""
        result = await self.do(self.proxy.get(blob_id))
        return result.status, bytes(result.data)

    async def store(self, steps: range, size: int = 1000) -> dict[BlobId, bytes]:
        """Put a blob at each step, all of them acknowledged."""
        blobs = {blob_at(step, size): payload(size, step) for step in steps}
        for blob_id, data in blobs.items():
            assert await self.put(blob_id, data) is Status.OK
        await self.do(self.life.group.drain())
        return blobs

    async def expect(self, blobs: dict[BlobId, bytes]) -> None:
        """Every blob reads as it was written."""
        for blob_id, data in blobs.items():
            assert await self.get(blob_id) == (Status.OK, data), blob_id

    async def holders(self, blob_id: BlobId) -> dict[int, int]:
        """Which disks hold sound parts of a blob: masks of parts by order number."""
        packed = blob_id.pack()
        found: dict[int, int] = {}
        for order, vdisk in self.life.vdisks.items():
            page = await vdisk.listing(
                self.life.group.generation, packed[:9], packed[9:21], packed[9:21] + b"\0", reverse=False, limit=1
            )
            if page.blobs and page.blobs[0].parts:
                found[order] = page.blobs[0].parts
        return found

    def subgroup(self, blob_id: BlobId) -> tuple[int, ...]:
        """Order numbers of the blob's disks, by subgroup index."""
        return self.life.group.subgroup(blob_id.pack()[:21])


def run_group(
    erasure: Erasure, scenario: Callable[[SimGroup], Coroutine[Any, Any, T]], settings: GroupOptions = BY_HAND, *, seed: int = 0
) -> T:
    """Run a scenario on a new group that has started, and stop the group at its end."""

    async def run() -> T:
        group = await SimGroup(erasure, settings).start()
        result = await scenario(group)
        await group.do(group.life.stop())
        return result

    return run_simulation(run(), seed=seed)
