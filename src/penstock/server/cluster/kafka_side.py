"""What a node of a cluster needs for its Kafka clients: the leader of each partition, and the connection to the cluster's
leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from penstock.broker import Broker, Tablets
from penstock.broker.table_feed import FollowedTable, TablePosition
from penstock.coordination import Coordination, KeyChange
from penstock.core.clock import Clock
from penstock.gateway.kafka import KafkaGateway
from penstock.interconnect import Interconnect, Link
from penstock.server.cluster.forwarding import ForwardService, LeaderForwarder
from penstock.server.cluster.kafka_view import InStep, KafkaView, MoveTablet, ReachableMembers
from penstock.server.cluster.serving_tablets import ServingTablets


class KafkaSide:
    """It lives as long as the node, whatever its role. Its view is used by the listeners of the present role."""

    def __init__(
        self,
        node_id: int,
        coordination: Coordination,
        interconnect: Interconnect,
        tablets: Tablets,
        *,
        loads: Callable[[], dict[int, float]],
        link_to: Callable[[int], Link],
        is_connected: Callable[[int], bool],
        in_step: InStep,
        behind: Callable[[], frozenset[int]],
        rack: str,
        clock: Clock,
        random: Random,
    ) -> None:
        self._node_id = node_id
        self._coordination = coordination
        self._tablets = tablets
        self._in_step = in_step
        self._rack = rack
        self._members = ReachableMembers(coordination, is_connected, clock.monotonic)
        self._serving = ServingTablets(
            node_id,
            interconnect,
            link_to,
            own=tablets.generations,
            own_loads=loads,
            own_behind=behind,
            random=random,
            on_change=self._changed,
        )
        self._service = ForwardService(interconnect)
        self._forwarder = LeaderForwarder(node_id, self._leader, link_to, self._service)
        self.view = self._new_view(None, is_leading=False)

    def loads_elsewhere(self) -> dict[int, float]:
        """Bytes a second of tablets of other nodes, also of those that were lost."""
        return self._serving.loads()

    def start(self) -> None:
        """Follow the other nodes, and tell them of the tablets here."""
        self._tablets.watch(self._serving.changed)
        self._coordination.listen(self._follow)
        self._follow([])

    async def stop(self) -> None:
        """Follow no more."""
        self._coordination.unlisten(self._follow)
        self._tablets.unwatch(self._serving.changed)
        await self._serving.stop()

    def begin_leading(self, move_tablet: MoveTablet | None) -> KafkaView:
        """Returns the view for listeners of this node while it leads."""
        self.view = self._new_view(move_tablet, is_leading=True)
        return self.view

    def follow_table(self, table: FollowedTable | None) -> None:
        """The copy of the leader's tables here; None while there is none."""
        self._forwarder.table = table

    def begin_following(self) -> KafkaView:
        """Returns the view for listeners of this node while another leads."""
        self._service.stop_leading()
        if self.view.forwarder is None:
            self.view = self._new_view(None, is_leading=False)
        return self.view

    def serve(self, broker: Broker, gateways: Mapping[str, KafkaGateway], position: Callable[[], TablePosition]) -> None:
        """Answer what other nodes forward, with the listeners of this node by name; `position` is that of the broker's tables."""
        self._service.lead(broker, gateways, position)

    def check(self) -> None:
        """Look whether other disks are in step than before, and whether nodes without a lease can still be reached; to be called
        now and then."""
        if self._members.update():
            self._follow_members()
        self._serving.check_behind()
        self.view.check_in_step()

    def _new_view(self, move_tablet: MoveTablet | None, *, is_leading: bool) -> KafkaView:
        return KafkaView(
            self._node_id,
            self._coordination,
            self._members,
            self._serving,
            default_group=self._tablets.group,
            in_step=self._in_step,
            forwarder=None if is_leading else self._forwarder,
            transaction_gate=self._forwarder,
            rack=self._rack,
            move_tablet=move_tablet,
        )

    def _leader(self) -> int | None:
        leader = self._coordination.leader
        return None if leader is None else leader.record.node_id

    def _follow(self, _changes: list[KeyChange]) -> None:
        self._members.update()
        self._follow_members()

    def _follow_members(self) -> None:
        self._serving.follow(self._members.records)
        self._changed()

    def _changed(self) -> None:
        self.view.changed()
