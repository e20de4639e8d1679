"""The assignors against what they promise, for any subscriptions and any history."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker import TopicPartition
from penstock.broker.groups.assignors import ASSIGNORS, Assignor, Candidate, range_, uniform

TOPICS = [UUID(int=number) for number in range(1, 6)]
SIZES = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
NAMES = st.lists(st.sampled_from([f"member-{number}" for number in range(8)]), min_size=1, unique=True)
ALL = frozenset(TOPICS)


@st.composite
def mixed(draw: st.DrawFn) -> tuple[dict[str, Candidate], dict[UUID, int]]:
    """Members that want different topics and hold anything, also what is gone or what others hold too."""
    sizes = draw(SIZES)
    held = st.frozensets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 14)), max_size=20)
    wanted = st.frozensets(st.sampled_from(TOPICS))
    return {name: Candidate(draw(wanted), draw(held)) for name in draw(NAMES)}, sizes


def queues_of(sizes: Mapping[UUID, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, count in sizes.items() for number in range(count)}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@settings(deadline=None)
@given(mixed())
def test_every_partition_goes_to_one_of_its_subscribers(
    assignor: Assignor, drawn: tuple[dict[str, Candidate], dict[UUID, int]]
) -> None:
    members, sizes = drawn
    target = assignor(members, sizes)
    assert target.keys() == members.keys()
    given_out = [queue for queues in target.values() for queue in queues]
    wanted = frozenset[UUID]().union(*(member.subscribed for member in members.values()))
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {queue for queue in queues_of(sizes) if queue.topic_id in wanted}
    assert all(queue.topic_id in members[name].subscribed for name, queues in target.items() for queue in queues)


@settings(deadline=None)
@given(mixed())
def test_uniform_cannot_be_made_more_even_by_moving_a_partition(drawn: tuple[dict[str, Candidate], dict[UUID, int]]) -> None:
    members, sizes = drawn
    target = uniform(members, sizes)
    for giver, queues in target.items():
        for topic in {queue.topic_id for queue in queues}:
            takers = [name for name, member in members.items() if topic in member.subscribed]
            assert all(len(queues) - len(target[taker]) <= 1 for taker in takers), (giver, topic)


@settings(deadline=None)
@given(mixed())
def test_uniform_leaves_what_it_made_as_it_is(drawn: tuple[dict[str, Candidate], dict[UUID, int]]) -> None:
    members, sizes = drawn
    target = uniform(members, sizes)
    assert uniform({name: one._replace(held=target[name]) for name, one in members.items()}, sizes) == target


@settings(deadline=None)
@given(NAMES, NAMES, SIZES, SIZES)
def test_uniform_moves_no_more_than_balance_asks(
    before: list[str], after: list[str], sizes: dict[UUID, int], grown: dict[UUID, int]
) -> None:
    old = uniform({name: Candidate(ALL) for name in before}, sizes)
    new = uniform({name: Candidate(ALL, old.get(name, frozenset())) for name in after}, grown)
    there = queues_of(grown)
    counts = sorted((len(queues) for queues in new.values()), reverse=True)
    assert counts[0] - counts[-1] <= 1
    # At best the members that hold most get the larger shares; each then gives up what it holds beyond its own, and no more.
    still_held = sorted((len(old.get(name, frozenset()) & there) for name in after), reverse=True)
    must_move = sum(max(held - count, 0) for held, count in zip(still_held, counts, strict=True))
    moved = sum(len((old.get(name, frozenset()) & there) - new[name]) for name in after)
    assert moved == must_move


@settings(deadline=None)
@given(NAMES, SIZES)
def test_range_gives_neighbours_and_the_same_numbers_of_equal_topics(names: list[str], sizes: dict[UUID, int]) -> None:
    target = range_({name: Candidate(ALL) for name in names}, sizes)
    for queues in target.values():
        numbers = {topic: sorted(queue.partition for queue in queues if queue.topic_id == topic) for topic in sizes}
        for topic, found in numbers.items():
            assert found == list(range(found[0], found[0] + len(found))) if found else True
            assert all(numbers[other] == found for other in sizes if sizes[other] == sizes[topic])


def test_range_keeps_to_the_order_of_instance_ids() -> None:
    members = {"z": Candidate(ALL, instance_id="1"), "a": Candidate(ALL, instance_id="2")}
    target = range_(members, {TOPICS[0]: 3})
    assert target == {"z": {TopicPartition(TOPICS[0], 0), TopicPartition(TOPICS[0], 1)}, "a": {TopicPartition(TOPICS[0], 2)}}


def test_uniform_sorts_out_a_thousand_members() -> None:
    sizes = {UUID(int=number): 100 for number in range(1, 101)}
    wanted = [frozenset(list(sizes)[first:]) for first in range(10)]
    members = {f"member-{number}": Candidate(wanted[number % 10]) for number in range(1000)}
    assert {len(queues) for queues in uniform(members, sizes).values()} == {10}
