"""This cluster as YT's clients see it: its name, its nodes, their schemas and mount states."""

from __future__ import annotations

from random import Random
from typing import Any

from penstock.broker import Broker
from penstock.broker.buffered_transactions import BufferedTransactions
from penstock.broker.namespace import TOPICS_FOLDER, Kind, MountState, Node, NoSuchNodeError, parent_of
from penstock.broker.queue_agent import tablet_id
from penstock.broker.schema_registry import SchemaRegistry
from penstock.core.clock import Clock
from penstock.gateway.yt.errors import GENERIC, NO_SUCH_TABLET, NOT_MOUNTED, YtError
from penstock.gateway.yt.paths import Path
from penstock.gateway.yt.peers import Peers
from penstock.gateway.yt.queue_subjects import QueueSubjects
from penstock.gateway.yt.read_locks import MasterTransactions
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.row_writer import RowWriter
from penstock.gateway.yt.schema import CONSUMER_SCHEMA, KAFKA_SCHEMA, PRODUCER_SCHEMA, Schema, parse_schema
from penstock.gateway.yt.stored_values import from_stored
from penstock.queue import Partition


class Cluster:
    """The state that commands work on."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        peers: Peers,
        *,
        clock: Clock,
        random: Random,
        registry: SchemaRegistry | None = None,
    ) -> None:
        self.name = name
        self.subjects = None if registry is None else QueueSubjects(registry)
        self.broker = broker
        self.peers = peers
        self.clock = clock
        self.random = random
        open_max = broker.options.limits.yt_transactions
        self.rows = RowWriter(broker, clock)
        self.transactions = BufferedTransactions(broker.commits, self.rows, clock, open_max=open_max)
        self.master_transactions = MasterTransactions(open_max=open_max, clock=clock, random=random)
        self._codecs: dict[str, tuple[bytes, RowCodec]] = {}

    def now_ms(self) -> int:
        """The time by the wall clock."""
        return int(self.clock.wall() * 1000)

    def node(self, path: Path) -> Node:
        """A node of this cluster."""
        if path.cluster not in (None, self.name):
            raise YtError(GENERIC, f"{path.node} is on cluster {path.cluster!r}; send the command there")
        if path.node.startswith("#"):
            node = next((node for node in self.broker.namespace.tree.nodes() if node.id == path.node[1:]), None)
            if node is None:
                raise NoSuchNodeError(f"there is no object {path.node}")
            return node
        return self.broker.namespace.node(path.node)

    def table(self, path: Path, kind: Kind) -> Node:
        """A node that must be a table of one kind."""
        node = self.node(path)
        if node.kind is not kind:
            raise YtError(GENERIC, f"{path.node} is not a {kind.value}")
        return node

    def mounted(self, path: Path, kind: Kind, *, writes: bool = False) -> Node:
        """A table that is mounted for reading, and with `writes` for writing."""
        node = self.table(path, kind)
        self.check_mounted(node, writes=writes)
        return node

    def check_mounted(self, node: Node, *, writes: bool = False) -> None:
        """YtError unless a table is mounted for reading, and with `writes` for writing."""
        state = node.mount_state
        if state is MountState.UNMOUNTED or (writes and state is MountState.FROZEN):
            tablet = tablet_id(node.id, 0)
            raise YtError(
                NOT_MOUNTED,
                f'Table {node.path} has no mounted tablets: it is in "{state.value}" state; mount it with `yt mount-table`',
                {"tablet_id": tablet, "table_path": node.path, "is_tablet_unmounted": True},
            )

    def partition(self, node: Node, index: int) -> Partition:
        """A partition of a queue."""
        topic = self.broker.namespace.topic(node)
        if not 0 <= index < topic.partitions:
            raise YtError(
                NO_SUCH_TABLET,
                f"Queue {node.path} has partitions 0..{topic.partitions - 1}, not {index}",
                {"partition_index": index, "partition_count": topic.partitions},
            )
        return self.broker.partition(topic, index)

    def attribute(self, node: Node, name: str) -> Any:
        """An attribute that was set. Returns None if it was not."""
        raw = node.attributes.get(name)
        return None if raw is None else from_stored(raw)

    def schema(self, node: Node) -> Schema:
        """The schema of a table."""
        if is_kafka_topic(node):
            return KAFKA_SCHEMA
        attribute = self.attribute(node, "schema")
        if attribute is not None:
            return parse_schema(attribute)
        return {Kind.CONSUMER: CONSUMER_SCHEMA, Kind.PRODUCER: PRODUCER_SCHEMA}.get(node.kind, KAFKA_SCHEMA)

    def codec(self, node: Node) -> RowCodec | None:
        """The codec of a queue's rows. Returns None for a topic of Kafka's clients."""
        if is_kafka_topic(node):
            return None
        raw = node.attributes.get("schema", b"")
        cached = self._codecs.get(node.id)
        if cached is None or cached[0] != raw:
            cached = self._codecs[node.id] = (raw, RowCodec(self.schema(node)))
        return cached[1]


def is_kafka_topic(node: Node) -> bool:
    """Whether the rows of a table are messages of Kafka's clients, which have no schema."""
    if node.kind is Kind.STATIC:
        return "schema" not in node.attributes
    return node.kind is Kind.QUEUE and parent_of(node.path) == TOPICS_FOLDER
