"""The journal: group commit, what a failed flush takes with it, and chunks that follow one another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from penstock.blob.blob_id import BlobId
from penstock.blob.chunk_scan import ScannedRecord, scan_chunk
from penstock.blob.journal import RETRY_MAX_S, Journal, chunk_name
from penstock.blob.record import RecordKind, abandoned_from, record_size
from penstock.testing.sim_disk import DiskFaults, Latency, SimDisk, SimPlatter
from penstock.testing.sim_loop import current_loop, run_simulation

CHUNK_SIZE = 4096
FIRST = 5


class CountingDisk(SimDisk):
    """A disk whose flush takes a second, and that remembers which files were flushed."""

    def __init__(self, platter: SimPlatter, faults: DiskFaults) -> None:
        super().__init__(platter, Random(1), faults, {"flush": Latency(1.0)})
        self.flushed: list[str] = []

    async def flush(self, name: str) -> None:
        self.flushed.append(name)
        await super().flush(name)


class Bench:
    """A journal on a disk of its own."""

    def __init__(self) -> None:
        self.platter = SimPlatter()
        self.faults = DiskFaults()
        self.disk = CountingDisk(self.platter, self.faults)
        self.sealed: list[tuple[int, int]] = []
        self.journal = Journal(
            self.disk, first_chunk=FIRST, chunk_size=CHUNK_SIZE, head=b"head", on_seal=lambda *end: self.sealed.append(end)
        )

    def append(self, step: int, size: int = 100) -> tuple[int, int]:
        return self.journal.append(RecordKind.PART, _id(step), bytes(size))

    async def abandoned_before(self, chunk: int) -> list[int]:
        """The chunks that the head of a chunk says were abandoned before it."""
        async for item in scan_chunk(self.disk, chunk, self.platter.size(chunk_name(chunk))):
            if isinstance(item, ScannedRecord) and item.header.kind == RecordKind.CHUNK_HEAD:
                return list(range(abandoned_from(item.header), chunk))
        raise AssertionError(f"chunk {chunk} has no head")

    async def steps_in(self, chunk: int) -> list[int]:
        """The steps of the sound parts of a chunk, in order."""
        scan = scan_chunk(self.disk, chunk, self.platter.size(chunk_name(chunk)))
        found = [item async for item in scan]
        return [
            BlobId.unpack(item.header.blob_id).step
            for item in found
            if isinstance(item, ScannedRecord) and item.sound and item.header.kind == RecordKind.PART
        ]


def _id(step: int) -> bytes:
    return BlobId(1, 0, 1, step, 0, 100, 1).pack()


def _run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        bench = Bench()
        await scenario(bench)
        await bench.journal.close()

    run_simulation(run())


def test_all_that_arrives_during_a_flush_shares_the_next() -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(0)
        first = bench.journal.commit()
        await asyncio.sleep(0.5)
        later = []
        for step in range(1, 11):
            bench.append(step)
            later.append(bench.journal.commit())
        assert await first is None
        assert current_loop().time() == 1.0
        assert not any(commit.done() for commit in later)
        assert await asyncio.gather(*later) == [None] * 10
        assert current_loop().time() == 2.0
        assert bench.disk.flushed == [chunk_name(FIRST)] * 2
        assert await bench.steps_in(FIRST) == list(range(11))

    _run(scenario)


def test_a_commit_of_nothing_new_waits_for_the_flush_in_flight_and_causes_none() -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.journal.commit() is None
        assert bench.disk.flushed == []
        bench.append(0)
        first = bench.journal.commit()
        await asyncio.sleep(0.5)
        again = bench.journal.commit()
        assert not again.done()
        assert (await first, await again) == (None, None)
        assert bench.disk.flushed == [chunk_name(FIRST)]

    _run(scenario)


def test_a_failed_flush_fails_its_batch_and_what_is_behind_it_and_writing_goes_on_in_a_new_chunk() -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(0)
        assert await bench.journal.commit() is None
        undone: list[int] = []
        bench.append(1)
        bench.journal.undo_on_failure((undone.append, 1))
        batch = bench.journal.commit()
        await asyncio.sleep(0.5)
        bench.append(2)
        bench.journal.undo_on_failure((undone.append, 2))
        behind = bench.journal.commit()
        bench.faults.broken = True
        assert isinstance(await batch, OSError)
        assert isinstance(await behind, OSError)
        assert undone == [2, 1]
        assert [chunk for chunk, _ in bench.sealed] == [FIRST]
        bench.faults.broken = False
        assert bench.append(3)[0] == FIRST + 1
        assert await bench.journal.commit() is None
        assert await bench.steps_in(FIRST + 1) == [3]
        assert 0 in await bench.steps_in(FIRST)

    _run(scenario)


def test_the_head_of_a_chunk_tells_which_ones_before_it_were_abandoned() -> None:
    async def scenario(bench: Bench) -> None:
        async def write(*, fails: bool, size: int = CHUNK_SIZE) -> int:
            bench.faults.broken = fails
            chunk, _ = bench.append(0, size)
            assert (await bench.journal.commit() is not None) == fails
            return chunk

        assert [await write(fails=True) for _ in range(2)] == [FIRST, FIRST + 1], "at first nothing is durable"
        assert await write(fails=False) == FIRST + 2
        assert await write(fails=False) == FIRST + 3
        assert [await write(fails=True) for _ in range(3)] == [FIRST + 4, FIRST + 5, FIRST + 6]
        assert await write(fails=False, size=10) == FIRST + 7
        assert await write(fails=True, size=10) == FIRST + 7
        assert await write(fails=False) == FIRST + 8, "the chunk before is there: only its end is unknown"
        told = {number: await bench.abandoned_before(number) for number in (FIRST + 2, FIRST + 3, FIRST + 7, FIRST + 8)}
        assert told == {
            FIRST + 2: [FIRST, FIRST + 1],
            FIRST + 3: [],
            FIRST + 7: [FIRST + 4, FIRST + 5, FIRST + 6],
            FIRST + 8: [],
        }

    _run(scenario)


def test_a_batch_that_is_done_is_not_undone_by_a_later_failure() -> None:
    async def scenario(bench: Bench) -> None:
        undone: list[int] = []
        bench.append(0)
        bench.journal.undo_on_failure((undone.append, 0))
        assert await bench.journal.commit() is None
        bench.faults.broken = True
        bench.append(1)
        assert isinstance(await bench.journal.commit(), OSError)
        assert undone == []
        bench.faults.broken = False

    _run(scenario)


def test_a_waiter_that_is_cancelled_does_not_hurt_the_others() -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(0)
        impatient = asyncio.ensure_future(_wait(bench.journal.commit()))
        patient = bench.journal.commit()
        await asyncio.sleep(0.5)
        impatient.cancel()
        assert await patient is None
        assert impatient.cancelled()
        bench.append(1)
        assert await bench.journal.commit() is None
        assert await bench.steps_in(FIRST) == [0, 1]

    _run(scenario)


async def _wait(commit: asyncio.Future[OSError | None]) -> None:
    assert await commit is None


def test_a_full_chunk_is_sealed_and_gives_back_what_it_does_not_use() -> None:
    async def scenario(bench: Bench) -> None:
        places = [bench.append(step, size=1000) for step in range(5)]
        assert {chunk for chunk, _ in places} == {FIRST, FIRST + 1}
        assert await bench.journal.commit() is None
        (chunk, end) = bench.sealed[0]
        assert (chunk, end) == (FIRST, record_size(4) + 3 * record_size(1000))
        assert bench.platter.size(chunk_name(FIRST)) == end
        assert bench.platter.size(chunk_name(FIRST + 1)) == CHUNK_SIZE

    _run(scenario)


def test_a_record_larger_than_a_chunk_has_one_to_itself() -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(0, size=1000)
        assert bench.append(1, size=3 * CHUNK_SIZE)[0] == FIRST + 1
        assert await bench.journal.commit() is None
        assert await bench.steps_in(FIRST + 1) == [1]

    _run(scenario)


def test_every_record_tells_the_end_that_was_durable_when_it_was_written() -> None:
    async def scenario(bench: Bench) -> None:
        ends = [bench.journal.durable]
        for step in range(3):
            bench.append(step)
            assert await bench.journal.commit() is None
            ends.append(bench.journal.durable)
        scan = scan_chunk(bench.disk, FIRST, bench.platter.written(chunk_name(FIRST)))
        told = [
            item.header.durable async for item in scan if isinstance(item, ScannedRecord) and item.header.kind == RecordKind.PART
        ]
        assert told == ends[:3]
        assert ends[0] == (FIRST, 0)
        assert ends[3] == (FIRST, bench.platter.written(chunk_name(FIRST)))

    _run(scenario)


def test_waiting_for_a_record_ends_when_it_is_durable() -> None:
    async def scenario(bench: Bench) -> None:
        first = bench.append(0)
        await asyncio.sleep(0.5)
        second = bench.append(1)
        await bench.journal.wait_durable(first)
        assert current_loop().time() == 1.0
        await bench.journal.wait_durable(second)
        assert current_loop().time() == 2.0
        await bench.journal.wait_durable(first)
        assert current_loop().time() == 2.0

    _run(scenario)


def test_closing_flushes_what_is_left_and_gives_back_reserved_room() -> None:
    async def run() -> None:
        bench = Bench()
        bench.append(0)
        assert await bench.journal.commit() is None
        bench.append(1)
        await bench.journal.close()
        assert await bench.steps_in(FIRST) == [0, 1]
        name = chunk_name(FIRST)
        assert bench.platter.size(name) == bench.platter.written(name)

    run_simulation(run())


def test_a_tablet_that_asked_for_a_turn_gets_it_though_the_journal_is_closed() -> None:
    async def run() -> None:
        bench = Bench()
        turns: list[str] = []
        bench.append(0)
        await asyncio.sleep(0.5)  # the flush is in progress
        bench.journal.before_flush(lambda: turns.append("before"))
        await bench.journal.close()
        bench.journal.before_flush(lambda: turns.append("after"))
        await asyncio.sleep(0)
        assert turns == ["before", "after"]

    run_simulation(run())


def test_a_journal_to_which_nothing_was_appended_leaves_no_file() -> None:
    async def run() -> None:
        bench = Bench()
        await bench.journal.close()
        assert bench.platter.names() == []

    run_simulation(run())


def test_a_disk_that_keeps_failing_is_tried_once_a_second_and_takes_few_chunks() -> None:
    async def scenario(bench: Bench) -> None:
        bench.disk.faults.hung = True
        loop = current_loop()
        began = loop.time()
        failures = 0
        while loop.time() < began + 60:
            bench.append(0)
            error = await bench.journal.commit()
            assert isinstance(error, TimeoutError)
            assert bench.journal.trouble is error
            failures += 1
        assert 45 <= failures <= 60
        assert bench.journal.chunk - FIRST == failures
        bench.disk.faults.hung = False
        await asyncio.sleep(1)
        bench.append(1)
        assert await bench.journal.commit() is None
        assert bench.journal.trouble is None
        assert await bench.steps_in(bench.journal.chunk) == [1]

    _run(scenario)


def test_a_disk_that_was_left_alone_since_it_failed_is_tried_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        bench.faults.broken = True
        for step in range(8):
            bench.append(step)
            assert await bench.journal.commit() is not None
        await asyncio.sleep(2 * RETRY_MAX_S)
        bench.faults.broken = False
        began = current_loop().time()
        bench.append(9)
        assert await bench.journal.commit() is None
        assert current_loop().time() - began < 1.0 + RETRY_MAX_S / 2, "a flush takes a second"

    _run(scenario)
