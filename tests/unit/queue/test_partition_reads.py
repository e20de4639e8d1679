"""Reading a partition: at any offset, while it changes, by long poll, by time, from cache, memory and files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from penstock.blob import BlobStorage, Buffer, ChannelHistory, Erasure, FilePiece, GroupConfig, TabletInfo
from penstock.core.clock import SystemClock
from penstock.queue import BlobCache, OffsetOutOfRangeError, Partition, PartitionConfig, QueueTablet
from penstock.tablet import CHANNELS
from penstock.testing.batches import make_batch, make_marker, values_of
from tests.sim_tablet import DATA, LOG, Fate, SimNode, content, history, on_node, turns

TINY = PartitionConfig(low_watermark=3000)


async def _new(node: SimNode, config: PartitionConfig = TINY, first_offset: int = 0) -> Partition:
    return await (await node.queue(1, config)).add_partition(0, first_offset)


async def _fill(partition: Partition, batches: int, size: int = 700) -> None:
    for number in range(batches):
        await partition.write(make_batch([content(size, number)], timestamp=number * 10))


def _bytes(batches: tuple[Buffer | FilePiece, ...]) -> bytes:
    return b"".join(_read_piece(batch) if isinstance(batch, FilePiece) else batch for batch in batches)


def _read_piece(piece: FilePiece) -> bytes:
    return os.pread(piece.fd, piece.length, piece.offset)


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(12):
            await partition.write(make_batch([content(400, number)] * 3))
        for warm in (True, False):
            for offset in range(36):
                result = await partition.read(offset, 1)
                places = [place for place, _ in values_of(_bytes(result.batches))]
                assert places[0] == offset // 3 * 3
                assert result.next_offset == places[-1] + 1
                assert result.size == len(_bytes(result.batches))
            if warm:
                node.cache = BlobCache()
                partition = (await node.queue(2, TINY)).partition(0)

    on_node(scenario)


def test_a_read_that_one_batch_fills_does_not_look_at_the_next() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, PartitionConfig(low_watermark=50_000))
        await _fill(partition, 20, size=9500)
        assert partition.bodies
        before = node.cache.hits
        result = await partition.read(0, 10_000)
        assert (result.next_offset, node.cache.hits - before) == (1, 1)

    on_node(scenario)


def test_a_read_answers_about_as_much_as_it_was_asked_for() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, PartitionConfig(low_watermark=50_000))
        await _fill(partition, 300)
        whole = partition.size
        for bytes_max in (1, 1000, 20_000, 100_000, 10**9):
            result = await partition.read(0, bytes_max)
            assert 0 < result.size <= min(bytes_max + 4096 + 1500, whole)
            assert result.size >= min(bytes_max, whole) - 4096 - 1500
        assert (await partition.read(0, 10**9)).next_offset == 300

    on_node(scenario)


def test_a_read_below_the_start_is_raised_to_it_above_the_end_refused_and_at_the_end_empty() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, first_offset=100)
        empty = await partition.read(100, 1000)
        assert (empty.batches, empty.size, empty.next_offset) == ((), 0, 100)
        await _fill(partition, 10)
        await partition.trim(103)
        for offset in (0, 50, 102, 103):
            result = await partition.read(offset, 1)
            assert values_of(_bytes(result.batches))[0][0] == 103
            assert (result.start_offset, result.end_offset, result.stable_offset) == (103, 110, 110)
        at_end = await partition.read(110, 1000)
        assert (at_end.batches, at_end.next_offset) == ((), 110)
        for offset in (111, 10**6):
            with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} is after the end of the partition, 110"):
                await partition.read(offset, 1)

    on_node(scenario)


def test_nothing_is_visible_before_it_is_durable() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _fill(partition, 3)
        for channel in (LOG, DATA):
            gate = asyncio.Event()
            node.hooked.on(channel, Fate(gate=gate))
            before = partition.end_offset
            writing = asyncio.create_task(partition.write(make_batch([content(5000)])))
            waiting = asyncio.create_task(partition.wait_beyond(before, 1000))
            await asyncio.sleep(5)
            assert not waiting.done()
            assert partition.end_offset == before
            assert (await partition.read(before, 1000)).batches == ()
            assert len(await history(partition)) == before
            assert (await partition.find_time(10**6)) is None
            gate.set()
            await writing
            assert await waiting
            assert len(await history(partition)) == before + 1

    on_node(scenario)


def test_a_long_poll_wakes_when_something_arrives_and_gives_up_in_time() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _fill(partition, 1)
        assert await partition.wait_beyond(0, 0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert not await partition.wait_beyond(1, 2.5)
        assert loop.time() - began == pytest.approx(2.5)
        pollers = [asyncio.create_task(partition.wait_beyond(offset, 100)) for offset in (1, 1, 2)]
        await turns()
        await _fill(partition, 1)
        await turns()
        assert [poller.done() for poller in pollers] == [True, True, False]
        await _fill(partition, 1)
        assert await asyncio.gather(*pollers) == [True] * 3
        assert not await partition.wait_beyond(3, 0)

    on_node(scenario)


@pytest.mark.parametrize(("trim_to", "begin"), [(10, 0), (23, 0), (39, 0), (40, 0), (17, 5), (20, 19)])
def test_trimming_under_a_read_skips_nothing_that_is_still_there(trim_to: int, begin: int) -> None:
    """The read waits for a cold body; meanwhile that body and some after it go. What it answers goes on where data is left."""

    async def scenario(node: SimNode) -> None:
        await _fill(await _new(node), 40)
        node.cache = BlobCache()
        partition = (await node.queue(2, TINY)).partition(0)
        gate = node.hooked.get_gate = asyncio.Event()
        reading = asyncio.create_task(partition.read(begin, 10**9))
        await turns()
        assert not reading.done()
        await partition.trim(trim_to)
        gate.set()
        result = await reading
        places = [place for place, _ in values_of(_bytes(result.batches))]
        assert places == list(range(result.next_offset - len(places), result.next_offset))
        assert not places or places[0] in (begin // 4 * 4, begin, trim_to)
        assert [place for place, _ in await history(partition)] == list(range(trim_to, 40))

    on_node(scenario)


def test_trimming_and_collecting_under_a_read_of_a_cold_body_raises_the_read_to_the_start() -> None:
    async def scenario(node: SimNode) -> None:
        await _fill(await _new(node), 40)
        node.cache = BlobCache()
        tablet = await node.queue(2, TINY)
        partition = tablet.partition(0)
        gate = node.hooked.get_gate = asyncio.Event()
        reading = asyncio.create_task(partition.read(0, 1))
        timing = asyncio.create_task(partition.find_time(0))
        await turns()
        await partition.trim(20)
        await tablet.tablet.collect_garbage()
        gate.set()
        result = await reading
        assert values_of(_bytes(result.batches))[0] == (20, content(700, 20))
        found = await timing
        assert found is None or found[0] >= 20

    on_node(scenario)


def test_a_read_crosses_a_head_that_becomes_a_body() -> None:
    async def scenario(node: SimNode) -> None:
        await _fill(await _new(node), 20)
        node.cache = BlobCache()
        partition = (await node.queue(2, TINY)).partition(0)
        gate = node.hooked.get_gate = asyncio.Event()
        reading = asyncio.create_task(partition.read(0, 10**9))
        await turns()
        await _fill(partition, 10)
        gate.set()
        result = await reading
        assert [place for place, _ in values_of(_bytes(result.batches))] == list(range(result.next_offset))
        assert 20 <= result.next_offset <= 30

    on_node(scenario)


def test_the_first_batch_since_a_time_is_found_in_bodies_and_head() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _fill(partition, 30)
        for generation in (None, 2):
            if generation is not None:
                node.cache = BlobCache()
                partition = (await node.queue(generation, TINY)).partition(0)
            for timestamp in (-5, 0, 1, 10, 155, 289, 290):
                found = await partition.find_time(timestamp)
                assert found is not None
                offset, batch = found
                assert offset == max(0, -(-timestamp // 10))
                assert values_of(bytes(batch)) == [(offset, content(700, offset))]
            assert await partition.find_time(291) is None

    on_node(scenario)


def test_times_that_go_back_are_found_and_trimmed_ones_are_not() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, PartitionConfig())
        stamps = (50, 10, 20, 60, 5)
        await asyncio.gather(*(partition.write(make_batch([b"v"], timestamp=timestamp)) for timestamp in stamps))
        assert len(partition.head) == 1
        assert [(await partition.find_time(timestamp) or (-1, b""))[0] for timestamp in (1, 11, 51, 61)] == [0, 0, 3, -1]
        await partition.trim(1)
        assert [(await partition.find_time(timestamp) or (-1, b""))[0] for timestamp in (1, 11, 21, 51)] == [1, 2, 3, 3]
        await partition.trim(4)
        assert await partition.find_time(6) is None
        assert (await partition.find_time(5) or (-1, b""))[0] == 4

    on_node(scenario)


def test_the_cache_is_shared_and_bounded_and_spares_the_storage() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1, TINY)
        for number in range(3):
            await _fill(await tablet.add_partition(number), 30)
        assert node.cache.bytes_held > 3 * 10_000
        node.cache = cache = BlobCache(bytes_max=15_000)
        again = await node.queue(2, TINY)
        for _ in range(2):
            for partition in again.partitions.values():
                assert len(await history(partition)) == 30
                assert 0 < cache.bytes_held <= 15_000
        partition = again.partition(0)
        await partition.read(0, 1)
        node.hooked.get_gate = asyncio.Event()  # never set: reads of the storage never return
        assert (await partition.read(0, 1)).next_offset > 0
        warm = (5, 2, *partition.bodies[0])
        assert cache.get(warm) is not None
        await partition.trim(partition.end_offset)
        assert cache.get(warm) is None

    on_node(scenario)


def test_pieces_of_one_tablet_or_generation_are_never_taken_for_those_of_another() -> None:
    """Names in the cache come from numbers that are never used again, not from addresses in memory."""

    class WatchedCache(BlobCache):
        names: set[object]

        def put(self, key, piece):  # type: ignore[no-untyped-def]
            self.names.add(key)
            super().put(key, piece)

    async def scenario(node: SimNode) -> None:
        node.cache = cache = WatchedCache()
        cache.names = set()
        await _fill(await _new(node), 6)
        first = set(cache.names)
        assert {name[:3] for name in first if isinstance(name, tuple)} == {(5, 1, 0)}
        partition = (await node.queue(2, TINY)).partition(0)
        await history(partition)
        assert len(cache.names - first) == len(first)

    on_node(scenario)


def test_files_hold_the_same_bytes_as_the_batches(tmp_path: Path) -> None:
    async def boot(storage: BlobStorage, generation: int) -> QueueTablet:
        info = TabletInfo(5, tuple(ChannelHistory([(0, 0)]) for _ in range(CHANNELS)))
        return await QueueTablet.boot(
            storage.tablet(info), generation, config, cache=BlobCache(), clock=SystemClock(), random=Random(generation)
        )

    async def main() -> None:
        group = GroupConfig(0, Erasure.NONE, (tmp_path / "disk",))
        storage = BlobStorage([group], clock=SystemClock(), random=Random(1), durable=False)
        tablet = await boot(storage, 1)
        partition = await tablet.add_partition(0, first_offset=7)
        for number in range(300):
            await partition.write(make_batch([content(500, number)] * 2))
        expected = _bytes((await partition.read(0, 10**9)).batches)
        await tablet.stop()
        tablet = await boot(storage, 2)
        partition = tablet.partition(0)
        for bytes_max in (1, 2500, 5000, 30_000, 10**9):
            for offset in (7, 8, 150, 333, 606):
                await _check_files(partition, expected, offset, bytes_max)
        await tablet.stop()
        await storage.close()

    config = PartitionConfig(low_watermark=60_000)
    asyncio.run(main())


async def _check_files(partition: Partition, expected: bytes, offset: int, bytes_max: int) -> None:
    result = await partition.read(offset, bytes_max, files=True)
    data = _bytes(result.batches)
    assert len(data) == result.size
    assert data in expected
    places = [place for place, _ in values_of(data)]
    assert places[0] <= offset <= places[-1]
    assert places == list(range(places[0], places[-1] + 1))
    assert result.next_offset == places[-1] + 1
    one_batch = len(data) * 2 // len(places)
    assert len(data) <= max(bytes_max, one_batch)
    # What lies between two marks is cut in memory if it is longer than what was asked for.
    assert any(isinstance(batch, FilePiece) for batch in result.batches) == (bytes_max >= 5000) or offset > 500
    strict = await partition.read(offset, bytes_max, files=True, at_least_one=False)
    assert strict.size <= bytes_max
    assert (strict.size > 0) == (bytes_max >= one_batch)


def test_the_last_stable_offset_and_aborted_transactions_survive_restarts_and_trims() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)

        async def begin(producer: int) -> None:
            await partition.write(make_batch([content(900)], attributes=0x10, producer_id=producer, producer_epoch=0))

        await partition.write(make_batch([content(900)]))
        await begin(1)  # offset 1
        await begin(2)  # offset 2
        assert partition.stable_offset == 1
        await partition.write(make_marker(commit=False, producer_id=1))  # offset 3
        assert partition.stable_offset == 2
        await begin(3)  # offset 4
        await partition.write(make_marker(commit=True, producer_id=2))  # offset 5
        assert (partition.stable_offset, partition.end_offset) == (4, 6)
        aborted = partition.aborted_between(0, 10)
        assert [(one.producer_id, one.first_offset, one.last_offset) for one in aborted] == [(1, 1, 3)]
        partition = (await node.queue(2, TINY)).partition(0)
        assert (partition.stable_offset, partition.aborted_between(0, 10)) == (4, aborted)
        assert (await partition.read(0, 1)).stable_offset == 4
        await partition.trim(3)
        assert partition.aborted_between(0, 10) == aborted
        await partition.trim(4)
        assert partition.aborted_between(0, 10) == []
        await partition.write(make_marker(commit=False, producer_id=3))
        partition = (await node.queue(3, TINY)).partition(0)
        assert partition.stable_offset == partition.end_offset == 7
        assert [one.producer_id for one in partition.aborted_between(0, 10)] == [3]

    on_node(scenario)


def test_the_stable_offset_is_not_before_the_start() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await partition.write(make_batch([b"t"], attributes=0x10, producer_id=1, producer_epoch=0))
        await _fill(partition, 3)
        await partition.trim(2)
        assert partition.stable_offset == 2
        assert (await node.queue(2, TINY)).partition(0).stable_offset == 2

    on_node(scenario)
