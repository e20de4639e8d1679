"""Compaction killed at every step: the partition is as before a replacement or as after it, and the same in the end.

A client goes through a fixed script of writes, transactions, compactions and reads; after a crash it repeats what was not
acknowledged. Whatever a reader is shown on the way must agree with the model, and what a run without trouble leaves, every run
must leave.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from random import Random
from unittest import mock

import pytest

from penstock.queue import (
    BlobCache,
    Partition,
    PartitionConfig,
    QueueTablet,
    SourceWrite,
    compact,
    compaction,
    head,
    in_place,
    piece,
)
from penstock.tablet import KvOptions
from penstock.testing.batches import KeyedRecord, make_keyed_batch, make_marker
from penstock.testing.sim_loop import ProcessDiedError, SimProcess, current_loop, run_simulation
from tests.keyed_log import KeyedLog, Written, read_committed, read_log
from tests.sim_tablet import BY_HAND, SimNode, content

CONFIG = PartitionConfig(low_watermark=900, is_compacted=True, min_dirty_ratio=0.0, delete_retention_ms=1000)
BUSY = KvOptions(snapshot_entries=5, snapshot_bytes=1 << 30, garbage_blobs=3, idle_garbage_s=0.05)
"""Snapshots and collections come often, in the background."""


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with (
        mock.patch.object(head, "BODY_SIZE", 2000),
        mock.patch.object(head, "LEVELS", (150, 500)),
        mock.patch.object(piece, "MARK_EVERY", 300),
        mock.patch.object(compaction, "STAGE_BYTES", 1100),
    ):
        yield


class Client:
    """Carries the script out; every write has a number, so that sent again it is there once."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.tablet: QueueTablet
        self.log = KeyedLog()
        self._noted: set[int] = set()

    @property
    def partition(self) -> Partition:
        """The partition as it runs now."""
        return self.tablet.partition(0)

    async def write(self, number: int, keys: bytes, size: int | None, producer: int | None = None) -> None:
        """A batch with a message for each of the keys."""
        pairs = [(keys[at : at + 1], None if size is None else content(size, number)) for at in range(len(keys))]
        identity = {} if producer is None else {"attributes": 0x10, "producer_id": producer, "producer_epoch": 0}
        raw = make_keyed_batch(pairs, timestamps=[number], **identity)
        result = await self.partition.write(raw, SourceWrite(b"script", number * 100))
        if number not in self._noted:
            self._noted.add(number)
            base = self.log.append([Written(key, value, number, producer) for key, value in pairs])
            assert result.base_offset == base

    async def end(self, number: int, producer: int, *, commit: bool) -> None:
        """The marker of a transaction."""
        raw = make_marker(commit=commit, producer_id=producer, timestamp=number)
        await self.partition.write(raw, SourceWrite(b"script", number * 100))
        if number not in self._noted:
            self._noted.add(number)
            self.log.end_transaction(producer, commit=commit)

    async def compact(self, map_bytes: int = 1 << 20) -> None:
        """A pass, if one is due."""
        await self.partition.roll_head()
        await compact(self.partition, clock=self.node.clock, random=Random(1), offload=in_place, map_bytes=map_bytes)

    async def check(self) -> list[KeyedRecord]:
        """What readers are shown is right."""
        found = await read_log(self.partition, 700)
        now_ms = int(self.node.clock.wall() * 1000)
        self.log.judge(self.partition, found, now_ms=now_ms + 10_000_000)  # when a tombstone went is not known after a crash
        assert await read_committed(self.partition, 700) == self.log.committed_view(found)
        return found


Event = Callable[[Client], Awaitable[object]]


def _script() -> list[Event]:
    return [
        lambda client: client.write(1, b"abc", 300),
        lambda client: client.write(2, b"ad", 400),
        lambda client: client.write(3, b"xy", 500, producer=7),
        lambda client: client.end(4, 7, commit=False),
        lambda client: client.write(5, b"ab", 350),
        lambda client: client.compact(),
        lambda client: client.write(6, b"c", None),
        lambda client: client.write(7, b"de", 600, producer=8),
        lambda client: client.compact(),
        lambda client: client.end(8, 8, commit=True),
        lambda client: client.write(9, b"fghijklmnopq", 100),
        lambda client: client.compact(map_bytes=1),
        lambda client: client.compact(map_bytes=1),
        lambda client: client.check(),
        lambda client: client.write(10, b"fgh", 700),
        lambda client: client.compact(),
    ]


class Run:
    """The script on a node of its own, killed at steps of one process after another."""

    def __init__(self, options: KvOptions) -> None:
        self.node = SimNode()
        self.client = Client(self.node)
        self._options = options
        self._generation = 0
        self.steps = 0
        self._start_process()

    def _start_process(self) -> None:
        self.process = SimProcess(current_loop(), f"node-{self._generation}")

    async def boot(self) -> None:
        """The next generation takes over."""
        self._generation += 1
        self.node.cache = BlobCache(bytes_max=4000)
        tablet = await self.node.queue(self._generation, CONFIG, self._options)
        if not tablet.partitions:
            await tablet.add_partition(0)
        self.client.tablet = tablet

    async def go(self, crash_at: tuple[int, ...] = ()) -> list[KeyedRecord]:
        """Carry the script out; what is left in the end, when two more passes have come to nothing new."""
        crashes = list(crash_at)
        script = _script()
        at = 0
        is_up = False
        self._arm(crashes)
        while at < len(script):
            try:
                if not is_up:
                    await self.process.call(self.boot())
                    is_up = True
                    await self.process.call(self._checked())
                await self.process.call(self._awaited(script[at]))
                at += 1
            except ProcessDiedError:
                is_up = False
                self._restart()
                self._arm(crashes)
        self.steps = self.process.steps
        self._restart()
        return await self.process.call(self._outcome())

    def _restart(self) -> None:
        self.process.crash()
        self._start_process()
        self.node.start()

    def _arm(self, crashes: list[int]) -> None:
        if crashes:
            self.process.crash_at_step(crashes.pop(0))

    async def _awaited(self, event: Event) -> None:
        await event(self.client)

    async def _checked(self) -> None:
        """A write in flight may be there or not; only what was acknowledged is known."""
        if self.client.partition.end_offset == self.client.log.end:
            await self.client.check()

    async def _outcome(self) -> list[KeyedRecord]:
        await self.boot()
        for _ in range(3):
            await self.client.compact()
        found = await self.client.check()
        self.client.log.judge_pass(self.client.partition, found)
        assert list(self.client.partition.tablet.keys(b"w", b"x")) == []
        await self.node.close()
        return found


async def _undisturbed(options: KvOptions) -> tuple[list[KeyedRecord], int]:
    run = Run(options)
    return await run.go(), run.steps


@cache
def _expected() -> list[tuple[int, bytes | None]]:
    found, _ = run_simulation(_undisturbed(BY_HAND))
    assert 5 < len(found) < 20
    return [(record.offset, record.value) for record in found]


@pytest.mark.parametrize("options", [BY_HAND, BUSY], ids=["by hand", "in the background"])
def test_a_crash_at_any_step_changes_nothing(options: KvOptions) -> None:
    async def main() -> None:
        _, steps = await _undisturbed(options)
        for step in range(0, steps, 2 if options is BY_HAND else 6):
            found = await Run(options).go((step,))
            assert [(record.offset, record.value) for record in found] == expected, step

    expected = _expected()
    run_simulation(main())


def test_crashes_one_after_another_change_nothing() -> None:
    async def main() -> None:
        draw = current_loop().fork_random("crashes")
        for _ in range(30):
            crash_at = tuple(draw.randrange(0, 400) if at % 2 else draw.randrange(0, 80) for at in range(6))
            found = await Run(BUSY).go(crash_at)
            assert [(record.offset, record.value) for record in found] == expected, crash_at

    expected = _expected()
    run_simulation(main(), seed=7)
