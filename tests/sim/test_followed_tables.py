"""Nodes that follow the leader's tables have what it has, after any change, restart of the system tablet, and lost history."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.broker import BrokerOptions, PartitionBroker, PartitionElsewhereError, Tablets, TopicConfig
from penstock.broker import table_feed as feeds
from penstock.broker.table_feed import FollowedTable, TableFeed
from penstock.core.errors import PenstockError, UnavailableError
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

WAIT_S = 1.0


class Following:
    """A broker that leads, and the copy of its tables on a node that follows."""

    def __init__(self, host: SimBroker) -> None:
        self.host = host
        self.feed = TableFeed(host.broker.system_tablets.system)
        self.changes: list[set[bytes] | None] = []
        self.table = FollowedTable(self.changes.append)

    async def catch_up(self) -> int:
        """Follow until there is nothing new; how many pages that took."""
        pages = 0
        while True:
            page = await self.feed.next_page(self.table.position, 0.0)
            self.table.take(page)
            pages += 1
            if not page.changes and self.table.position.next_key is None:
                return pages

    def check(self) -> None:
        """The copy is the same as the tablet."""
        tablet = self.host.broker.system_tablets.system
        assert {key: self.table.head(key) for key in self.table.keys(b"", None)} == {
            key: tablet.head(key) for key in tablet.keys(b"", None)
        }


async def _started() -> Following:
    return Following(await SimBroker().start())


def test_a_follower_has_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PAGE_BYTES", 300)
    monkeypatch.setattr(feeds, "CHANGES_MAX", 8)

    async def scenario() -> None:
        following = await _started()
        broker = following.host.broker
        for number in range(6):
            await following.host.do(broker.create_topic(f"t{number}", 2))
        assert await following.catch_up() >= 3, "a snapshot in pages"
        following.check()
        following.changes.clear()
        await following.host.do(broker.delete_topic("t0"))
        await following.host.do(broker.configure_topic("t1", TopicConfig({"retention.ms": "5"})))
        await following.catch_up()
        following.check()
        assert {b"tt0", b"tt1"} <= {key for keys in following.changes for key in keys or ()}
        for number in range(10):  # more than is kept
            await following.host.do(broker.create_topic(f"u{number}", 1))
        await following.catch_up()
        following.check()
        assert None in following.changes, "it was given all of it again"
        await following.host.break_system_tablet(0)
        while not broker.system_tablets.system.serves:
            with pytest.raises(UnavailableError):
                await following.feed.next_page(feeds.TablePosition(), WAIT_S)
            await asyncio.sleep(0.01)
        await following.catch_up()
        following.check()
        assert following.table.generation == broker.catalog.generation
        await following.host.stop()

    run_simulation(scenario(), seed=1)


class _Others:
    """A cluster of which node 2 owns everything."""

    node_id = 1
    leader = 2

    @staticmethod
    def owner_of(tablet_id: int) -> int | None:
        return 2

    @staticmethod
    def name_of(node_id: int) -> str:
        return f"node {node_id} (n2:9092)"


def test_partitions_are_served_by_the_node_that_has_their_tablet_and_by_one_only() -> None:
    async def scenario() -> None:
        following = await _started()
        broker, node = following.host.broker, following.host.node
        topic = await following.host.do(broker.create_topic("t", 1))
        await following.catch_up()
        fenced: list[int] = []
        tablets = Tablets(node.storage, 0, cache_bytes=1 << 20, clock=node.clock, random=Random(2), on_fenced=fenced.append)
        options = BrokerOptions()
        follower = PartitionBroker(following.table, tablets, options, clock=node.clock, random=Random(3), others=_Others())
        with pytest.raises(PartitionElsewhereError, match=r"partition 0 of topic 't' is on node 2 \(n2:9092\)") as caught:
            follower.partition(follower.catalog.topic("t"), 0)
        assert caught.value.node_id == 2
        await follower.host({topic.tablets[0]: topic})
        assert follower.partition(topic, 0).epoch == 2, "its generation is higher than the one before"
        third = Tablets(node.storage, 0, cache_bytes=1 << 20, clock=node.clock, random=Random(4), on_fenced=fenced.append)
        await third.host(topic.tablets[0], {0}, topic.config.for_partition())
        with pytest.raises(PenstockError):
            await follower.produce(topic, 0, make_batch([b"late"]))
        await asyncio.sleep(0.1)
        assert fenced == [topic.tablets[0]]
        assert not tablets.hosts(topic.tablets[0])
        await third.stop()
        await following.host.do(broker.delete_topic("t"))
        await following.catch_up()
        await follower.follow_tables(following.table, following.changes[-1])
        assert follower.catalog.topics() == []
        await following.host.stop()

    run_simulation(scenario(), seed=1)


def test_who_waits_for_a_change_goes_on_when_it_is_in_effect_and_not_before() -> None:
    async def scenario() -> None:
        following = await _started()
        await following.catch_up()
        table = following.table
        table.note_applied(table.position)
        await following.host.do(following.host.broker.create_topic("t", 1))
        changed = following.feed.position
        assert not await table.applied(changed, 0.1)
        waiting = asyncio.create_task(table.applied(changed, 10.0))
        await following.catch_up()
        await asyncio.sleep(0.1)
        assert not waiting.done(), "the change is here, but not in effect"
        table.note_applied(table.position)
        assert await waiting
        await following.host.stop()

    run_simulation(scenario(), seed=1)
