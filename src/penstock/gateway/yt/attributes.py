"""Attributes of nodes: built-in ones, those computed by the Queue Agent, and those set by users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.broker.namespace import Kind, Node
from penstock.broker.queue_agent import EXPIRATION, PROGRESS, cell_id, shown_time, tablet_id
from penstock.gateway.yt.cluster import Cluster
from penstock.gateway.yt.errors import NO_SUCH_NODE, YtError
from penstock.gateway.yt.schema import TIMESTAMP, WEIGHT
from penstock.queue import count_messages

AGENT = frozenset({"queue_status", "queue_partitions", "queue_consumer_status", "queue_consumer_partitions"})
_NODE = frozenset(
    {
        "id",
        "type",
        "key",
        "resource_usage",
        "opaque",
        "path",
        "account",
        "owner",
        "revision",
        "creation_time",
        "modification_time",
        "ref_counter",
    }
)
_TABLE = frozenset(
    {
        "dynamic",
        "sorted",
        "schema",
        "key_columns",
        "tablet_state",
        "expected_tablet_state",
        "tablet_count",
        "tablets",
        "row_count",
        "atomicity",
        "in_memory_mode",
        "chunk_count",
        "topic",
    }
)
_STATIC = frozenset(
    {
        "dynamic",
        "sorted",
        "schema",
        "key_columns",
        "row_count",
        "chunk_count",
        "data_weight",
        "uncompressed_data_size",
        "compressed_data_size",
        "replication_factor",
    }
)
TREAT_AS = frozenset({"treat_as_queue_consumer", "treat_as_queue_producer"})


def is_builtin(name: str) -> bool:
    """Whether an attribute is built in, and so cannot be set."""
    return name in AGENT or name in _NODE or name in _TABLE or name in _STATIC or name == PROGRESS


async def attribute_value(cluster: Cluster, node: Node, keys: tuple[str, ...]) -> Any:
    """One attribute, or a part of it by the keys that lead to it. Without keys, all attributes."""
    if not keys:
        return await attributes_of(cluster, node, _listed_names(node))
    value = await _attribute(cluster, node, keys[0])
    for at, key in enumerate(keys[1:], start=1):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.lstrip("-").isdigit() and -len(value) <= int(key) < len(value):
            value = value[int(key)]
        else:
            raise YtError(NO_SUCH_NODE, f"Node {node.path}/@{'/'.join(keys[: at + 1])} has no child with key {key!r}")
    return value


async def attributes_of(cluster: Cluster, node: Node, names: Iterable[str]) -> dict[str, Any]:
    """Several attributes. Those that the node does not have are left out."""
    values: dict[str, Any] = {}
    for name in names:
        try:
            values[str(name)] = await _attribute(cluster, node, str(name))
        except YtError as error:
            if error.number != NO_SUCH_NODE:
                raise
    return values


def _listed_names(node: Node) -> list[str]:
    """The attributes in a full listing. The statuses are expensive, so they are returned only by name."""
    tables = {Kind.FOLDER: frozenset[str](), Kind.STATIC: _STATIC}.get(node.kind, _TABLE | TREAT_AS)
    return sorted(_NODE | tables | node.attributes.keys())


async def _attribute(cluster: Cluster, node: Node, name: str) -> Any:
    if name in AGENT:
        return await _agent_attribute(cluster, node, name)
    if name == "row_count" and node.kind is Kind.QUEUE:
        return await _row_count(cluster, node)
    value = _node_attribute(cluster, node, name)
    if value is None and node.kind is Kind.STATIC:
        value = _static_attribute(cluster, node, name)
    elif value is None and node.kind is not Kind.FOLDER:
        value = _table_attribute(cluster, node, name)
    if value is None:
        if name not in node.attributes:
            raise YtError(NO_SUCH_NODE, f'Attribute "{name}" is not found', {"path": f"{node.path}/@{name}"})
        value = cluster.attribute(node, name)
    return value


def _node_attribute(cluster: Cluster, node: Node, name: str) -> Any:
    match name:
        case "id":
            return node.id
        case "type":
            return "map_node" if node.kind is Kind.FOLDER else "table"
        case "key":
            return node.name
        case "path":
            return node.path
        case "account":
            return "default"
        case "owner":
            return "root"
        case "revision":
            return node.changed_ms
        case "ref_counter":
            return 1
        case "opaque":
            return False
        case "resource_usage":
            return _resource_usage(cluster, node)
        case "creation_time":
            return shown_time(node.created_ms)
        case "modification_time":
            return shown_time(node.changed_ms)
    return None


def _table_attribute(cluster: Cluster, node: Node, name: str) -> Any:
    match name:
        case "dynamic":
            return True
        case "sorted":
            return node.kind is not Kind.QUEUE
        case "schema":
            return cluster.schema(node).to_yson()
        case "key_columns":
            return list(cluster.schema(node).keys)
        case "tablet_state" | "expected_tablet_state":
            return node.mount_state.value
        case "tablet_count":
            return _tablet_count(cluster, node)
        case "tablets":
            return [_tablet(cluster, node, number) for number in range(_tablet_count(cluster, node))]
        case "atomicity":
            return "full"
        case "in_memory_mode":
            return "none"
        case "chunk_count":
            return 0
        case "treat_as_queue_consumer":
            return node.kind is Kind.CONSUMER
        case "treat_as_queue_producer":
            return node.kind is Kind.PRODUCER
        case "topic" if node.kind is Kind.QUEUE:
            return cluster.broker.namespace.topic(node).name
    return None


def _static_attribute(cluster: Cluster, node: Node, name: str) -> Any:
    match name:
        case "dynamic" | "sorted":
            return False
        case "schema":
            return cluster.schema(node).to_yson()
        case "key_columns":
            return []
        case "compressed_data_size":
            return cluster.attribute(node, "uncompressed_data_size")
        case "replication_factor":
            return 1
        case _ if name == EXPIRATION and EXPIRATION in node.attributes:
            return shown_time(cluster.attribute(node, EXPIRATION))
    return None


def _resource_usage(cluster: Cluster, node: Node) -> dict[str, int]:
    size = 0
    if node.kind is Kind.QUEUE:
        size = sum(cluster.partition(node, number).size for number in range(_tablet_count(cluster, node)))
    elif node.kind is Kind.STATIC:
        size = cluster.attribute(node, "uncompressed_data_size")
    chunks = cluster.attribute(node, "chunk_count") if node.kind is Kind.STATIC else 0
    tablets = 0 if node.kind in (Kind.FOLDER, Kind.STATIC) else 1
    return {"node_count": 1, "chunk_count": chunks, "disk_space": size, "tablet_count": tablets}


def _tablet_count(cluster: Cluster, node: Node) -> int:
    return cluster.broker.namespace.topic(node).partitions if node.kind is Kind.QUEUE else 1


def _tablet(cluster: Cluster, node: Node, number: int) -> dict[str, Any]:
    fields = {
        "index": number,
        "tablet_id": tablet_id(node.id, number),
        "cell_id": cell_id(cluster.name),
        "state": node.mount_state.value,
    }
    if node.kind is Kind.QUEUE:
        partition = cluster.partition(node, number)
        fields["trimmed_row_count"] = partition.start_offset
        fields["flushed_row_count"] = partition.end_offset
    return fields


async def _row_count(cluster: Cluster, node: Node) -> int:
    """Counts the rows of a queue, without transaction markers."""
    partitions = [cluster.partition(node, number) for number in range(_tablet_count(cluster, node))]
    return sum([await count_messages(partition, partition.start_offset, partition.stable_offset) for partition in partitions])


async def _agent_attribute(cluster: Cluster, node: Node, name: str) -> Any:
    agent = cluster.broker.queue_agent
    kind = Kind.CONSUMER if "consumer" in name else Kind.QUEUE
    if node.kind is not kind:
        raise YtError(NO_SUCH_NODE, f'Attribute "{name}" is not found: {node.path} is not a {kind.value}')
    match name:
        case "queue_status":
            schema = cluster.schema(node)
            return agent.queue_status(node, has_timestamp=schema.has(TIMESTAMP), has_weight=schema.has(WEIGHT))
        case "queue_partitions":
            return await agent.queue_partitions(node)
        case "queue_consumer_status":
            return await agent.consumer_status(node)
        case _:
            return await agent.consumer_partitions(node)
