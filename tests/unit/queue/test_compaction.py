"""Compaction of a partition, one rule at a time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import TypeVar
from unittest import mock

import pytest

from penstock.core.checksum import crc32c
from penstock.queue import (
    Aborted,
    BlobCache,
    Partition,
    PartitionConfig,
    PassSummary,
    compact,
    compaction,
    dirt_of,
    head,
    in_place,
)
from penstock.queue.key_map import KeyMap
from penstock.testing.batches import make_keyed_batch, make_marker
from tests.keyed_log import raw_batches, read_committed, read_log
from tests.sim_tablet import DATA, ERROR, FINE, Fate, SimNode, on_node

T = TypeVar("T")

CONFIG = PartitionConfig(low_watermark=1000, is_compacted=True, min_dirty_ratio=0.0)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(autouse=True)
def _small_bodies() -> Iterator[None]:
    with mock.patch.object(head, "BODY_SIZE", 3000), mock.patch.object(compaction, "STAGE_BYTES", 500):
        yield


async def _new(node: SimNode, config: PartitionConfig = CONFIG) -> Partition:
    return await (await node.queue(1, config)).add_partition(0)


async def _again(node: SimNode, config: PartitionConfig = CONFIG) -> Partition:
    """The partition of the next generation, which has nothing in memory."""
    node.cache = BlobCache()
    return (await node.queue(2, config)).partition(0)


def _now(node: SimNode) -> int:
    return int(node.clock.wall() * 1000)


async def _put(node: SimNode, partition: Partition, *pairs: tuple[bytes, bytes | None], codec: int = 0) -> int:
    result = await partition.write(make_keyed_batch(pairs, timestamps=[_now(node)], codec=codec))
    return result.base_offset


async def _compact(
    node: SimNode,
    partition: Partition,
    *,
    roll: bool = True,
    map_bytes: int = 1 << 20,
    held_from: Callable[[], int | None] = lambda: None,
) -> PassSummary | None:
    if roll:
        await partition.roll_head()
    return await compact(
        partition, clock=node.clock, random=Random(1), offload=in_place, map_bytes=map_bytes, held_from=held_from
    )


async def _shown(partition: Partition) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for record in await read_log(partition)}


def test_the_last_value_of_each_key_is_kept_where_it_was() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(30):
            await _put(node, partition, (b"a", b"%d" % number), (b"b%d" % (number % 3), b"x" * 100))
        summary = await _compact(node, partition)
        assert summary is not None
        assert summary.is_complete
        assert summary.keys == 4
        expected = {55: (b"b0", b"x" * 100), 57: (b"b1", b"x" * 100), 58: (b"a", b"29"), 59: (b"b2", b"x" * 100)}
        assert await _shown(partition) == expected
        assert (partition.start_offset, partition.end_offset) == (0, 60)
        partition = await _again(node)
        assert await _shown(partition) == expected
        assert partition.clean.clean_to == 60
        assert await _put(node, partition, (b"a", b"new")) == 60

    on_node(scenario)


def test_the_head_is_not_touched() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for _ in range(3):
            await _put(node, partition, (b"a", b"small"))
        assert await _compact(node, partition, roll=False) is None
        assert len(await _shown(partition)) == 3

    on_node(scenario)


def test_what_is_held_stays_as_it_is() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(60):
            await _put(node, partition, (b"k%d" % (number % 2), b"x" * 200))
        await _compact(node, partition, held_from=lambda: 40)
        kept = sorted(await _shown(partition))
        assert [offset for offset in kept if offset >= 40] == list(range(40, 60))
        assert len(kept) < 30
        clean_to = partition.clean.clean_to
        assert 30 <= clean_to <= 40
        # Within what is clean, nothing is gone over again.
        assert await _compact(node, partition, held_from=lambda: clean_to - 1) is None
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == [58, 59]

    on_node(scenario)


def test_a_running_pass_stops_before_a_new_lease() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(300):
            await _put(node, partition, (b"k%d" % number if number % 2 else b"same", b"x" * 200))
        asked: list[int] = []

        def held_from() -> int | None:
            # There is no lease when the pass is planned, nor when it replaces bodies for the first time.
            asked.append(len(asked))
            return None if len(asked) <= 2 else 0

        summary = await _compact(node, partition, held_from=held_from)
        assert summary is not None
        assert not summary.is_complete
        kept = sorted(await _shown(partition))
        assert 150 < len(kept) < 300
        summary = await _compact(node, partition)
        assert summary is not None
        assert summary.is_complete
        assert len(await _shown(partition)) == 151

    on_node(scenario)


def test_an_offset_in_a_gap_gives_what_comes_next() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(20):
            await _put(node, partition, (b"k%d" % (number if number in (3, 12) else 0), b"x" * 200))
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == [3, 12, 19]
        partition = await _again(node)
        for offset, first in ((0, 3), (3, 3), (4, 12), (12, 12), (13, 19), (19, 19)):
            raw, next_offset = await raw_batches(partition, offset, 1)
            assert int.from_bytes(raw[:8], "big") == first
            assert next_offset > offset
        # Up to an offset within a gap there is nothing.
        assert await raw_batches(partition, 5, 1000, until=9) == (b"", 9)

    on_node(scenario)


def test_bodies_are_merged() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(60):
            await _put(node, partition, (b"k%d" % (number % 20), b"x" * 200))
        before = len(partition.bodies)
        await _compact(node, partition)
        sizes = [body.size for body in partition.bodies]
        assert before > 3 * len(sizes)
        assert all(one + other > 3000 for one, other in pairwise(sizes))
        assert partition.size == sum(sizes)
        # A second pass finds nothing to do, and moves nothing.
        bodies = partition.bodies
        assert await _compact(node, partition) is None
        assert partition.bodies == bodies

    on_node(scenario)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_keeps_its_compression(codec: int) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(8):
            await _put(node, partition, (b"a", b"%d" % number * 100), (b"b%d" % number, b"y" * 100), (b"c", b""), codec=codec)
        await _compact(node, partition)
        partition = await _again(node)
        shown = await _shown(partition)
        assert sorted(shown) == [1, 4, 7, 10, 13, 16, 19, 21, 22, 23]
        assert shown[21] == (b"a", b"7" * 100)
        raw, _ = await raw_batches(partition, 0, 1)
        assert raw[22] & 7 == codec

    on_node(scenario)


def test_tombstones_stay_for_their_delay_and_then_go_even_if_nothing_is_written() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _put(node, partition, (b"a", b"x" * 1200))
        await _put(node, partition, (b"a", None), (b"b", b"stays"))
        await _compact(node, partition)
        assert await _shown(partition) == {1: (b"a", None), 2: (b"b", b"stays")}
        await asyncio.sleep(DAY_MS / 1000 - 10)
        assert await _compact(node, partition) is None
        partition = await _again(node)
        assert await _compact(node, partition) is None
        await asyncio.sleep(20)
        assert await _compact(node, partition) is not None
        assert await _shown(partition) == {2: (b"b", b"stays")}
        assert await _compact(node, partition) is None

    on_node(scenario)


def test_the_delay_of_a_tombstone_begins_when_it_is_compacted_first() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _put(node, partition, (b"a", None), (b"b", b"x" * 1200))
        await asyncio.sleep(2 * DAY_MS / 1000)
        await _compact(node, partition)
        assert 0 in await _shown(partition)

    on_node(scenario)


def test_a_partition_that_is_empty_in_the_end_keeps_its_offsets() -> None:
    async def scenario(node: SimNode) -> None:
        config = dataclasses.replace(CONFIG, delete_retention_ms=0)
        partition = await _new(node, config)
        await _put(node, partition, (b"a", b"x" * 1200))
        await _put(node, partition, (b"a", None), (b"b", None))
        for _ in range(2):
            assert await _compact(node, partition) is not None
        assert await _shown(partition) == {}
        raw, next_offset = await raw_batches(partition, 0, 1000)
        assert (len(raw), next_offset) == (61, 3)
        partition = await _again(node, config)
        assert (partition.start_offset, partition.end_offset) == (0, 3)
        assert await partition.find_time(0) is None
        assert await _put(node, partition, (b"a", b"back")) == 3
        assert await _shown(partition) == {3: (b"a", b"back")}

    on_node(scenario)


def test_a_young_message_is_not_compacted() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, dataclasses.replace(CONFIG, min_compaction_lag_ms=60_000))
        await _put(node, partition, (b"a", b"x" * 1200))
        await _put(node, partition, (b"a", b"y" * 1200))
        assert await _compact(node, partition) is None
        await asyncio.sleep(50)
        await _put(node, partition, (b"a", b"z" * 1200))
        await asyncio.sleep(15)
        assert await _compact(node, partition) is not None
        assert sorted(await _shown(partition)) == [1, 2]
        await asyncio.sleep(60)
        assert await _compact(node, partition) is not None
        assert sorted(await _shown(partition)) == [2]

    on_node(scenario)


def test_a_little_dirt_waits_unless_it_waits_too_long() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, dataclasses.replace(CONFIG, min_dirty_ratio=0.5, max_compaction_lag_ms=3_600_000))
        for number in range(8):
            await _put(node, partition, (b"%d" % number, b"x" * 1200))
        assert await _compact(node, partition, roll=False) is not None
        await _put(node, partition, (b"0", b"new" + b"x" * 1200))
        assert 0 < dirt_of(partition, _now(node)).ratio < 0.5
        assert await _compact(node, partition, roll=False) is None
        await asyncio.sleep(3700)
        assert await _compact(node, partition, roll=False) is not None
        assert sorted(await _shown(partition)) == [1, 2, 3, 4, 5, 6, 7, 8]
        # What is in the head alone is not left alone for ever either.
        await _put(node, partition, (b"1", b"small"))
        assert await _compact(node, partition, roll=False) is None
        await asyncio.sleep(3700)
        assert await _compact(node, partition, roll=False) is not None
        assert sorted(await _shown(partition)) == [2, 3, 4, 5, 6, 7, 8, 9]

    on_node(scenario)


@pytest.mark.parametrize(("size", "age_ms"), [(100, None), (None, 1000)])
def test_the_head_is_compacted_too_if_segments_are_asked_to_be_small(size: int | None, age_ms: int | None) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, dataclasses.replace(CONFIG, segment_bytes=size, segment_ms=age_ms))
        await _put(node, partition, (b"a", b"1"))
        await _put(node, partition, (b"a", b"2"))
        await asyncio.sleep(2)
        assert await _compact(node, partition, roll=False) is not None
        assert await _shown(partition) == {1: (b"a", b"2")}

    on_node(scenario)


def test_a_map_that_is_full_leaves_the_rest_to_the_next_pass() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(60):
            await _put(node, partition, (b"%d" % (number % 25), b"x" * 150))
        reached = []
        while (summary := await _compact(node, partition, map_bytes=1)) is not None:
            assert summary.keys <= 8
            reached.append(summary.clean_to)
        assert reached == sorted(set(reached))
        assert len(reached) > 3
        assert reached[-1] == 60
        assert sorted(await _shown(partition)) == list(range(35, 60))

    on_node(scenario)


def test_the_map_takes_no_more_memory_than_it_may_nor_than_it_needs() -> None:
    for bytes_max in (1 << 16, 1 << 20, 1 << 24):
        assert 0.95 * bytes_max < KeyMap(10**9, bytes_max, Random(1)).bytes_held <= bytes_max + 100
    assert KeyMap(1000, 1 << 24, Random(1)).bytes_held < 50_000


async def _transaction(partition: Partition, producer: int, *pairs: tuple[bytes, bytes | None]) -> None:
    raw = make_keyed_batch(pairs, attributes=0x10, producer_id=producer, producer_epoch=0)
    await partition.write(raw)


def test_nothing_of_an_open_transaction_nor_behind_it_is_touched() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _put(node, partition, (b"a", b"x" * 1200))
        await _transaction(partition, 7, (b"a", b"y" * 1200))
        await _put(node, partition, (b"a", b"z" * 1200))
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == [0, 1, 2]
        assert partition.clean.clean_to == 1
        await partition.write(make_marker(commit=True, producer_id=7))
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == [2]

    on_node(scenario)


def test_what_was_aborted_goes_and_supersedes_nothing() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _put(node, partition, (b"a", b"valid" * 300))
        await _transaction(partition, 7, (b"a", b"aborted" * 200))
        await partition.write(make_marker(commit=False, producer_id=7))
        await _transaction(partition, 7, (b"b", b"committed"))
        await partition.write(make_marker(commit=True, producer_id=7))
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == [0, 3]
        assert partition.aborted_between(0, 10) == [Aborted(2, 7, 1)]
        assert [record.offset for record in await read_committed(partition)] == [0, 3]
        # When its marker is gone, so is all memory of it: what the producer wrote later must not be taken for aborted.
        await asyncio.sleep(2 * DAY_MS / 1000)
        await _compact(node, partition)
        for each in (partition, await _again(node)):
            assert each.aborted_between(0, 10) == []
            assert [record.offset for record in await read_committed(each)] == [0, 3]
            assert _markers(await raw_batches(each, 0, 10_000)) == [4]

    on_node(scenario)


def test_a_marker_stays_as_long_as_anything_of_its_transaction() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, dataclasses.replace(CONFIG, delete_retention_ms=1000))
        await _transaction(partition, 7, (b"a", b"1" * 1200))
        await partition.write(make_marker(commit=True, producer_id=7))
        await _put(node, partition, (b"b", b"x" * 1200))
        for _ in range(3):
            await _compact(node, partition)
            await asyncio.sleep(10)
        assert _markers(await raw_batches(partition, 0, 10_000)) == [1]
        for number in range(3):
            await _put(node, partition, (b"a", b"%d" % number * 1200))
            await asyncio.sleep(10)
            await _compact(node, partition)
        assert _markers(await raw_batches(partition, 0, 10_000)) == []
        assert len(await _shown(partition)) == 2

    on_node(scenario)


def _markers(read: tuple[bytes, int]) -> list[int]:
    raw, _ = read
    found: list[int] = []
    at = 0
    while at < len(raw):
        if raw[at + 22] & 0x20:
            found.append(int.from_bytes(raw[at : at + 8], "big"))
        at += 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
    return found


def test_times_are_those_of_what_is_left() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await partition.write(make_keyed_batch([(b"a", b"x" * 600), (b"b", b"x" * 600)], timestamps=[900, 100]))
        await partition.write(make_keyed_batch([(b"a", b"y" * 1200)], timestamps=[200]))
        assert partition.max_timestamp == 900
        await _compact(node, partition)
        for each in (partition, await _again(node)):
            assert each.max_timestamp == 200
            found = await each.find_time(150)
            assert found is not None
            assert found[0] == 2
            assert await each.find_time(201) is None

    on_node(scenario)


def test_producers_continue_during_a_pass() -> None:
    """At every step that takes long: while bytes are worked on, and while they are written."""

    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(20):
            await _put(node, partition, (b"%d" % (number % 4), b"x" * 400))
        written: list[int] = []

        async def offload(work: Callable[[], T]) -> T:
            written.append(await _put(node, partition, (b"meanwhile", b"%d" % len(written))))
            return work()

        await partition.roll_head()
        summary = await compact(partition, clock=node.clock, random=Random(1), offload=offload)
        assert summary is not None
        assert summary.is_complete
        assert len(written) >= 3  # as keys are noted, as bodies are sifted, and before they are replaced
        assert written == list(range(20, 20 + len(written)))
        shown = await _shown(partition)
        assert [offset for offset in shown if offset < 20] == [16, 17, 18, 19]
        assert [offset for offset in shown if offset >= 20] == written

    on_node(scenario)


@pytest.mark.parametrize("refused_from", range(7))
def test_a_pass_that_cannot_write_changes_nothing_and_the_next_one_ends_it(refused_from: int) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(20):
            await _put(node, partition, (b"%d" % (number % 4), b"x" * 400))
        await partition.roll_head()
        puts = [0]

        def fate(_: object) -> Fate:
            puts[0] += 1
            return ERROR if puts[0] > refused_from else FINE

        node.hooked.fate = fate
        failed = await asyncio.gather(_compact(node, partition, roll=False), return_exceptions=True)
        node.hooked.fate = lambda _: FINE
        shown = await _shown(partition)
        assert {offset: shown[offset] for offset in (16, 17, 18, 19)} == {
            at: (b"%d" % (at % 4), b"x" * 400) for at in range(16, 20)
        }
        partition = await _again(node)
        assert await _shown(partition) == shown
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == [16, 17, 18, 19]
        assert list(partition.tablet.keys(b"w", b"x")) == []
        assert isinstance(failed[0], Exception) or refused_from > 4

    on_node(scenario)


def test_replaced_bodies_are_deleted() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(40):
            await _put(node, partition, (b"%d" % (number % 2), b"x" * 1000))
        await _compact(node, partition)
        await partition.tablet.collect_garbage()
        assert sum(blob.size for blob in await node.blobs(DATA)) < 5000

    on_node(scenario)


def test_a_reader_that_waits_for_a_body_while_it_is_replaced_reads_what_took_its_place() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(12):
            await _put(node, partition, (b"%d" % (number % 2), b"x" * 700))
        await partition.roll_head()
        partition = await _again(node)
        node.hooked.get_gate = asyncio.Event()
        readers: list[asyncio.Task[tuple[bytes, int]]] = []
        searches: list[asyncio.Task[object]] = []
        for offset in range(12):
            readers.append(asyncio.create_task(raw_batches(partition, offset, 1)))
            searches.append(asyncio.create_task(partition.find_time(1)))
        await asyncio.sleep(0)
        compacting = asyncio.create_task(_compact(node, partition, roll=False))
        gate, node.hooked.get_gate = node.hooked.get_gate, None
        await compacting
        await partition.tablet.collect_garbage()
        gate.set()
        for offset, reader in enumerate(readers):
            raw, next_offset = await reader
            assert next_offset > offset
            assert int.from_bytes(raw[:8], "big") >= offset
        for search in searches:
            assert await search is not None

    on_node(scenario)


def test_a_trim_in_the_midst_ends_a_pass_early() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(40):
            await _put(node, partition, (b"%d" % number, b"x" * 700))

        async def offload(work: Callable[[], T]) -> T:
            await partition.trim(min(partition.start_offset + 7, 40))
            return work()

        summary = await compact(partition, clock=node.clock, random=Random(1), offload=offload)
        assert summary is not None
        assert not summary.is_complete
        assert partition.clean.clean_to == 0
        start = partition.start_offset
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == list(range(start, 40))
        assert list(partition.tablet.keys(b"w", b"x")) == []

    on_node(scenario)


def test_two_passes_at_once_are_one() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        for number in range(10):
            await _put(node, partition, (b"%d" % (number % 2), b"x" * 700))
        first, second = await asyncio.gather(_compact(node, partition, roll=False), _compact(node, partition, roll=False))
        assert first is not None
        assert second is None

    on_node(scenario)


def test_a_message_without_a_key_that_is_there_already_stays() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await partition.write(make_keyed_batch([(None, b"x" * 1000), (None, None), (b"a", b"1")]))
        await partition.write(make_keyed_batch([(b"a", b"2" * 1200)]))
        await _compact(node, partition)
        assert sorted(await _shown(partition)) == [0, 1, 3]

    on_node(scenario)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_that_nobody_can_read_stays_and_holds_up_nothing(codec: int) -> None:
    """As a client may have sent it before the topic became compacted."""

    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        raw = bytearray(make_keyed_batch([(b"a", b"x" * 100)], codec=codec))
        raw[61:] = b"\xff" * len(raw[61:])
        raw[17:21] = crc32c(memoryview(raw)[21:]).to_bytes(4, "big")
        await _put(node, partition, (b"a", b"old" * 400))
        await partition.write(bytes(raw))
        await _put(node, partition, (b"a", b"new" * 400))
        summary = await _compact(node, partition)
        assert summary is not None
        stored, _ = await raw_batches(partition, 0, 10_000)
        assert stored[16 : len(raw)] == raw[16:]
        assert int.from_bytes(stored[len(raw) : len(raw) + 8], "big") == 2

    on_node(scenario)
