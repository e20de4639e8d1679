"""A node's storage over one simulated disk, for tests of tablets: restarts, puts that are refused, delayed or lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from penstock.blob import (
    BlobId,
    BlobStorage,
    ChannelHistory,
    Content,
    Disk,
    Erasure,
    FilePiece,
    GetResult,
    GroupConfig,
    GroupOptions,
    Reply,
    Status,
    Submitted,
    TabletInfo,
    TabletStorage,
    VDiskOptions,
)
from penstock.queue import BlobCache, Partition, PartitionConfig, QueueTablet
from penstock.tablet import CHANNELS, KvOptions, KvTablet
from penstock.testing.batches import values_of
from penstock.testing.sim_disk import DiskFaults, SimDisk, SimPlatter
from penstock.testing.sim_loop import SimClock, SimLoop, current_loop, run_simulation

T = TypeVar("T")

LOG, DATA, PAGES = range(CHANNELS)
TABLET = 5
QUIET_GROUP = GroupOptions(vdisk=VDiskOptions(chunk_size=1 << 20, space_reserve=0), sync_interval=None, scrub_interval=None)
NEVER_S = 1e7
BY_HAND = KvOptions(
    snapshot_entries=1 << 40, snapshot_bytes=1 << 40, garbage_bytes=1 << 40, garbage_blobs=1 << 40, idle_garbage_s=NEVER_S
)
"""Snapshots and garbage only when the test asks for them."""


class Fate(NamedTuple):
    """What becomes of a put: whether it is carried out, what it is answered, and what it waits for before either."""

    carried_out: bool = True
    reply: Reply | None = None
    gate: asyncio.Event | None = None


FINE = Fate()
ERROR = Fate(carried_out=False, reply=Reply(Status.ERROR, "refused by the test"))
ANSWER_LOST = Fate(reply=Reply(Status.ERROR, "its answer was lost by the test"))
FULL = Fate(carried_out=False, reply=Reply(Status.OUT_OF_SPACE, "full by order of the test"))


class HookedStorage(TabletStorage):
    """A tablet's storage; a test sees every put and decides what becomes of it."""

    def __init__(self, storage: BlobStorage, info: TabletInfo) -> None:
        super().__init__(storage, info)
        self.puts: list[BlobId] = []
        self.fate: Callable[[BlobId], Fate] = lambda _: FINE
        self._decided: dict[BlobId, Fate] = {}
        self.collect_reply: Reply | None = None
        self.get_gate: asyncio.Event | None = None

    async def put(self, blob_id: BlobId, data: Content, *, deadline_s: float | None = None, from_reserve: bool = False) -> Reply:
        self.puts.append(blob_id)
        fate = self._decided.pop(blob_id, None) or self.fate(blob_id)
        if fate.gate is not None:
            await fate.gate.wait()
        if not fate.carried_out:
            assert fate.reply is not None
            return fate.reply
        reply = await super().put(blob_id, data, deadline_s=deadline_s, from_reserve=from_reserve)
        return fate.reply or reply

    async def put_all(self, blobs: Sequence[tuple[BlobId, Content]], *, from_reserve: bool = False) -> list[Reply]:
        return await asyncio.gather(*(self.put(blob_id, data, from_reserve=from_reserve) for blob_id, data in blobs))

    def submit(self, blobs: list[tuple[BlobId, Content]], done: Submitted, *, from_reserve: bool = False) -> None:
        """As a running tablet writes, unless the test has something against it."""
        fates = {blob_id: self.fate(blob_id) for blob_id, _ in blobs}
        if all(fate is FINE for fate in fates.values()):
            self.puts += (blob_id for blob_id, _ in blobs)
            super().submit(blobs, done, from_reserve=from_reserve)
        else:
            self._decided.update(fates)
            self._submit_by_task(blobs, done, from_reserve=from_reserve)

    async def get(
        self, blob_id: BlobId, offset: int = 0, length: int | None = None, *, deadline_s: float | None = None
    ) -> GetResult:
        if self.get_gate is not None:
            await self.get_gate.wait()
        return await super().get(blob_id, offset, length, deadline_s=deadline_s)

    async def collect_garbage(self, *args: Any, **named: Any) -> Reply:
        """Carried out in any case; `collect_reply` stands for an answer that was lost."""
        reply = await super().collect_garbage(*args, **named)
        return self.collect_reply or reply

    async def give_up(self) -> None:
        """End the puts that wait for what never comes."""
        for task in list(self._submitted):
            task.cancel()
        await asyncio.gather(*self._submitted, return_exceptions=True)

    def on(self, channel: int, fate: Fate) -> None:
        """The fate of all puts to a channel from now on."""
        self.fate = lambda blob: fate if blob.channel == channel else FINE


class SimNode:
    """One disk that stays, and the storage on it that comes and goes."""

    def __init__(self, *, loop: SimLoop | None = None, groups: int = 1) -> None:
        self._loop = loop or current_loop()
        self._random = self._loop.fork_random("node")
        self._groups = groups
        self.platters = [SimPlatter() for _ in range(groups)]
        self.faults = DiskFaults()
        self.clock = SimClock(self._loop)
        self.cache = BlobCache()
        self.hooked: HookedStorage
        self._hooked: list[HookedStorage] = []  # all of them: puts that never end must not be collected as garbage
        self.start()

    def start(self) -> None:
        """A new storage over the same disk, as after a crash of the process; its tablets went with it."""
        self._tablets: list[KvTablet | QueueTablet] = []
        configs = [GroupConfig(number, Erasure.NONE, (Path("nowhere"),)) for number in range(self._groups)]

        async def open_vdisk(config: GroupConfig, _: int) -> Disk:
            return SimDisk(self.platters[config.id], self._random, self.faults)

        self.storage = BlobStorage(configs, clock=self.clock, random=self._random, options=QUIET_GROUP, open_vdisk=open_vdisk)

    def tablet(self, tablet: int = TABLET) -> HookedStorage:
        """A tablet's own view of the storage; the latest is `hooked`."""
        info = TabletInfo(tablet, tuple(ChannelHistory([(0, 0)]) for _ in range(CHANNELS)))
        self.hooked = HookedStorage(self.storage, info)
        self._hooked.append(self.hooked)
        return self.hooked

    async def kv(self, generation: int, options: KvOptions = BY_HAND) -> KvTablet:
        """A KV tablet of this generation."""
        tablet = await KvTablet.boot(self.tablet(), generation, random=self._random, options=options)
        self._tablets.append(tablet)
        return tablet

    async def queue(self, generation: int, config: PartitionConfig | None = None, options: KvOptions = BY_HAND) -> QueueTablet:
        """A PQ tablet of this generation."""
        tablet = await QueueTablet.boot(
            self.tablet(),
            generation,
            config or PartitionConfig(),
            cache=self.cache,
            clock=self.clock,
            random=self._random,
            options=options,
        )
        self._tablets.append(tablet)
        return tablet

    async def close(self) -> None:
        """Stop every tablet, by force if it waits for what never comes, and the storage."""
        for tablet in self._tablets:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(60):
                    await tablet.stop()
        for hooked in self._hooked:
            await hooked.give_up()
        await self.storage.close()

    async def blobs(self, channel: int, tablet: int = TABLET) -> list[BlobId]:
        """What the storage holds of a tablet's channel."""
        info = TabletInfo(tablet, tuple(ChannelHistory([(0, 0)]) for _ in range(CHANNELS)))
        everything = (BlobId(tablet, channel, 0, 0, 0, 0), BlobId(tablet, channel, (1 << 32) - 1, 0, 0, 0))
        found = await TabletStorage(self.storage, info).range(*everything)
        assert found.status is Status.OK, found.reason
        return [blob for blob, _ in found.blobs]


def on_node(scenario: Callable[[SimNode], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario on a new node."""

    async def run() -> T:
        node = SimNode()
        result = await scenario(node)
        await node.close()
        return result

    return run_simulation(run())


async def turns(count: int = 50) -> None:
    """Let everything that is ready run; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


def content(size: int, seed: int = 0) -> bytes:
    """Bytes that no two values share by chance."""
    return Random(f"{size}/{seed}").randbytes(size)


async def history(partition: Partition, bytes_max: int = 10_000) -> list[tuple[int, bytes]]:
    """All that a reader who starts at the beginning sees, from the start offset on: (offset, value)."""
    found: list[tuple[int, bytes]] = []
    offset = partition.start_offset
    while offset < partition.end_offset:
        result = await partition.read(offset, bytes_max)
        assert result.next_offset > offset
        parts = [part for part in result.batches if not isinstance(part, FilePiece)]
        assert len(parts) == len(result.batches)
        found += values_of(b"".join(parts))
        offset = result.next_offset
    return [message for message in found if message[0] >= partition.start_offset]
