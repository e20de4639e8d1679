"""/nodes and /tablets: the nodes of a cluster, what each owns, and what moves between them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from penstock.broker import Operation
from penstock.placement import PlacedTablet, described
from penstock.server.cluster.administration import ClusterAdministration, NodeShare
from penstock.server.cluster.known_nodes import KnownNode, NodeState
from penstock.server.http.errors import NotFoundError, NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Count, Nothing, Page, Paging, RequestModel, Resource, ResponseModel, Route

TabletState = Literal["up", "down", "moving", "unknown"]


class FullNodeView(ResponseModel, frozen=True):
    """A node and what it owns. `since_ms` is when it started, or was lost; null if that is not known. `disks` are its own, by
    name: empty if one can be used, otherwise why it cannot."""

    node_id: int
    name: str
    state: NodeState
    is_draining: bool
    since_ms: int | None
    rack: str
    datacenter: str
    version: str
    addresses: dict[str, str]
    disks: dict[str, str]
    tablets: int
    partitions: int


class MoveView(ResponseModel, frozen=True):
    """A tablet on its way to another node."""

    tablet: int
    topic: str
    node: int | None
    to: int


class NodesView(ResponseModel, frozen=True):
    """All nodes, the moves in flight, and how many tablets have no owner. In maintenance none moves by itself; between workers
    none can."""

    nodes: list[FullNodeView]
    moves: list[MoveView]
    without_owner: int
    is_maintained: bool
    can_move: bool


class TabletView(ResponseModel, frozen=True):
    """A tablet: some partitions of a topic, which are always on the same node."""

    tablet: int
    topic: str
    partitions: int
    group: str
    node: int | None
    state: TabletState
    to: int | None
    generation: int | None
    trouble: str


class OrderResult(ResponseModel, frozen=True):
    """What an order leads to, in words."""

    message: str


class NodeNames(RequestModel, frozen=True):
    """A node."""

    node: Count


class TabletNames(RequestModel, frozen=True):
    """A tablet."""

    tablet: Count


class TabletQuery(Paging, frozen=True, kw_only=True):
    """The tablets to list; `search` looks at the names of their topics."""

    node: Annotated[Count | None, msgspec.Meta(description="only those that this node owns")] = None


class MoveRequest(RequestModel, frozen=True, kw_only=True):
    """The node to move to."""

    node: Count


class MaintenanceRequest(RequestModel, frozen=True, kw_only=True):
    """Whether maintenance is on."""

    on: bool


class NodeResource(Resource):
    """The nodes of a cluster."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/nodes", self.show, "all nodes, what they own and what moves between them"),
            Route(
                "POST", "/nodes/{node}/drain", self.drain, "move all tablets of a node to others, and give it no more", (409, 422)
            ),
            Route("POST", "/nodes/{node}/undrain", self.undrain, "give a drained node tablets again", (409, 422)),
            Route("PUT", "/nodes/maintenance", self.maintain, "begin or end maintenance: no tablet moves by itself", (409, 422)),
            Route("GET", "/tablets", self.tablets, "tablets of topics and their owners"),
            Route("POST", "/tablets/{tablet}/move", self.move, "hand a tablet over to another node", (409, 422)),
        ]

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> NodesView:
        """GET /nodes."""
        call.caller.check_cluster(Operation.DESCRIBE)
        cluster = self._context.cluster
        if cluster is None:
            return NodesView(nodes=[], moves=[], without_owner=0, is_maintained=False, can_move=False)
        shares = cluster.shares()
        moves = [(tablet, tablet.target) for tablet in cluster.tablets()]
        return NodesView(
            nodes=[_node(node, shares.get(node.node_id, NodeShare())) for node in cluster.nodes()],
            moves=[
                MoveView(tablet=moved.tablet_id, topic=moved.tablet.topic, node=moved.owner, to=target)
                for moved, target in moves
                if target is not None
            ],
            without_owner=shares.get(None, NodeShare()).tablets,
            is_maintained=cluster.is_maintained,
            can_move=cluster.can_move,
        )

    async def drain(self, call: Call[NodeNames, Nothing, Nothing]) -> OrderResult:
        """POST /nodes/{node}/drain."""
        return OrderResult(message=await self._altered(call).drain(call.names.node))

    async def undrain(self, call: Call[NodeNames, Nothing, Nothing]) -> OrderResult:
        """POST /nodes/{node}/undrain."""
        return OrderResult(message=await self._altered(call).undrain(call.names.node))

    async def maintain(self, call: Call[Nothing, Nothing, MaintenanceRequest]) -> OrderResult:
        """PUT /nodes/maintenance."""
        return OrderResult(message=await self._altered(call).maintain(is_on=call.body.on))

    async def tablets(self, call: Call[Nothing, TabletQuery, Nothing]) -> Page[TabletView]:
        """GET /tablets."""
        call.caller.check_cluster(Operation.DESCRIBE)
        query, cluster = call.query, self._context.cluster
        matching = [
            placed
            for placed in (() if cluster is None else cluster.tablets())
            if query.node in (None, placed.owner) and query.search.lower() in placed.tablet.topic.lower()
        ]
        return Page([_tablet(placed) for placed in query.page(matching)], len(matching))

    async def move(self, call: Call[TabletNames, Nothing, MoveRequest]) -> OrderResult:
        """POST /tablets/{tablet}/move."""
        cluster = self._altered(call)
        if all(placed.tablet_id != call.names.tablet for placed in cluster.tablets()):
            raise NotFoundError(f"no topic has a tablet {call.names.tablet}; GET /api/v1/tablets lists them")
        return OrderResult(message=await cluster.move(call.names.tablet, call.body.node))

    def _altered(
        self,
        call: Call[NodeNames, Nothing, Nothing]
        | Call[Nothing, Nothing, MaintenanceRequest]
        | Call[TabletNames, Nothing, MoveRequest],
    ) -> ClusterAdministration:
        """The cluster, for a caller who may alter it."""
        call.caller.check_cluster(Operation.ALTER)
        cluster = self._context.cluster
        if cluster is None:
            raise NotSupportedHereError("this node is alone; tablets move between the nodes of a cluster (penstock cluster init)")
        return cluster


def _node(node: KnownNode, share: NodeShare) -> FullNodeView:
    fields = node._asdict()
    for of_cluster in ("is_running", "is_leader", "kafka", "tablets"):
        del fields[of_cluster]
    return FullNodeView(**fields, tablets=share.tablets, partitions=share.partitions)


def _tablet(placed: PlacedTablet) -> TabletView:
    return TabletView(**described(placed))
