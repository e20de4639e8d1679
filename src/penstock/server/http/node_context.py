"""The parts of a node that the resources of the admin API use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.blob import BlobStorage
from penstock.broker import Broker, TopicPartition
from penstock.broker.schema_registry import SchemaRegistry
from penstock.broker.streams import StreamEngine
from penstock.core.clock import Clock
from penstock.server.config import NodeConfig

if TYPE_CHECKING:
    from penstock.gateway.kafka import ClusterView
    from penstock.server.cluster.administration import ClusterAdministration
    from penstock.server.http.figures import Figures
    from penstock.server.metrics import Observatory
    from penstock.server.pipelines import DeploymentKeeper


ReadersOf = Callable[[str], Mapping[str, Sequence[TopicPartition]]]
"""Who reads for a consumer now, and the partitions each has."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """A running node, as the HTTP listener sees it."""

    config: NodeConfig
    cluster_id: str
    node_id: int
    erasure: str
    broker: Broker
    storage: BlobStorage
    streams: StreamEngine | None  # None: no listener for them
    listeners: Mapping[str, object]
    clock: Clock
    started_ms: int
    figures: Figures
    observatory: Observatory
    deployments: DeploymentKeeper
    cluster: ClusterAdministration | None = None  # None: there is only this node
    view: ClusterView | None = None  # of the cluster for Kafka clients; None: there is only this node
    forward_secret: bytes | None = None  # what other nodes sign requests with that they forward
    schemas: SchemaRegistry | None = None  # of the schemas that messages are shown with
    readers_of: ReadersOf | None = None  # of consumers of YDB, if there is a listener for them

    def now_ms(self) -> int:
        """The wall clock."""
        return int(self.clock.wall() * 1000)
