"""Which nodes and leaders clients are told of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.coordination import MemberRecord
from penstock.gateway.kafka import NO_EPOCH, Leader
from penstock.server.cluster.kafka_view import DEPARTED_S, KafkaView, ReachableMembers

TABLET = 1000


class Cluster:
    """Nodes 1 and 2 as node 1 sees them: their leases, its connection to node 2, and what that serves."""

    def __init__(self) -> None:
        self.leases = {node_id: self.record(node_id) for node_id in (1, 2)}
        self.connected = {2}
        self.serving = {2: {TABLET: 7}}
        coordination = cast(
            "Any", SimpleNamespace(members=lambda: list(self.leases.values()), groups=dict, owner_of=lambda _: 2, leader=None)
        )
        self.now = 100.0
        self.members = ReachableMembers(coordination, self.connected.__contains__, lambda: self.now)
        serving = cast("Any", SimpleNamespace(elsewhere=self.serving, are_behind=lambda _: frozenset()))
        self.view = KafkaView(
            1, coordination, self.members, serving, default_group=0, in_step=lambda _: frozenset(), forwarder=None
        )

    @staticmethod
    def record(node_id: int, *, is_leaving: bool = False) -> MemberRecord:
        return MemberRecord(
            node_id=node_id,
            name=f"n{node_id}",
            directory_id="",
            instance_id="",
            addresses={"kafka": f"10.0.0.{node_id}:9092"},
            is_leaving=is_leaving,
        )

    def told(self) -> tuple[list[int], Leader | None]:
        """The other brokers, and the leader of the tablet."""
        self.members.update()
        self.view.changed()
        return [broker.node_id for broker in self.view.others("kafka")], self.view.leader_elsewhere(TABLET)


def test_a_node_that_has_lost_its_lease_leads_its_partitions_for_as_long_as_it_is_reached() -> None:
    cluster = Cluster()
    assert cluster.told() == ([2], Leader(2, 7))
    del cluster.leases[2]
    assert cluster.told() == ([2], Leader(2, 7))
    cluster.serving.clear()
    assert cluster.told() == ([2], Leader(2, NO_EPOCH))
    cluster.connected.clear()
    assert cluster.told() == ([], None)
    cluster.connected.add(2)  # whatever it is by now: it tells its address when it registers
    assert cluster.told() == ([], None)


def test_a_node_that_leaves_leads_nothing_once_its_lease_has_ended() -> None:
    cluster = Cluster()
    cluster.leases[2] = cluster.record(2, is_leaving=True)
    assert cluster.told() == ([2], Leader(2, 7))
    del cluster.leases[2]
    assert cluster.told()[1] is None


def test_the_address_of_a_node_that_has_left_is_told_for_a_while_longer() -> None:
    cluster = Cluster()
    cluster.leases[2] = cluster.record(2, is_leaving=True)
    cluster.told()
    del cluster.leases[2]
    assert cluster.told() == ([2], None)
    cluster.now += DEPARTED_S - 0.1
    assert cluster.told() == ([2], None)
    cluster.now += 0.1
    assert cluster.members.update(), "clients are told of the change"
    assert cluster.told() == ([], None)
    cluster.now += DEPARTED_S
    assert not cluster.members.update()


def test_a_node_that_has_left_and_is_back_is_told_once() -> None:
    cluster = Cluster()
    cluster.leases[2] = cluster.record(2, is_leaving=True)
    cluster.told()
    del cluster.leases[2]
    assert cluster.told() == ([2], None)
    cluster.leases[2] = cluster.record(2)
    assert cluster.told() == ([2], Leader(2, 7))
    cluster.now += DEPARTED_S
    assert cluster.told() == ([2], Leader(2, 7))


@pytest.mark.parametrize("lost", ["connection", "lease"])
def test_a_change_of_reachable_nodes_is_noticed_once(lost: str) -> None:
    cluster = Cluster()
    cluster.connected.clear() if lost == "connection" else cluster.leases.pop(2)
    assert not cluster.members.update(), "either is enough"
    cluster.connected.clear()
    cluster.leases.pop(2, None)
    assert cluster.members.update()
    assert not cluster.members.update()
