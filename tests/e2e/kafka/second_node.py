"""A second node beside a running gateway, which leads: it has a copy of the tables, no tablets, and forwards the rest over a real
interconnect."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import TracebackType

from penstock.broker import PartitionBroker, Tablets, Topic
from penstock.broker.table_feed import TablePosition
from penstock.core.clock import SystemClock
from penstock.gateway.kafka import BrokerAddress, Forwarder, KafkaGateway, Leader, Replicas, TransactionGate
from penstock.gateway.kafka.cluster_view import AloneView
from penstock.interconnect import Interconnect, NodeIdentity, SocketNetwork
from penstock.server.cluster.forwarding import ForwardService, LeaderForwarder
from tests.e2e.kafka.running_gateway import CLUSTER_ID, NODE_ID, RunningGateway

SECOND_ID = 2


class _LeadersView(AloneView):
    """What the node that leads knows: without the other in its metadata, clients would forget that one."""

    def __init__(self, other: BrokerAddress) -> None:
        super().__init__(NODE_ID)
        self._other = other

    def others(self, listener: str) -> Sequence[BrokerAddress]:
        """See ClusterView."""
        return [self._other]


class SecondNode:
    """Use it as a context. It is its own view of the cluster."""

    version = 0
    copies_max = 3

    def __init__(self, first: RunningGateway) -> None:
        self._first = first
        self.leader: int | None = NODE_ID
        self.node_id = SECOND_ID
        self.gateway: KafkaGateway
        self.service: ForwardService
        self.forwarder: Forwarder
        self.transaction_gate: TransactionGate
        self._interconnects: list[Interconnect] = []

    def __enter__(self) -> SecondNode:
        self._first.run(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._first.run(self._stop())

    def reload(self) -> None:
        """Take over the tables of the leader."""
        self._first.run(self.broker.reload_tables(self._first.broker.system_tablets.system))

    @property
    def calls_in_flight(self) -> int:
        """How many calls to the leader are not answered."""
        return sum(len(link._pending) for link in self._interconnects[1].links.values())

    async def _start(self) -> None:
        clock, random, first = SystemClock(), Random(), self._first
        for node_id in (NODE_ID, SECOND_ID):
            identity = NodeIdentity(b"c" * 16, node_id, 1)
            self._interconnects.append(Interconnect(identity, SocketNetwork(None), clock=clock, random=random))
        ours, theirs = self._interconnects
        address = await ours.listen("127.0.0.1:0")
        self.service = ForwardService(ours)
        self.service.lead(first.broker, {"kafka": first.gateway}, TablePosition)
        own = ForwardService(theirs)
        to_leader = LeaderForwarder(SECOND_ID, lambda: self.leader, lambda node_id: theirs.link(node_id, address), own)
        self.forwarder = self.transaction_gate = to_leader
        tablets = Tablets(first.storage, 0, cache_bytes=1 << 20, clock=clock, random=random)
        table = first.broker.system_tablets.system
        self.broker = PartitionBroker(table, tablets, first.broker.options, clock=clock, random=random, others=self)
        self.gateway = KafkaGateway(
            self.broker, node_id=SECOND_ID, cluster_id=CLUSTER_ID, host="127.0.0.1", port=0, view=self, listener="kafka"
        )
        await self.gateway.start()
        first.gateway._node.view = _LeadersView(BrokerAddress(SECOND_ID, "127.0.0.1", self.gateway.port, "r2"))

    async def _stop(self) -> None:
        self._first.gateway._node.view = AloneView(NODE_ID)
        await self.gateway.stop()
        for interconnect in self._interconnects:
            await interconnect.close()

    # As a broker asks about the other nodes.

    def owner_of(self, tablet_id: int) -> int | None:
        """See OtherNodes."""
        return self.leader

    def name_of(self, node_id: int) -> str:
        """See OtherNodes."""
        return f"node {node_id}"

    # As a gateway asks about them.

    @property
    def controller_id(self) -> int:
        """See ClusterView."""
        return -1 if self.leader is None else self.leader

    def others(self, listener: str) -> Sequence[BrokerAddress]:
        """See ClusterView."""
        return [BrokerAddress(NODE_ID, "127.0.0.1", self._first.port, "r1")]

    def rack(self) -> str:
        """See ClusterView."""
        return "r2"

    def leader_elsewhere(self, tablet_id: int) -> Leader | None:
        """See ClusterView."""
        generation = self._first.broker.tablets.generations().get(tablet_id)
        return None if generation is None or self.leader is None else Leader(NODE_ID, generation)

    def replicas(self, topic: Topic, number: int, leader: int) -> Replicas:
        """See ClusterView."""
        return Replicas([NODE_ID, SECOND_ID], [NODE_ID], [])

    async def move(self, topic: Topic, number: int, nodes: Sequence[int]) -> None:
        """See ClusterView."""
