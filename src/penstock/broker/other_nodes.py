"""What a broker knows and asks of the other nodes of its cluster. A single node has none of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.broker.catalog import TabletSpread
from penstock.broker.consumers import TopicPartition
from penstock.broker.partition_status import PartitionStatus
from penstock.queue import SourceWrite


class OtherNodes(Protocol):
    """The cluster as every node knows it."""

    @property
    def node_id(self) -> int:
        """The id of this node."""
        ...

    @property
    def leader(self) -> int | None:
        """The node that leads; None if that is not known."""
        ...

    def owner_of(self, tablet_id: int) -> int | None:
        """The node that should run a tablet; None if that is not known."""
        ...

    def name_of(self, node_id: int) -> str:
        """A node in messages, with its address: `node 2 (10.0.0.2:9092)`."""
        ...


class LedNodes(OtherNodes, TabletSpread, Protocol):
    """The cluster as its leader uses it."""

    async def place(self, tablets: Sequence[int]) -> None:
        """Have new tablets run on nodes of the cluster. UnavailableError if they do not run in time; they will later."""
        ...

    async def erase(self, tablets: Sequence[tuple[int, int | None]]) -> None:
        """Stop tablets of these groups wherever they run, and delete all their data. UnavailableError if that fails now."""
        ...

    def status_of(self, tablet_id: int, number: int) -> PartitionStatus | None:
        """The figures of a partition on another node, a moment old; None if they are not known."""
        ...

    async def settled_start(self, place: TopicPartition, tablet_id: int) -> int:
        """Have the node of a partition learn what leases need now, and finish what it deletes. Returns where it begins then."""
        ...

    async def mark(self, place: TopicPartition, tablet_id: int, marker: bytes, source: SourceWrite) -> None:
        """Write the end of a transaction to a partition on another node."""
        ...
