"""Deletion from a partition: by time, by size, on demand, never before important consumers; and the metadata deleted with it."""

from __future__ import annotations

import asyncio

import pytest

from penstock.blob import BlobId
from penstock.core.errors import OutOfSpaceError, UnavailableError
from penstock.queue import OffsetOutOfRangeError, Partition, PartitionConfig, SourceWrite, WriteResult
from penstock.testing.batches import make_batch, make_marker
from tests.sim_tablet import DATA, ERROR, FINE, FULL, LOG, Fate, SimNode, content, history, on_node, turns

LOW = 3000
EPOCH_MS = 1_700_000_000_000


def _config(
    *, ms: int | None = None, size: int | None = None, important: frozenset[str] = frozenset(), low: int = LOW
) -> PartitionConfig:
    return PartitionConfig(low_watermark=low, retention_ms=ms, retention_bytes=size, important_consumers=important)


async def _new(node: SimNode, config: PartitionConfig) -> Partition:
    return await (await node.queue(1, config)).add_partition(0)


async def _fill(partition: Partition, numbers: range, age_step_ms: int = 1000) -> None:
    for number in numbers:
        await partition.write(make_batch([content(700, number)], timestamp=EPOCH_MS + number * age_step_ms))


def _places(messages: list[tuple[int, bytes]]) -> list[int]:
    return [place for place, _ in messages]


def test_without_limits_nothing_is_deleted() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        await _fill(partition, range(20))
        await asyncio.sleep(10**6)
        assert await partition.retain() == 0
        assert partition.start_offset == 0

    on_node(scenario)


def test_old_blobs_go_by_time_whole_and_only_when_all_of_them_is_old() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config(ms=10_000))
        await _fill(partition, range(20))
        assert await partition.retain() == 0
        node.clock.skew_s = 16.5 - asyncio.get_running_loop().time()  # messages 0 to 6 are older than 10 s
        first_body = partition._bodies[0].next_offset
        gone = await partition.retain()
        assert gone == partition.start_offset
        assert gone % first_body == 0
        assert 7 - first_body < gone <= 7
        assert await partition.retain() == 0
        assert _places(await history(partition)) == list(range(gone, 20))
        node.clock.skew_s = 10**6
        await partition.retain()
        assert (partition.start_offset, partition.end_offset, partition.size) == (20, 20, 0)
        again = (await node.queue(2, _config())).partition(0)
        assert (again.start_offset, again.end_offset) == (20, 20)
        assert (await again.write(make_batch([b"next"]))).base_offset == 20

    on_node(scenario)


def test_bodies_go_by_size_while_enough_is_left_without_them() -> None:
    async def scenario(node: SimNode) -> None:
        limit = 8000
        partition = await _new(node, _config(size=limit))
        await _fill(partition, range(40))
        body = partition._bodies[0].size
        await partition.retain()
        assert limit <= partition.size < limit + body
        assert _places(await history(partition)) == list(range(partition.start_offset, 40))
        again = (await node.queue(2, _config(size=limit))).partition(0)
        assert (again.start_offset, again.size) == (partition.start_offset, partition.size)
        assert await again.retain() == 0

    on_node(scenario)


@pytest.mark.parametrize(("segment", "step"), [(1 << 30, 1 << 20), (300_000, 300_000), (14, 128 << 10)])
def test_retention_by_size_goes_in_steps_of_a_segment_or_a_quarter_of_what_is_kept(segment: int, step: int) -> None:
    async def scenario(node: SimNode) -> None:
        limit = 4 << 20
        partition = await _new(node, PartitionConfig(segment_bytes=segment, retention_bytes=limit))
        for number in range(70):
            await partition.write(make_batch([content(100_000, number)]))
            if number == 65:
                await partition.retain()
                assert limit <= partition.size < limit + step
        assert max(body.size for body in partition.bodies) <= step
        await partition.retain()
        assert limit <= partition.size < limit + step
        assert _places(await history(partition)) == list(range(partition.start_offset, 70))

    on_node(scenario)


def test_what_is_not_a_body_yet_goes_by_size_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.queue.tail.TAIL_BYTES_MAX", 20_000)

    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config(size=5000, low=1 << 20))
        for number in range(40):
            await partition.write(make_batch([content(2000, number)]))
        assert not partition.bodies
        await partition.retain()
        assert 5000 <= partition.size < 5000 + 20_000
        assert (await node.queue(2, _config())).partition(0).start_offset == partition.start_offset > 0

    on_node(scenario)


def test_retention_waits_for_an_important_consumer() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config(ms=1, size=1, important=frozenset({"a", "b"})))
        await _fill(partition, range(20))
        node.clock.skew_s = 10**6
        assert await partition.retain() == 0
        await partition.commit("a", 20)
        await partition.commit("unimportant", 20)
        assert await partition.retain() == 0
        await partition.commit("b", 9)
        assert 0 < await partition.retain() <= 9
        assert partition.start_offset <= 9
        assert _places(await history(partition))[0] <= 9
        await partition.commit("b", 20)
        await partition.retain()
        assert partition.start_offset == 20

    on_node(scenario)


def test_positions_are_kept_and_those_outside_refused() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        await _fill(partition, range(5))
        assert partition.committed("reader") is None
        for offset in (6, -1, 10**9):
            with pytest.raises(OffsetOutOfRangeError, match=f"position {offset}"):
                await partition.commit("reader", offset)
        for offset in (5, 2):
            await partition.commit("reader", offset)
            assert partition.committed("reader") == offset
        again = (await node.queue(2, _config())).partition(0)
        assert again.committed("reader") == 2
        assert again.committed("читатель") is None
        await again.commit("читатель", 1)
        assert again.committed("читатель") == 1

    on_node(scenario)


@pytest.mark.parametrize("low_watermark", [LOW, 1 << 20], ids=["bodies", "head"])
def test_a_partition_is_trimmed_at_any_offset_and_nothing_is_renumbered(low_watermark: int) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config(low=low_watermark))
        expected = [(number, content(250, number)) for number in range(60)]
        for number in range(0, 60, 4):
            await partition.write(make_batch([value for _, value in expected[number : number + 4]]))
        generation = 1
        for offset in (1, 2, 4, 19, 20, 37, 59, 60):
            assert await partition.trim(offset) == offset
            assert await history(partition) == expected[offset:]
            generation += 1
            again = (await node.queue(generation, _config(low=low_watermark))).partition(0)
            assert (again.start_offset, again.end_offset, again.size) == (offset, 60, partition.size)
            assert await history(again) == expected[offset:]
            partition = again
        assert partition.size == 0
        assert (await partition.write(make_batch([b"next"]))).base_offset == 60

    on_node(scenario)


def test_trimming_backwards_does_nothing_and_beyond_the_end_is_refused() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        await _fill(partition, range(5))
        await partition.trim(3)
        assert await partition.trim(1) == 3
        with pytest.raises(OffsetOutOfRangeError, match="cannot trim to 6"):
            await partition.trim(6)
        assert _places(await history(partition)) == [3, 4]

    on_node(scenario)


def test_a_trim_that_fails_changes_nothing() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        await _fill(partition, range(10))
        for fate, error in ((ERROR, UnavailableError), (FULL, OutOfSpaceError)):
            node.hooked.on(LOG, fate)
            with pytest.raises(error):
                await partition.trim(5)
            assert len(await history(partition)) == 10
        node.hooked.on(LOG, FINE)
        await partition.trim(5)
        assert _places(await history(partition)) == list(range(5, 10))

    on_node(scenario)


def test_a_trim_of_more_than_one_log_entry_holds_is_done_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        await _fill(partition, range(80))
        kept = await history(partition)
        bodies = len(partition.bodies)
        assert bodies > 12
        # No log entry takes all of these, and a crash may come after each step.
        monkeypatch.setattr("penstock.tablet.sequencer.ENTRY_BYTES_MAX", 400)
        monkeypatch.setattr("penstock.queue.partition.CUT_KEYS_MAX", 4)
        entries: list[int] = []

        def lost_at_the_third(blob: BlobId) -> Fate:
            entries.append(blob.step)
            return FINE if len(entries) < 3 else ERROR

        node.hooked.fate = lost_at_the_third
        with pytest.raises(UnavailableError):
            await partition.trim(75)
        assert 0 < partition.start_offset < 75
        again = (await node.queue(2, _config())).partition(0)
        assert again.start_offset == partition.start_offset == again.bodies[0].first_offset
        assert await history(again) == kept[again.start_offset :]
        assert await again.trim(75) == 75
        assert await history((await node.queue(3, _config())).partition(0)) == kept[75:]

    on_node(scenario)


def test_a_trim_over_many_aborted_transactions_is_done_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        for number in range(30):
            await partition.write(make_batch([b"v"], attributes=0x10, producer_id=number, producer_epoch=0, base_sequence=0))
            await partition.write(make_marker(commit=False, producer_id=number))
        assert len(partition.aborted_between(0, 60)) == 30
        monkeypatch.setattr("penstock.tablet.sequencer.ENTRY_BYTES_MAX", 400)
        monkeypatch.setattr("penstock.queue.partition.CUT_KEYS_MAX", 5)
        assert await partition.trim(58) == 58
        again = (await node.queue(2, _config())).partition(0)
        assert [one.producer_id for one in again.aborted_between(0, 60)] == [29]

    on_node(scenario)


def test_trims_and_writes_at_once_keep_each_others_effects() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        await _fill(partition, range(10))
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        work = [
            asyncio.create_task(partition.write(make_batch([content(900, 10)]))),
            asyncio.create_task(partition.trim(9)),
            asyncio.create_task(partition.write(make_batch([content(2500, 11)]))),
            asyncio.create_task(partition.trim(4)),
            asyncio.create_task(partition.retain()),
        ]
        await turns()
        gate.set()
        await asyncio.gather(*work)
        expected = [(9, content(700, 9)), (10, content(900, 10)), (11, content(2500, 11))]
        assert await history(partition) == expected
        assert await history((await node.queue(2, _config())).partition(0)) == expected

    on_node(scenario)


def test_deleted_messages_are_gone_from_the_storage() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1, _config())
        partition = await tablet.add_partition(0)
        await _fill(partition, range(30))
        await partition.trim(30)
        await tablet.tablet.collect_garbage()
        assert await node.blobs(DATA) == []

    on_node(scenario)


def test_a_source_is_forgotten_when_all_it_wrote_is_gone_and_not_before() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config())
        await partition.write(make_batch([b"a", b"b"]), SourceWrite(b"early", 1))
        await partition.write(make_batch([b"c"]), SourceWrite(b"late", 1))
        await partition.write(make_batch([b"d"]), SourceWrite(b"early", 3))
        await partition.trim(3)
        await partition.retain()
        assert partition.source(b"late") is None
        assert partition.source(b"early") is not None
        assert await partition.write(make_batch([b"d"]), SourceWrite(b"early", 3)) == WriteResult(3, duplicate=True)
        await partition.trim(4)
        assert partition.source(b"early") is not None  # until the next retention
        await partition.retain()
        assert partition.source(b"early") is None
        assert list((await node.queue(2, _config())).partition(0).sources()) == []

    on_node(scenario)


def test_sources_of_other_partitions_are_not_forgotten() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1, _config())
        for number in (0, 1, 256):
            await (await tablet.add_partition(number)).write(make_batch([b"v"]), SourceWrite(b"s", 1))
        await tablet.partition(1).trim(1)
        await tablet.partition(1).retain()
        assert [tablet.partition(number).source(b"s") is None for number in (0, 1, 256)] == [False, True, False]

    on_node(scenario)


def test_many_sources_are_forgotten_a_few_at_a_time() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, _config(low=1 << 20))
        await asyncio.gather(*(partition.write(make_batch([b"v"]), SourceWrite(b"%05d" % i, 1)) for i in range(4500)))
        await partition.write(make_batch([b"v"]), SourceWrite(b"02000", 2))
        await partition.trim(4500)
        left = []
        for _ in range(3):
            await partition.retain()
            left.append(sum(1 for _ in partition.sources()))
        assert left == [2500, 501, 1]
        assert [source for source, _ in partition.sources()] == [b"02000"]

    on_node(scenario)
