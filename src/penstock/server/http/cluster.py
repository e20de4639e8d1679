"""/cluster: the cluster and this node."""

from __future__ import annotations

from penstock import __version__
from penstock.server.cluster.known_nodes import KnownNode, NodeState
from penstock.server.http.consumer_directory import ConsumerDirectory
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Resource, ResponseModel, Route


class SecurityView(ResponseModel, frozen=True):
    """The security of the listeners."""

    sasl: bool
    tls: bool


class NodeView(ResponseModel, frozen=True):
    """A node of the cluster, or a worker of this machine, and how many tablets of topics it owns."""

    node_id: int
    name: str
    kafka: str | None
    is_running: bool
    is_leader: bool
    is_draining: bool
    state: NodeState
    tablets: int


class ClusterView(ResponseModel, frozen=True):
    """A node and its cluster."""

    name: str
    id: str
    version: str
    node_id: int
    started_ms: int
    now_ms: int
    erasure: str
    durability: str
    listeners: dict[str, str]
    nodes: list[NodeView]
    security: SecurityView
    user: str | None
    topics: int
    partitions: int
    consumers: int


class ClusterResource(Resource):
    """The cluster."""

    def __init__(self, context: NodeContext, directory: ConsumerDirectory) -> None:
        self._context = context
        self._directory = directory

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [Route("GET", "/cluster", self.show, "the cluster, this node and its listeners")]

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> ClusterView:
        """GET /cluster. Every authenticated caller may read it, as with Kafka's DescribeCluster."""
        context = self._context
        config = context.config
        return ClusterView(
            name=config.cluster_name,
            id=context.cluster_id,
            version=__version__,
            node_id=context.node_id,
            started_ms=context.started_ms,
            now_ms=context.now_ms(),
            erasure=context.erasure,
            durability=config.durability,
            listeners={name: str(listener) for name, listener in context.listeners.items()},
            nodes=[] if context.cluster is None else [_node(node) for node in context.cluster.nodes()],
            security=SecurityView(sasl=config.sasl, tls=config.tls_cert is not None),
            user=call.caller.principal.removeprefix("User:") if config.sasl else None,
            **context.figures.counts()._asdict(),
            consumers=len(await self._directory.all(context.figures.last)),
        )


def _node(node: KnownNode) -> NodeView:
    shown = node._asdict()
    return NodeView(**{name: shown[name] for name in NodeView.__struct_fields__})
