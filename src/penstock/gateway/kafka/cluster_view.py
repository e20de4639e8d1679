"""The cluster as Kafka clients see it: its brokers, the leader and the replicas of each partition, and the node to forward
requests to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from penstock.broker import Topic, TopicPartition
from penstock.broker.transactions import Producer
from penstock.core.errors import InvalidRequestError, PenstockError, UnavailableError

NO_LEADER = -1
NO_EPOCH = -1

Admitted = Callable[[PenstockError | None], None]
"""Called once it is known whether a write is part of its transaction; with why, if it is not."""


class BrokerAddress(NamedTuple):
    """A node of the cluster as Kafka clients reach it. The rack is empty if there is none."""

    node_id: int
    host: str
    port: int
    rack: str = ""


class Leader(NamedTuple):
    """The node that leads a partition, and the generation of its tablet. The epoch is -1 if that is not known."""

    node_id: int
    epoch: int


class Replicas(NamedTuple):
    """The nodes that hold copies of a partition, its leader first; those whose disks are in step; those that are away."""

    nodes: list[int]
    in_sync: list[int]
    offline: list[int]


class ForwardedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request of a client of another node: its frame, who sends it, from where, and to which listener."""

    listener: str
    user: str
    host: str
    frame: bytes


class ForwardedReply(msgspec.Struct, frozen=True, array_like=True):
    """The whole frame of the response; empty if the request cannot be answered, and the connection is to be closed."""

    frame: bytes
    is_refused: bool = False  # whether the response has an error in it
    mute_s: float = 0.0  # the client is over its quota
    is_change: bool = False  # of what every node follows: topics, settings, users, rules, quotas


class NoForwardError(UnavailableError):
    """The node that could answer a request did not. If `is_open`, it may have done what was asked."""

    code = "not_forwarded"

    def __init__(self, message: str, *, is_open: bool) -> None:
        super().__init__(message)
        self.is_open = is_open


class MoveRefusedError(InvalidRequestError):
    """A partition cannot be moved as it was asked for."""

    code = "move_refused"


class TransactionalWrite(NamedTuple):
    """A write to a partition of this node within a transaction."""

    transactional_id: str | None
    producer: Producer
    queue: TopicPartition
    adds: bool  # the partition becomes part of the transaction by it
    is_open: bool  # the partition has the transaction open, so it is part of it


class TransactionGate(Protocol):
    """Admits writes within transactions to partitions of this node, by asking the coordinator wherever it is."""

    def admit(self, write: TransactionalWrite, then: Admitted) -> None:
        """Call `then` once a partition of this node is known to be part of the producer's transaction, or with why it is not.
        Calls for one partition come in the order in which they were asked for."""
        ...


class Forwarder(Protocol):
    """The way from this node to the one that runs groups, transactions and the catalog."""

    async def forward(self, request: ForwardedRequest, timeout_s: float) -> ForwardedReply:
        """Have the leading node answer a request. NoForwardError if it does not."""
        ...


class ClusterView(Protocol):
    """What this node knows of the others."""

    @property
    def version(self) -> int:
        """Another one whenever an answer to the questions below may be another."""
        ...

    @property
    def controller_id(self) -> int:
        """The node that runs groups, transactions and the catalog; -1 while there is none."""
        ...

    @property
    def copies_max(self) -> int:
        """The highest replication factor that a new topic can have."""
        ...

    @property
    def forwarder(self) -> Forwarder | None:
        """Who answers what needs the leading node; None if this one leads."""
        ...

    @property
    def transaction_gate(self) -> TransactionGate | None:
        """What admits writes within transactions, also while this node leads: another one may have taken over from it. None if
        none can, so that the memory of the coordinator here is right."""
        ...

    def others(self, listener: str) -> Sequence[BrokerAddress]:
        """The other nodes that run, as clients of a listener of this name reach them."""
        ...

    def rack(self) -> str:
        """The rack of this node; empty if it has none."""
        ...

    def leader_elsewhere(self, tablet_id: int) -> Leader | None:
        """The other node where a tablet serves; None if it serves here or nowhere, as far as is known."""
        ...

    def replicas(self, topic: Topic, number: int, leader: int) -> Replicas:
        """Where copies of a partition are that this node leads; `leader` is -1 if none does."""
        ...

    async def move(self, topic: Topic, number: int, nodes: Sequence[int]) -> None:
        """Make the first of these nodes the leader of a partition. MoveRefusedError if that cannot be."""
        ...


class AloneView:
    """A node without others."""

    version = 0
    copies_max = 1
    forwarder = None
    transaction_gate = None

    def __init__(self, node_id: int) -> None:
        self.controller_id = node_id
        self._own = [node_id]

    def others(self, listener: str) -> Sequence[BrokerAddress]:
        """See ClusterView."""
        return ()

    def rack(self) -> str:
        """See ClusterView."""
        return ""

    def leader_elsewhere(self, tablet_id: int) -> Leader | None:
        """See ClusterView."""
        return None

    def replicas(self, topic: Topic, number: int, leader: int) -> Replicas:
        """See ClusterView."""
        return Replicas(self._own, self._own, []) if leader != NO_LEADER else Replicas(self._own, [], self._own)

    async def move(self, topic: Topic, number: int, nodes: Sequence[int]) -> None:
        """See ClusterView."""
        if list(nodes) != self._own:
            raise MoveRefusedError(f"replicas can be on broker {self.controller_id} alone, not on {list(nodes)}")
