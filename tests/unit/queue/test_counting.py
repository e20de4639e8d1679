"""Messages are counted as readers see them: without markers, without what was aborted, without what compaction took."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.core.record_format import TRANSACTIONAL
from penstock.queue import (
    Partition,
    PartitionConfig,
    backlog_of,
    committed_batches,
    compact,
    count_messages,
    in_place,
    joined,
    offset_of_last,
)
from penstock.queue.body import Body
from penstock.queue.keys import UNCOUNTED
from penstock.testing.batches import make_batch, make_marker, values_of
from tests.sim_tablet import SimNode, content, on_node

LOW = 3000


async def _transaction(partition: Partition, producer: int, sizes: list[int], *, commit: bool) -> None:
    for at, size in enumerate(sizes):
        values = [content(30, at)] * size
        await partition.write(make_batch(values, producer_id=producer, producer_epoch=0, attributes=TRANSACTIONAL))
    await partition.write(make_marker(commit=commit, producer_id=producer, producer_epoch=0))


async def _visible(partition: Partition) -> list[int]:
    """Offsets of all messages that readers of committed data see, the slow way."""
    read = await partition.read(partition.start_offset, 1 << 30, until=partition.stable_offset)
    aborted = partition.aborted_between(partition.start_offset, partition.end_offset)
    batches = committed_batches(joined(read), aborted)
    found = [place for batch in batches for place, _ in values_of(bytes(batch))]
    return [place for place in found if place >= partition.start_offset]


async def _check(partition: Partition, random: Random) -> None:
    places = await _visible(partition)
    end = partition.stable_offset
    assert await count_messages(partition, 0, end) == len(places)
    for _ in range(20):
        begin, until = sorted(random.randint(0, end) for _ in range(2))
        assert await count_messages(partition, begin, until) == sum(begin <= place < until for place in places)
    for count in (0, 1, 2, 7, len(places) // 2, len(places), len(places) + 5):
        offset = await offset_of_last(partition, count, end)
        assert sum(place >= offset for place in places) == min(count, len(places))


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_slow_way_whatever_happens(seed: int) -> None:
    random = Random(seed)

    async def scenario(node: SimNode) -> None:
        config = PartitionConfig(low_watermark=LOW)
        partition = await (await node.queue(1, config)).add_partition(0)
        for generation in (2, 3):
            for _ in range(40):
                if random.random() < 0.3:
                    await partition.write(make_batch([content(40)] * random.randint(1, 4)))
                else:
                    sizes = [random.randint(1, 3) for _ in range(random.randint(1, 3))]
                    await _transaction(partition, random.randint(1, 3), sizes, commit=random.random() < 0.7)
            await _check(partition, random)
            await partition.trim(random.randint(0, partition.end_offset // 2))
            await _check(partition, random)
            partition = (await node.queue(generation, config)).partition(0)  # as it is after a restart
            await _check(partition, random)
        assert partition.bodies
        assert sum(body.hidden for body in partition.bodies) > 0

    on_node(scenario)


def test_what_was_stored_before_messages_were_counted_is_counted_when_asked() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, PartitionConfig(low_watermark=LOW))).add_partition(0)
        for producer in range(60):
            await _transaction(partition, producer, [2], commit=True)
        bodies: list[Body] = list(partition.bodies)
        assert bodies
        held = partition.message_count
        for at, body in enumerate(bodies):
            old = body._replace(hidden=UNCOUNTED)
            index = partition.tablet.head(body.key)
            assert index == body.description.pack()
            assert old.description.pack()[0] == 1
            partition._bodies[at] = old
            partition._reader.remember(old, await partition._reader.piece(body))
        assert held == 120
        assert await count_messages(partition, 0, partition.end_offset) == 120

    on_node(scenario)


def test_the_quick_count_is_exact_but_for_the_first_blob() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, PartitionConfig(low_watermark=LOW))).add_partition(0)
        for producer in range(100):
            await _transaction(partition, producer, [1], commit=True)
        assert (partition.end_offset, partition.message_count) == (200, 100)
        await partition.trim(100)
        assert abs(partition.message_count - 50) <= partition.bodies[0].messages // 2
        await partition.trim(200)
        assert partition.message_count == 0
        assert partition.probe.messages_in == 100

    on_node(scenario)


def test_retention_by_number_keeps_messages_not_offsets() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, PartitionConfig(low_watermark=LOW, retention_messages=10))).add_partition(0)
        for producer in range(30):
            await _transaction(partition, producer, [1], commit=producer % 3 > 0)
        await partition.retain()
        assert len(await _visible(partition)) == 10

    on_node(scenario)


def test_what_compaction_leaves_is_counted() -> None:
    async def scenario(node: SimNode) -> None:
        config = PartitionConfig(low_watermark=LOW, is_compacted=True, min_dirty_ratio=0.0)
        partition = await (await node.queue(1, config)).add_partition(0)
        for number in range(200):
            await partition.write(make_batch([content(40, number)], key=b"key %d" % (number % 7)))
        await partition.roll_head()
        before = partition.end_offset
        await compact(partition, clock=node.clock, offload=in_place, random=Random(1))
        kept = len(await _visible(partition))
        assert kept < 20
        assert await count_messages(partition, 0, before) == partition.message_count == kept

    on_node(scenario)


def test_a_reader_before_the_last_marker_is_not_behind() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, PartitionConfig(low_watermark=LOW))).add_partition(0)
        await _transaction(partition, 1, [5], commit=True)
        for again in range(2):
            assert partition.end_offset == 6
            assert backlog_of(partition, 5).messages == 0
            assert backlog_of(partition, 4).messages == 2
            if not again:
                partition = (await node.queue(2, PartitionConfig(low_watermark=LOW))).partition(0)
        await partition.write(make_batch([b"x"]))
        await asyncio.sleep(0)
        assert backlog_of(partition, 5).messages == 2

    on_node(scenario)
