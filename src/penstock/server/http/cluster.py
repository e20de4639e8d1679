"""/cluster: what this node is."""

from __future__ import annotations

from penstock import __version__
from penstock.server.http.consumer_directory import ConsumerDirectory
from penstock.server.http.route import Call, Nothing, Resource, Route, Shown
from penstock.server.http.served import Served


class SecurityShown(Shown, frozen=True):
    """What protects the listeners."""

    sasl: bool
    tls: bool


class ClusterShown(Shown, frozen=True):
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
    security: SecurityShown
    user: str | None
    topics: int
    partitions: int
    consumers: int


class ClusterResource(Resource):
    """The cluster."""

    def __init__(self, served: Served, directory: ConsumerDirectory) -> None:
        self._served = served
        self._directory = directory

    def routes(self) -> list[Route]:
        """What is answered."""
        return [Route("GET", "/cluster", self.show, "the cluster, this node and its listeners")]

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> ClusterShown:
        """GET /cluster. Whoever is let in may know it: Kafka's clients are told as much."""
        served = self._served
        config = served.config
        return ClusterShown(
            name=config.cluster_name,
            id=served.cluster_id,
            version=__version__,
            node_id=served.node_id,
            started_ms=served.started_ms,
            now_ms=served.now_ms(),
            erasure=served.erasure,
            durability=config.durability,
            listeners={name: str(listener) for name, listener in served.listeners.items()},
            security=SecurityShown(sasl=config.sasl, tls=config.tls_cert is not None),
            user=call.caller.principal.removeprefix("User:") if config.sasl else None,
            **served.figures.counts()._asdict(),
            consumers=len(await self._directory.all(served.figures.last)),
        )
