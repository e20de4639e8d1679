"""The cluster metadata that this node returns to Kafka clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.blob import Configuration, Erasure
from penstock.broker import Topic
from penstock.coordination import Coordination, MemberRecord
from penstock.core.errors import PenstockError
from penstock.gateway.kafka import NO_EPOCH, BrokerAddress, Forwarder, Leader, MoveRefusedError, Replicas, TransactionGate
from penstock.server.cluster.serving_tablets import ServingTablets

COPIES: Final = {Erasure.NONE: 1, Erasure.MIRROR_3: 3, Erasure.BLOCK_4_2: 3, Erasure.MIRROR_3_DC: 3}
"""How many replicas of Kafka's are as safe as a group of this kind: one more than it can lose at most."""

DEPARTED_S: Final = 5.0
"""For how long clients are told the address of a node that has left."""

InStep = Callable[[int], frozenset[int]]
"""The nodes all of whose disks in a storage group are in step."""

MoveTablet = Callable[[int, int], Awaitable[None]]
"""Has a tablet handed over to a node."""


class _Group(NamedTuple):
    nodes: tuple[int, ...]
    copies: int


class ReachableMembers:
    """The nodes that clients can be sent to, by id: those with a lease, and those that have lost it while this node is connected
    to them. One that is cut off from etcd serves its partitions until the leader has them handed over.

    `departed` are those that have left a moment ago. Clients are told their addresses for a while longer, though none listens:
    librdkafka loses a partition for up to a second if its broker vanishes with the same answer that tells its next leader."""

    def __init__(self, coordination: Coordination, is_connected: Callable[[int], bool], now: Callable[[], float]) -> None:
        self.records: dict[int, MemberRecord] = {}
        self.departed: dict[int, MemberRecord] = {}
        self._coordination = coordination
        self._is_connected = is_connected
        self._now = now
        self._departed_at: dict[int, float] = {}
        self.update()

    def update(self) -> bool:
        """Take in members and connections as they are now. Returns whether the nodes are others than before."""
        records = {member.node_id: member for member in self._coordination.members()}
        for node_id, record in self.records.items():
            if node_id not in records and not record.is_leaving and self._is_connected(node_id):
                records[node_id] = record
        before = self.records, self.departed
        self.departed = self._find_departed(records)
        self.records = records
        return before != (records, self.departed)

    def _find_departed(self, records: Mapping[int, MemberRecord]) -> dict[int, MemberRecord]:
        now, known = self._now(), {**self.departed, **self.records}
        gone = {node_id: record for node_id, record in known.items() if node_id not in records and record.is_leaving}
        self._departed_at = {node_id: self._departed_at.get(node_id, now) for node_id in gone}
        return {node_id: record for node_id, record in gone.items() if now - self._departed_at[node_id] < DEPARTED_S}


class KafkaView:
    """See ClusterView of the gateway. `changed` is called whenever something here may have changed."""

    def __init__(
        self,
        node_id: int,
        coordination: Coordination,
        members: ReachableMembers,
        serving: ServingTablets | None,
        *,
        default_group: int,
        in_step: InStep,
        forwarder: Forwarder | None,
        transaction_gate: TransactionGate | None = None,
        rack: str = "",
        move_tablet: MoveTablet | None = None,
    ) -> None:
        self.version = 0
        self.forwarder = forwarder
        self.transaction_gate = transaction_gate
        self._node_id = node_id
        self._coordination = coordination
        self._reachable = members
        self._serving = serving
        self._default_group = default_group
        self._in_step = in_step
        self._rack = rack
        self._move_tablet = move_tablet
        self._members: dict[int, MemberRecord] = {}
        self._departed: dict[int, MemberRecord] = {}
        self._groups: dict[int, _Group] = {}
        self._disks_in_step: dict[int, frozenset[int]] = {}
        self.changed()

    def changed(self) -> None:
        """Members, owners, groups or tablets may be others by now."""
        self.version += 1
        self._members, self._departed = self._reachable.records, self._reachable.departed
        self._groups.clear()
        for entry in self._coordination.groups().values():
            try:
                configuration = Configuration.unpack(entry.value)
            except PenstockError:
                continue  # of a later version: the part of the node that uses groups says so
            nodes = tuple(dict.fromkeys(seat.node for seat in configuration.seats))
            self._groups[configuration.group] = _Group(nodes, min(COPIES[configuration.erasure], len(nodes)))
        self.check_in_step()

    def check_in_step(self) -> None:
        """Take in which disks are in step by now."""
        serving = self._serving
        in_step = {
            group: self._in_step(group) - (frozenset() if serving is None else serving.are_behind(group))
            for group in self._groups
        }
        if in_step != self._disks_in_step:
            self._disks_in_step = in_step
            self.version += 1

    @property
    def controller_id(self) -> int:
        """See ClusterView."""
        if self.forwarder is None:
            return self._node_id
        leader = self._coordination.leader
        return -1 if leader is None else leader.record.node_id

    @property
    def copies_max(self) -> int:
        """See ClusterView."""
        group = self._groups.get(self._default_group)
        return 1 if group is None else group.copies

    def others(self, listener: str) -> Sequence[BrokerAddress]:
        """See ClusterView."""
        addresses: list[BrokerAddress] = []
        for member in (*self._members.values(), *self._departed.values()):
            address = member.addresses.get(listener)
            if member.node_id != self._node_id and address is not None:
                host, _, port = address.rpartition(":")
                addresses.append(BrokerAddress(member.node_id, host.strip("[]"), int(port), member.rack))
        return addresses

    def rack(self) -> str:
        """See ClusterView."""
        return self._rack

    def leader_elsewhere(self, tablet_id: int) -> Leader | None:
        """See ClusterView. The owner leads; while another still serves what is to be handed over, that one does. An owner that
        has not told yet that it serves a tablet most likely does by now: clients are to ask it."""
        owner = self._coordination.owner_of(tablet_id)
        leaders = [
            Leader(node_id, generations[tablet_id])
            for node_id, generations in ({} if self._serving is None else self._serving.elsewhere).items()
            if tablet_id in generations and node_id in self._members
        ]
        if not leaders and owner is not None and owner != self._node_id and owner in self._members:
            return Leader(owner, NO_EPOCH)
        return max(leaders, key=lambda leader: (leader.node_id == owner, leader.epoch), default=None)

    def replicas(self, topic: Topic, number: int, leader: int) -> Replicas:
        """See ClusterView: the leader, then other nodes with disks of the group."""
        group_id = topic.group_of(topic.tablets[number])
        group_id = self._default_group if group_id is None else group_id
        group = self._groups.get(group_id)
        holders = () if group is None else group.nodes
        first = leader if leader >= 0 else self._coordination.owner_of(topic.tablets[number])
        nodes = list(dict.fromkeys((*(() if first is None else (first,)), *holders)))[: topic.replicas]
        in_step = self._disks_in_step.get(group_id, frozenset())
        offline = [node_id for node_id in nodes if node_id not in self._members]
        in_sync = [node_id for node_id in nodes if node_id == leader or (node_id in in_step and node_id not in offline)]
        return Replicas(nodes, in_sync, offline)

    async def move(self, topic: Topic, number: int, nodes: Sequence[int]) -> None:
        """See ClusterView."""
        if not nodes or not set(nodes) <= self._members.keys() or len(set(nodes)) < len(nodes):
            raise MoveRefusedError(f"replicas can be on brokers {sorted(self._members)}, each once, not on {list(nodes)}")
        if len(nodes) != topic.replicas:
            raise MoveRefusedError(
                f"topic {topic.name!r} has a replication factor of {topic.replicas}, which cannot be changed; name as many "
                "brokers: the first becomes the leader"
            )
        if self._move_tablet is None:
            raise MoveRefusedError("partitions of this cluster stay where they are")
        await self._move_tablet(topic.tablets[number], nodes[0])
