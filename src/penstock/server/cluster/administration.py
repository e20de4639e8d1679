"""The cluster as operators see and change it, on the node that leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.coordination import Coordination
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.placement import (
    DRAIN_NODE,
    MAINTENANCE,
    MOVE_TABLET,
    UNDRAIN_NODE,
    Answer,
    PlacedTablet,
    Placement,
)
from penstock.server.cluster.known_nodes import KnownNode, seen_nodes
from penstock.server.cluster.remote_partitions import RemotePartitions
from penstock.server.cluster.tablet_client import TabletClient
from penstock.server.storage_report import GroupReport


class NodeShare(NamedTuple):
    """What a node owns, counted."""

    tablets: int = 0
    partitions: int = 0


class ClusterAdministration:
    """What the HTTP API of the leader shows of all nodes. `requests` carries out what operators ask for; it is empty for workers,
    whose tablets stay where they are."""

    def __init__(
        self,
        coordination: Coordination,
        placement: Callable[[], Placement | None],
        client: TabletClient,
        *,
        partitions: RemotePartitions,
        requests: Mapping[str, Answer],
        clock: Clock,
    ) -> None:
        self._coordination = coordination
        self._placement = placement
        self._client = client
        self.partitions = partitions
        self._requests = requests
        self._clock = clock

    @property
    def can_move(self) -> bool:
        """Whether tablets can move between the nodes at all."""
        return bool(self._requests)

    @property
    def is_maintained(self) -> bool:
        """Whether an operator works on the cluster, so that no tablet moves by itself."""
        return self._coordination.is_maintained

    def nodes(self) -> list[KnownNode]:
        """All nodes, with what the leader sees of them."""
        placement, nodes = self._placement(), seen_nodes(self._coordination, self._placement())
        return nodes if placement is None else [self._with_loss(node, placement) for node in nodes]

    def _with_loss(self, node: KnownNode, placement: Placement) -> KnownNode:
        """The node, with the time of its loss if it is away."""
        lost_s = placement.away_s(node.node_id) if node.state == "away" else None
        return node if lost_s is None else node._replace(since_ms=int((self._clock.wall() - lost_s) * 1000))

    def tablets(self) -> list[PlacedTablet]:
        """All tablets of topics, with their owners."""
        return self._running.tablets()

    def shares(self) -> dict[int | None, NodeShare]:
        """What each node owns; None owns those without an owner."""
        shares: dict[int | None, NodeShare] = {}
        for placed in self.tablets():
            tablets, partitions = shares.get(placed.owner, NodeShare())
            shares[placed.owner] = NodeShare(tablets + 1, partitions + placed.tablet.partitions)
        return shares

    async def storage_reports(self) -> dict[int, list[GroupReport]]:
        """The storage of all other nodes that answer."""
        return await self._client.storage_reports()

    async def begin_scrubs(self) -> bool:
        """Have all other nodes verify what is stored on them. Returns whether one has begun."""
        return await self._client.begin_scrubs()

    def hosts(self) -> dict[int, str]:
        """The machine that each running node is on, as its clients know it."""
        members = self._coordination.members()
        return {member.node_id: next(iter(member.addresses.values()), "").rpartition(":")[0] for member in members}

    async def drain(self, node_id: int) -> str:
        """Move all tablets of a node to others, and give it no more."""
        return await self._carry_out(DRAIN_NODE, {"node": str(node_id)})

    async def undrain(self, node_id: int) -> str:
        """Give a node tablets again."""
        return await self._carry_out(UNDRAIN_NODE, {"node": str(node_id)})

    async def maintain(self, *, is_on: bool) -> str:
        """Begin or end maintenance."""
        return await self._carry_out(MAINTENANCE, {"mode": "on" if is_on else "off"})

    async def move(self, tablet_id: int, node_id: int) -> str:
        """Begin to move a tablet."""
        try:
            return await self._carry_out(MOVE_TABLET, {"tablet": str(tablet_id), "node": str(node_id)})
        except UnavailableError as error:
            return str(error)  # it is on its way, and the list of tablets shows how far

    async def _carry_out(self, kind: str, arguments: Mapping[str, str]) -> str:
        if not self._requests:
            raise InvalidRequestError(
                "workers keep their tablets, each on its own disks; start nodes with --etcd for a cluster whose tablets move"
            )
        return await self._requests[kind](arguments)

    @property
    def _running(self) -> Placement:
        placement = self._placement()
        if placement is None:
            raise UnavailableError("this node begins to lead; try again in a moment")
        return placement
