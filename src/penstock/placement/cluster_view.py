"""What placement is told about the cluster: its tablets, their storage groups, and which nodes can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class CatalogTablet(NamedTuple):
    """A tablet of a topic, as the catalog knows it."""

    tablet_id: int
    topic: str
    partitions: int
    group: int
    follows_leader: bool = False  # it runs where the leader does, who uses it itself
    is_deleting: bool = False  # it keeps its owner, who deletes it, and is not started or moved any more


class GroupNodes(NamedTuple):
    """The nodes that have a disk of a storage group. If it is pinned, the tablets of the group run only there."""

    nodes: frozenset[int] = frozenset()
    is_pinned: bool = False


class Inventory(Protocol):
    """What there is to place."""

    def tablets(self) -> Sequence[CatalogTablet]:
        """The tablets of all topics, by id, also of those that are being deleted."""
        ...

    def group(self, group_id: int) -> GroupNodes:
        """Where the disks of a storage group are."""
        ...

    def own_group(self, node_id: int) -> int | None:
        """The storage group that only this node uses, as each worker of a machine has one; None if nodes share their groups."""
        ...


class Reachability(Protocol):
    """Which nodes can be reached, by this node and by others."""

    def is_connected(self, node_id: int) -> bool:
        """Whether this node reaches another one, or is it."""
        ...

    def down_s(self, node_id: int) -> float:
        """How long it has not reached it, in seconds."""
        ...

    def is_doubtful(self, node_id: int) -> bool:
        """Whether it is not reached, and that may be for good."""
        ...

    async def is_given_up(self, node_id: int) -> bool:
        """Whether enough others do not reach it either."""
        ...
