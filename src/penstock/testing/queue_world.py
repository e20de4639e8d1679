"""The stage of the partition simulation: BlobStorage over faulty disks, the wire to it, and small sizes to keep it in motion."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest import mock

from penstock.blob import (
    BlobId,
    BlobStorage,
    ChannelHistory,
    Confirmations,
    Content,
    DiscoverResult,
    Disk,
    Erasure,
    FilePiece,
    GetResult,
    GroupConfig,
    RangeResult,
    Reply,
    Status,
    TabletInfo,
    TabletStorage,
    contiguous,
)
from penstock.blob.blob_id import CHANNEL_KEY_SIZE
from penstock.blob.channel import place_of
from penstock.blob.quorum import recoverable
from penstock.blob.topology import main_part
from penstock.blob.vdisk import VDisk
from penstock.core.errors import ClosedError
from penstock.queue import compaction, head, keying, partition, partition_writer, piece, tail
from penstock.tablet import CHANNELS, blob_contents, garbage, kv_tablet, sequencer
from penstock.testing.fault_ledger import InvariantError, Ledger
from penstock.testing.fault_nemesis import Fault, Nemesis
from penstock.testing.fault_world import GROUP_ID, STARTS_MAX, World, draw_options
from penstock.testing.sim_loop import ProcessDiedError, SimClock, SimLoop, SimProcess, outside_context

T = TypeVar("T")

TABLET = 5
LISTING_PATIENCE = 50.0
INFO = TabletInfo(TABLET, tuple(ChannelHistory([(0, GROUP_ID)]) for _ in range(CHANNELS)))


# Limits of the product, and smaller ones at which the same things happen every few messages.
SIZES: dict[tuple[Any, str], tuple[Any, ...]] = {
    (sequencer, "INLINE_MAX"): (150, 1000),
    (keying, "INLINE_MAX"): (100, 300, keying.INLINE_MAX),
    (blob_contents, "DATA_BLOB_MAX"): (1000, 5000, blob_contents.DATA_BLOB_MAX),
    (sequencer, "COMMIT_BYTES_MAX"): (500, sequencer.COMMIT_BYTES_MAX),
    (kv_tablet, "PAGE_BYTES"): (500, 5000, kv_tablet.PAGE_BYTES),
    (garbage, "FLAGS_AT_ONCE"): (1, 4, garbage.FLAGS_AT_ONCE),
    (head, "LEVELS"): ((150, 1500), head.LEVELS),
    (head, "BODY_SIZE"): (900, 5000, 40_000),
    (piece, "MARK_EVERY"): (1, 300, piece.MARK_EVERY),
    (partition_writer, "ENTRY_BYTES_MAX"): (600, partition_writer.ENTRY_BYTES_MAX),
    (partition_writer, "APPEND_BYTES_MAX"): (0, 400, 3000, partition_writer.APPEND_BYTES_MAX),
    (tail, "TAIL_BYTES_MAX"): (500, 5000, tail.TAIL_BYTES_MAX),
    (partition, "SOURCES_AT_ONCE"): (2, partition.SOURCES_AT_ONCE),
    (piece, "JOIN_MAX"): (1, 300, piece.JOIN_MAX),
    (piece, "BUFFER_BYTES"): (500, piece.BUFFER_BYTES),
    (piece, "PINNED_MAX"): (1, piece.PINNED_MAX),
    (blob_contents, "VECTOR_BYTES"): (700, blob_contents.VECTOR_BYTES),
    (compaction, "STAGE_BYTES"): (200, 3000, compaction.STAGE_BYTES),
}


@contextmanager
def drawn_sizes(rng: Random) -> Iterator[None]:
    """Let the modules use limits that are drawn from the above."""
    with ExitStack() as stack:
        for (module, name), choices in SIZES.items():
            stack.enter_context(mock.patch.object(module, name, rng.choice(choices)))
        yield


class QueueWorld(World):
    """A node with BlobStorage on it, in a process that comes and goes."""

    storage: BlobStorage

    def __init__(self, loop: SimLoop, erasure: Erasure, rng: Random) -> None:
        options = dataclasses.replace(
            draw_options(rng),
            # Disks that talk to each other more often than this take most of a run, and are the subject of the other simulation.
            sync_interval=rng.choice([0.1, 0.5, 1.0]),
            replication_interval=rng.choice([1.0, 10.0]),
            scrub_interval=rng.choice([0.5, 5.0]),
        )
        super().__init__(loop, erasure, options)

    async def start(self, crash_after: int | None = None) -> None:
        """Start the storage in a new process, again if it crashes on the way (`crash_after` steps)."""
        for _ in range(STARTS_MAX):
            self._incarnation += 1
            process = SimProcess(self.loop, f"node-{self._incarnation}")
            if crash_after is not None:
                process.crash_at_step(crash_after)
            disks = tuple(Path(f"disk-{order}") for order in self.orders)
            storage = BlobStorage(
                clock=SimClock(self.loop),
                random=self._life_random,
                options=self.options,
                open_vdisk=self._open_vdisk,
            )
            config = GroupConfig(GROUP_ID, self.erasure, disks, self.generation)
            storage.add_group(config, None if self.formed else self.note_formed)
            try:
                life = await process.call(storage.life(GROUP_ID))
            except ProcessDiedError:
                crash_after = None
                continue
            # All at once: until now the process is the one that died, in which the group that died with it cannot be called.
            self.process, self.storage, self.life = process, storage, life
            self.note("started")
            self.process.on_crash(self._went_down)
            self.down.clear()
            self.up.set()
            return
        raise InvariantError("the storage does not start")

    async def stop(self) -> None:
        """End the process as on a shutdown."""
        self.up.clear()
        await self.process.call(self.storage.close())

    async def move(self, order: int) -> None:
        """Let a VDisk live on a new disk, once the process is up: one that starts has read the configuration already."""
        await self.up.wait()
        await super().move(order)

    async def _open_vdisk(self, _: GroupConfig, order: int) -> Disk:
        return await self.open_disk(order)


class QueueNemesis(Nemesis):
    """The nemesis of the blob simulation, where acknowledged data is never destroyed beyond the fail model."""

    def __init__(self, world: QueueWorld, rng: Random) -> None:
        super().__init__(world, Ledger(world.erasure, (), ()), rng)
        # Work on many disks is long; the fewer faults, the more of a tablet's life there is between two.
        self._calm = rng.choice([0.05, 0.2, 1.0]) * len(world.orders) ** 0.5
        self._crash_rate = rng.choice([0.1, 0.3, 0.6])

    def _draw_kinds(self) -> list[Fault]:
        kinds: list[Fault] = [self._break, self._err, self._slow, self._fill, self._take_out]
        if self._world.erasure is not Erasure.NONE:
            kinds += [self._wipe, self._move, self._rot, self._roll_back]
        return self._random.sample(kinds, self._random.randint(1, len(kinds)))

    def _is_sound(self, vdisk: VDisk) -> bool:
        return super()._is_sound(vdisk) and not any(self._misses(vdisk, prefix) for prefix in self._stored())

    def _stored(self) -> set[bytes]:
        """Every blob that any disk has a part of."""
        return {
            channel_key + key
            for other in self._world.vdisks().values()
            for channel_key, channel in other.index.channels.items()
            for key in channel.blobs
        }

    def _misses(self, vdisk: VDisk, prefix: bytes) -> bool:
        """Whether the blob is there and the disk should have a part of it, but has not."""
        channel = vdisk.index.channel(prefix[:CHANNEL_KEY_SIZE])
        if channel.is_garbage(prefix[CHANNEL_KEY_SIZE:]):
            return False
        orders = self._world.life.group.subgroup(prefix)
        held = [self._held(order, prefix) for order in orders]
        part = main_part(self._world.erasure, orders.index(vdisk.order))
        if not part or held[orders.index(vdisk.order)] >> part - 1 & 1:
            return False
        return recoverable(self._world.erasure, held)

    def _held(self, order: int, prefix: bytes) -> int:
        vdisk = self._world.vdisks().get(order)
        channel = None if vdisk is None else vdisk.index.channels.get(prefix[:CHANNEL_KEY_SIZE])
        places = () if channel is None else map(place_of, channel.entries(prefix[CHANNEL_KEY_SIZE:]))
        return sum({1 << place.part - 1 for place in places if place.part})


@dataclasses.dataclass(slots=True)
class Wire:
    """How calls to the storage travel when a tablet runs on another node: late, some lost, some answered too late."""

    delay_s: float
    stray_rate: float  # of calls that are late by up to `stray_s`, or whose answer is
    stray_s: float
    timeout_s: float
    is_quiet: bool = False  # nothing strays any more


class RemoteStorage(TabletStorage):
    """A tablet's view of storage on another node. A call that gets no answer in time is ERROR, and may still be carried out."""

    def __init__(
        self,
        world: QueueWorld,
        wire: Wire,
        rng: Random,
        info: TabletInfo = INFO,
        confirmations: Confirmations | None = None,
    ) -> None:
        super().__init__(world.storage, info)
        self._confirmations = confirmations
        self._world = world
        self._wire = wire
        self._random = rng
        self._carrying: set[asyncio.Task[None]] = set()

    @property
    def confirmations(self) -> Confirmations | None:
        return self._confirmations

    async def blocked_generations(self, tablets: Sequence[int]) -> list[int] | None:
        """The generation up to which each tablet is blocked, as a node asks for all that it runs; None if no answer comes."""

        async def ask(_: TabletStorage) -> list[int] | None:
            return await (await self._world.storage.proxy(self.log_group)).blocked_generations(tablets)

        return await self._ask(ask)

    async def block(self, generation: int, issuer: int) -> Reply:
        return await self._ask(lambda real: real.block(generation, issuer)) or Reply(Status.ERROR, "no answer")

    async def put(self, blob_id: BlobId, data: Content, *, deadline_s: float | None = None, from_reserve: bool = False) -> Reply:
        kept = bytes(contiguous(data))
        answer = await self._ask(lambda real: real.put(blob_id, kept, deadline_s=deadline_s, from_reserve=from_reserve))
        return answer or Reply(Status.ERROR, "no answer")

    async def put_all(self, blobs: Sequence[tuple[BlobId, Content]], *, from_reserve: bool = False) -> list[Reply]:
        return await asyncio.gather(*(self.put(blob_id, data, from_reserve=from_reserve) for blob_id, data in blobs))

    async def get(
        self, blob_id: BlobId, offset: int = 0, length: int | None = None, *, deadline_s: float | None = None
    ) -> GetResult:
        reply = await self._ask(lambda real: real.get(blob_id, offset, length, deadline_s=deadline_s))
        return reply or GetResult(Status.ERROR, b"", "no answer")

    async def get_many(self, blobs: Sequence[BlobId]) -> list[GetResult]:
        reply = await self._ask(lambda real: real.get_many(blobs))
        return reply or [GetResult(Status.ERROR, b"", "no answer")] * len(blobs)

    async def collect_garbage(
        self,
        channel: int,
        generation: int,
        counter: int,
        *,
        barrier: tuple[int, int] | None = None,
        hard: bool = False,
        keep: Iterable[BlobId] = (),
        do_not_keep: Iterable[BlobId] = (),
    ) -> Reply:
        kept, dropped = tuple(keep), tuple(do_not_keep)
        reply = await self._ask(
            lambda real: real.collect_garbage(
                channel, generation, counter, barrier=barrier, hard=hard, keep=kept, do_not_keep=dropped
            )
        )
        return reply or Reply(Status.ERROR, "no answer")

    async def range(
        self,
        first: BlobId,
        last: BlobId,
        *,
        with_data: bool = False,
        with_unreadable: bool = False,
        limit: int | None = None,
    ) -> RangeResult:
        reply = await self._ask(
            lambda real: real.range(first, last, with_data=with_data, with_unreadable=with_unreadable, limit=limit),
            patience=LISTING_PATIENCE,
        )
        return reply or RangeResult(Status.ERROR, (), "no answer")

    async def discover(self, *, min_generation: int = 0, limit: int = 1, with_data: bool = True) -> DiscoverResult:
        reply = await self._ask(lambda real: real.discover(min_generation=min_generation, limit=limit, with_data=with_data))
        return reply or DiscoverResult(Status.ERROR, -1, (), "no answer")

    def pieces(self, blob_id: BlobId, offset: int, length: int) -> list[FilePiece] | None:
        return None

    async def _ask(self, make: Callable[[TabletStorage], Coroutine[Any, Any, T]], *, patience: float = 1.0) -> T | None:
        """The answer; None if there is none in time."""
        loop = self._world.loop
        reply: asyncio.Future[T | None] = loop.create_future()
        self._carrying.add(carrying := loop.create_task(self._carry(make, reply), name="wire", context=outside_context()))
        carrying.add_done_callback(self._carrying.discard)
        done, _ = await asyncio.wait([reply], timeout=patience * self._wire.timeout_s)
        return reply.result() if done else None

    async def _carry(self, make: Callable[[TabletStorage], Coroutine[Any, Any, T]], reply: asyncio.Future[T | None]) -> None:
        await asyncio.sleep(self._draw_delay())
        try:
            answer = await self._world.process.call(make(self._world.storage.tablet(self.info)))
        except (ProcessDiedError, ClosedError):
            answer = None
        await asyncio.sleep(self._draw_delay())
        if not reply.done():
            reply.set_result(answer)

    def _draw_delay(self) -> float:
        strays = not self._wire.is_quiet and self._random.random() < self._wire.stray_rate
        stray = self._wire.stray_s if strays else 0.0
        return self._random.uniform(0, self._wire.delay_s) + self._random.uniform(0, stray)
