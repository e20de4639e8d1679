"""How much clients may make in all: what is one too many is refused with the setting to change, and room that is made counts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from penstock.broker import (
    Broker,
    BrokerLimits,
    BrokerOptions,
    InvalidPartitionsError,
    LimitReachedError,
    Position,
    TopicPartition,
)
from penstock.broker.groups.registry import CLASSIC
from penstock.broker.namespace import Kind
from tests.sim_tablet import SimNode, on_node

LIMITS = BrokerLimits(topic_partitions=6, partitions=10, groups=2, yt_nodes=3)


def _run(scenario: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    async def run(node: SimNode) -> None:
        broker = await Broker.start(node.storage, BrokerOptions(limits=LIMITS), clock=node.clock, random=Random(1))
        await scenario(broker)
        await broker.stop()

    on_node(run)


def test_partitions_of_a_topic_and_in_all_are_limited() -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(InvalidPartitionsError, match="topic_partitions_max"):
            await broker.create_topic("wide", 7)
        await broker.create_topic("one", 6)
        await broker.create_topic("two", 3)
        with pytest.raises(LimitReachedError, match=r"9 partitions in all, 2 more .* and 10 may be; .*partitions_max"):
            await broker.create_topic("three", 2)
        with pytest.raises(InvalidPartitionsError, match="topic_partitions_max"):
            await broker.add_partitions("one", 7)
        with pytest.raises(LimitReachedError):
            await broker.add_partitions("two", 5)
        await broker.add_partitions("two", 4)
        await broker.delete_topic("one")
        await broker.create_topic("three", 6)

    _run(scenario)


def test_groups_are_limited_those_with_positions_alone_too() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await broker.create_topic("read", 1)
        groups, queue = broker.groups, TopicPartition(topic.id, 0)
        for name in ("one", "two"):
            groups.check_commit(name, "", -1)
            await broker.consumers.commit(name, [(queue, Position(0))])
        with pytest.raises(LimitReachedError, match=r"2 groups of consumers, and 2 may be; group 'three'.*groups_max"):
            groups.check_commit("three", "", -1)
        with pytest.raises(LimitReachedError):
            groups.take("three", CLASSIC)
        groups.check_commit("two", "", -1)
        groups.take("one", CLASSIC)
        await groups.delete("two")
        groups.take("three", CLASSIC)

    _run(scenario)


def test_nodes_of_the_tree_are_limited() -> None:
    async def scenario(broker: Broker) -> None:
        namespace = broker.namespace
        await namespace.create("//home/a/consumer", Kind.CONSUMER, {}, recursive=True)
        with pytest.raises(LimitReachedError, match="yt_nodes_max"):
            await namespace.create("//home/b/c/consumer", Kind.CONSUMER, {}, recursive=True)
        await namespace.remove("//home/a/consumer")
        await namespace.create("//home/a/other", Kind.CONSUMER, {})

    _run(scenario)
