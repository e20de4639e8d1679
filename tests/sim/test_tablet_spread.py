"""How many tablets the partitions of a topic have, and in which storage groups they are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import pytest

from penstock.broker import Topic, TopicConfig
from penstock.broker.catalog import Catalog
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker


class Spread(NamedTuple):
    """Nodes, each with a storage group of its own or with one for all."""

    spread: int
    groups: tuple[int, ...] = ()

    def choose_groups(self, count: int) -> Sequence[int]:
        """One group after another."""
        return [self.groups[at % len(self.groups)] for at in range(count)] if self.groups else []


async def _catalog(host: SimBroker) -> Catalog:
    await host.start()
    return Catalog(host.broker.system_tablets.system, Random(1))


@pytest.mark.parametrize(
    ("partitions", "nodes", "tablets"), [(17, 1, 2), (1, 3, 1), (2, 3, 2), (4, 3, 4), (12, 3, 3), (100, 3, 7), (100, 50, 50)]
)
def test_there_are_as_many_tablets_as_nodes_if_there_are_partitions(partitions: int, nodes: int, tablets: int) -> None:
    async def scenario() -> None:
        host = SimBroker()
        catalog = await _catalog(host)
        topic = await host.do(catalog.create("t", partitions, TopicConfig(), spread=Spread(nodes)))
        assert len(set(topic.tablets)) == tablets
        assert list(topic.tablets) == sorted(topic.tablets)
        assert topic.groups == ()
        assert topic.group_of(topic.tablets[0]) is None
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_groups_are_kept_for_each_tablet_and_those_before_stay_where_they_are() -> None:
    async def scenario() -> None:
        host = SimBroker()
        catalog = await _catalog(host)
        await host.do(catalog.create("t", 2, TopicConfig()))
        topic = await host.do(catalog.add_partitions("t", 5, Spread(3, (7, 8, 9))))
        assert topic.groups == (None, None, 7, 8, 9)
        assert [topic.group_of(tablet_id) for tablet_id in topic.tablets] == [None, None, 7, 8, 9]
        topic = await host.do(catalog.add_partitions("t", 6))
        assert topic.groups == (None, None, 7, 8, 9, None)
        assert Topic.unpack(topic.pack()).groups == topic.groups
        assert catalog.topic_of_tablet(topic.tablets[3]) == topic
        assert catalog.topic_of_tablet(catalog.next_tablet) is None
        await host.stop()

    run_simulation(scenario(), seed=1)
