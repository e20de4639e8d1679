"""Offsets of a stream and the ranges that tasks read: how they are kept, limited and cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.client import Address, TopicPartition
from penstock.spark.errors import CheckpointError
from penstock.spark.ranges import TASK_OFFSETS_MIN, OffsetRange, StreamOffset, limit_offsets, share_tasks, split_ranges

topic_partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c"]), st.integers(0, 5))
positions = st.dictionaries(topic_partitions, st.integers(0, 1 << 40))


def a_range(start: int, stop: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), start, stop, Address("h", 1), bytes(16))


@given(positions, st.dictionaries(st.sampled_from(["a", "b.c"]), st.uuids().map(lambda one: one.hex)), st.none() | positions)
def test_an_offset_comes_back_from_a_checkpoint(
    found: dict[TopicPartition, int], ids: dict[str, str], begun: dict[TopicPartition, int] | None
) -> None:
    offset = StreamOffset(found, ids, begun)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_a_checkpoint_of_the_kafka_source_is_understood() -> None:
    offset = StreamOffset.from_json({"t": {"0": 23, "1": 5}})
    assert offset.positions == {TopicPartition("t", 0): 23, TopicPartition("t", 1): 5}
    assert not offset.is_other_topic(StreamOffset({}, {"t": "00"}), "t")


@pytest.mark.parametrize("found", [{"offset": 5}, {"t": {"x": 1}}, {"t": {"0": None}}, {"t": [1]}])
def test_a_checkpoint_of_another_source_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="another checkpointLocation"):
        StreamOffset.from_json(found)


@given(positions, positions, st.integers(1, 10_000))
def test_a_limit_is_kept_but_for_one_offset_a_partition(
    start: dict[TopicPartition, int], grown: dict[TopicPartition, int], most: int
) -> None:
    latest = {topic_partition: offset + grown.get(topic_partition, 0) for topic_partition, offset in start.items()}
    found = limit_offsets(start, latest, most)
    taken = {topic_partition: found[topic_partition] - start[topic_partition] for topic_partition in start}
    assert all(start[topic_partition] <= found[topic_partition] <= latest[topic_partition] for topic_partition in start)
    # Partitions with data left get more ranges.
    assert all(taken[topic_partition] > 0 for topic_partition in start if latest[topic_partition] > start[topic_partition])
    assert sum(taken.values()) <= most + len(start)


def test_a_limit_is_shared_by_how_much_is_left() -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limit_offsets({one: 0, two: 100}, {one: 900, two: 200}, 100) == {one: 90, two: 110}


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=5),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 300),
)
def test_cut_ranges_hold_every_offset_once(
    sizes: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = [a_range(start, start + size, number) for number, (start, size) in enumerate(sizes)]
    found = split_ranges(ranges, partitions_min, records_max)
    for one in ranges:
        parts = [part for part in found if part.topic_partition == one.topic_partition]
        assert [offset for part in parts for offset in range(part.start, part.stop)] == list(range(one.start, one.stop))
    if records_max is not None:
        assert all(part.size <= records_max for part in found)


def test_one_partition_is_read_by_as_many_tasks_as_asked() -> None:
    assert [part[1:3] for part in split_ranges([a_range(0, 100)], 4, None)] == [(0, 25), (25, 50), (50, 75), (75, 100)]
    assert [part.size for part in split_ranges([a_range(0, 100), a_range(0, 300, 1)], 4, None)] == [100, 100, 100, 100]
    assert split_ranges([a_range(0, 3), a_range(5, 5, 1)], None, None) == [a_range(0, 3)]


@given(st.lists(st.integers(1, 2 * TASK_OFFSETS_MIN)))
def test_small_ranges_share_a_task_and_large_ones_do_not(sizes: list[int]) -> None:
    ranges = [a_range(0, size, number) for number, size in enumerate(sizes)]
    tasks = share_tasks(ranges, None)
    assert [one for task in tasks for one in task] == ranges
    assert all(len(task) == 1 or sum(one.size for one in task) <= TASK_OFFSETS_MIN for task in tasks)
    # None could have been joined to the one before.
    for before, after in pairwise(tasks):
        assert sum(one.size for one in before) + after[0].size > TASK_OFFSETS_MIN


def test_no_task_is_shared_where_as_many_are_wanted() -> None:
    ranges = [a_range(0, 5, number) for number in range(4)]
    assert share_tasks(ranges, 1) == [ranges]
    assert share_tasks(ranges, 2) == [[one] for one in ranges]
