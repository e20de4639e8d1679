"""Restart at every step: whatever a partition is doing when it is stopped or killed, what readers see in the end is the same.

A client goes through a fixed script of writes, compactions, retention and reads; after a crash it repeats what was not
acknowledged, with the same seqno. The history that a run without trouble leaves is the one that every run must leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import NamedTuple

import pytest

from penstock.queue import BlobCache, Partition, PartitionConfig, QueueTablet, SourceWrite, WriteResult
from penstock.tablet import KvOptions
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import ProcessDiedError, SimLoop, SimProcess, current_loop, run_simulation
from tests.sim_tablet import BY_HAND, SimNode, content, history

CONFIG = PartitionConfig(low_watermark=5000, retention_bytes=9000)
BUSY = KvOptions(snapshot_entries=5, snapshot_bytes=1 << 30, garbage_blobs=3, idle_garbage_s=0.05)
"""Snapshots and collections come often, in the background."""

FIRST_OFFSET = 1000


class Outcome(NamedTuple):
    """What is left of a run: where the partition begins and ends, what is in it, what is known of sources and consumers."""

    start_offset: int
    end_offset: int
    messages: list[tuple[int, bytes]]
    sources: list[tuple[bytes, int, int]]
    committed: int | None


class Client:
    """Carries the script out, and remembers what was acknowledged to it."""

    def __init__(self) -> None:
        self.tablet: QueueTablet
        self.acknowledged: dict[tuple[bytes, int], int] = {}

    @property
    def partition(self) -> Partition:
        """The partition as it runs now."""
        return self.tablet.partition(0)

    async def write(self, source: bytes, seqno: int, sizes: list[int]) -> None:
        """Write a batch; sent again, it must be where it was."""
        values = [b"%s/%d/" % (source, seqno + at) + content(size, seqno + at) for at, size in enumerate(sizes)]
        result = await self.partition.write(make_batch(values), SourceWrite(source, seqno))
        self._note(source, seqno, result)

    async def burst(self, first: int, size: int) -> None:
        """Several sources at once."""
        await asyncio.gather(*(self.write(b"burst%d" % at, first, [size]) for at in range(4)))

    async def read(self, offset: int) -> None:
        """A reader sees batches that are numbered through, at any time."""
        offset = min(max(offset, self.partition.start_offset), self.partition.end_offset)
        result = await self.partition.read(offset, 3000)
        assert result.next_offset > offset or offset == result.end_offset

    async def read_all(self) -> None:
        """What was acknowledged and not deleted is there once, at its offset."""
        partition = self.partition
        messages = await history(partition)
        assert [place for place, _ in messages] == list(range(partition.start_offset, partition.end_offset))
        assert len({value for _, value in messages}) == len(messages)
        by_place = dict(messages)
        for (source, seqno), place in self.acknowledged.items():
            if place >= partition.start_offset:
                assert by_place[place].startswith(b"%s/%d/" % (source, seqno))

    async def trim(self, offset: int) -> None:
        """Cut the front off."""
        await self.partition.trim(offset)

    async def retain(self) -> None:
        """Let the retention do its work."""
        await self.partition.retain()

    async def commit(self, offset: int) -> None:
        """Set a position."""
        await self.partition.commit("reader", offset)

    async def maintain(self) -> None:
        """A snapshot and a collection."""
        await self.tablet.tablet.take_snapshot()
        await self.tablet.tablet.collect_garbage()

    def _note(self, source: bytes, seqno: int, result: WriteResult) -> None:
        before = self.acknowledged.setdefault((source, seqno), result.base_offset)
        assert before == result.base_offset


Event = Callable[[Client], Awaitable[None]]


def _script() -> list[Event]:
    """Small pieces, a body, larger ones, a body from one write, trims in body and head, retention, reads between."""
    script: list[Event] = [lambda client, n=n: client.write(b"a", n, [50]) for n in range(4)]  # type: ignore[misc]
    script += [
        lambda client: client.write(b"b", 10, [1500, 10]),
        lambda client: client.write(b"b", 10, [1500, 10]),  # a duplicate
        lambda client: client.read(FIRST_OFFSET + 3),
        lambda client: client.write(b"a", 4, [2100]),
        lambda client: client.write(b"a", 5, [1800, 20, 20]),  # the head becomes a body
        lambda client: client.commit(FIRST_OFFSET + 5),
        lambda client: client.burst(1, 700),
        lambda client: client.trim(FIRST_OFFSET + 2),
        lambda client: client.write(b"c", 1, [7000]),  # straight to a body
        lambda client: client.read_all(),
        lambda client: client.maintain(),
        lambda client: client.burst(2, 100),
        lambda client: client.write(b"b", 12, [3000]),
        lambda client: client.retain(),
        lambda client: client.write(b"b", 13, [2500]),
        lambda client: client.trim(FIRST_OFFSET + 20),
        lambda client: client.commit(FIRST_OFFSET + 20),
        lambda client: client.write(b"d", 1, [10] * 5),
        lambda client: client.retain(),
        lambda client: client.maintain(),
        lambda client: client.write(b"d", 6, [600]),
        lambda client: client.read(0),
        lambda client: client.burst(3, 30),
    ]
    return script


class Run:
    """The script on a node of its own, with stops and crashes where they are wanted."""

    def __init__(self, options: KvOptions) -> None:
        self.node = SimNode()
        self.client = Client()
        self.generation = 0
        self._options = options
        self.steps = 0  # of the last process, up to the end of the script
        self._start_process()

    def _start_process(self) -> None:
        self.process = SimProcess(current_loop(), f"node-{self.generation}")

    async def boot(self) -> None:
        """The next generation takes over."""
        self.generation += 1
        self.node.cache = BlobCache(bytes_max=8000)
        tablet = await self.node.queue(self.generation, CONFIG, self._options)
        if not tablet.partitions:
            await tablet.add_partition(0, FIRST_OFFSET)
        self.client.tablet = tablet

    async def go(self, *, stop_before: frozenset[int] = frozenset(), crash_at: tuple[int, ...] = ()) -> Outcome:
        """Carry the script out: stopped before some events, killed at steps of one process after another."""
        crashes = list(crash_at)
        self._arm(crashes)
        booted = False
        script = _script()
        at = 0
        while at < len(script):
            try:
                if not booted:
                    await self.process.call(self.boot())
                    booted = True
                if at in stop_before and not crashes:
                    await self.process.call(self.client.tablet.stop())
                    await self.process.call(self.boot())
                await self.process.call(_awaited(script[at], self.client))
                at += 1
            except ProcessDiedError:
                booted = False
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

    async def _outcome(self) -> Outcome:
        await self.boot()
        await self.client.read_all()
        partition = self.client.partition
        sources = [(source, state.max_seqno, state.last_offset) for source, state in partition.sources()]
        end = partition.end_offset
        found = Outcome(partition.start_offset, end, await history(partition), sources, partition.committed("reader"))
        await self.node.close()
        return found


async def _awaited(event: Event, client: Client) -> None:
    await event(client)


async def _undisturbed(options: KvOptions) -> tuple[Outcome, int]:
    run = Run(options)
    outcome = await run.go()
    return outcome, run.steps


@cache
def _expected() -> Outcome:
    outcome, _ = run_simulation(_undisturbed(BY_HAND))
    assert outcome.start_offset > FIRST_OFFSET + 10
    assert len(outcome.messages) > 10
    assert outcome.committed == FIRST_OFFSET + 20
    return outcome


@pytest.mark.parametrize("options", [BY_HAND, BUSY], ids=["by hand", "in the background"])
def test_a_stop_between_any_two_events_changes_nothing(options: KvOptions) -> None:
    async def main() -> None:
        events = len(_script())
        for stops in [*({at} for at in range(events)), set(range(events))]:
            assert await Run(options).go(stop_before=frozenset(stops)) == expected, stops

    expected = _expected()
    run_simulation(main())


def test_tidying_in_the_background_changes_nothing() -> None:
    outcome, _ = run_simulation(_undisturbed(BUSY))
    assert outcome == _expected()


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("options", [BY_HAND, BUSY], ids=["by hand", "in the background"])
def test_a_crash_at_any_step_changes_nothing(options: KvOptions, part: int) -> None:
    async def main() -> None:
        _, steps = await _undisturbed(options)
        stride = 4 if options is BY_HAND else 12
        for step in range(part, steps, stride):
            assert await Run(options).go(crash_at=(step,)) == expected, step

    expected = _expected()
    run_simulation(main(), seed=part)


def test_crashes_one_after_another_even_while_it_starts_change_nothing() -> None:
    async def main(loop: SimLoop) -> None:
        draw = loop.fork_random("crashes")
        for _ in range(40):
            crash_at = tuple(draw.randrange(0, 300) if at % 2 else draw.randrange(0, 80) for at in range(6))
            assert await Run(BUSY).go(crash_at=crash_at) == expected, crash_at

    async def start() -> None:
        await main(current_loop())

    expected = _expected()
    run_simulation(start(), seed=7)
