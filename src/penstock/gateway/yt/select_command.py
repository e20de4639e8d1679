"""select_rows: queries over queues, consumers and producers."""

from __future__ import annotations

from typing import Any

from yt.yson import YsonUint64

from penstock.broker import Operation
from penstock.broker.consumers import Position
from penstock.broker.namespace import Kind, Node, consumer_name
from penstock.gateway.yt.call import Call, Reply
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.formats import write_rows
from penstock.gateway.yt.paths import parse_path
from penstock.gateway.yt.permissions import check
from penstock.gateway.yt.producer_sessions import session_rows
from penstock.gateway.yt.query import Query, parse_query
from penstock.gateway.yt.row_reader import pull
from penstock.gateway.yt.schema import ROW_INDEX, TABLET_INDEX
from penstock.gateway.yt.visible_nodes import node_at

ROWS_AT_ONCE = 10_000
BYTES_AT_ONCE = 4 << 20
MATCHING_MAX = 1_000_000


async def select_rows(call: Call) -> Reply:
    """Run a query over a queue, a consumer or a producer."""
    query = parse_query(call.text("query"))
    node = node_at(call, parse_path(query.path))
    if node.kind is Kind.FOLDER:
        raise YtError(GENERIC, f"{node.path} is not a table")
    check(call, Operation.READ, node)
    call.cluster.check_mounted(node)
    if node.kind is Kind.QUEUE:
        rows = await _queue_rows(call, node, query)
        names = {TABLET_INDEX, ROW_INDEX, *(column.name for column in call.cluster.schema(node).columns)}
    else:
        rows = consumer_rows(call, node) if node.kind is Kind.CONSUMER else session_rows(call, node)
        names = {column.name for column in call.cluster.schema(node).columns} | {"meta"}
    used = {condition.column for condition in query.conditions} | {column for column, _ in query.order_by}
    unknown = (used | {name for name, _ in query.columns or ()}) - names
    if unknown:
        raise YtError(GENERIC, f'Undefined reference "{min(unknown)}"; the table has {", ".join(sorted(names))}')
    return Reply(rows=write_rows(call.output_format(), query.run(rows)))


def consumer_rows(call: Call, node: Node) -> list[dict[str, Any]]:
    """The rows of a consumer's table: its committed offset in each partition of each queue."""
    agent = call.cluster.broker.queue_agent
    refs = {
        agent.queue_id(registration.queue): registration.queue
        for registration in call.cluster.broker.registrations.of_consumer(agent.ref(node.path))
    }
    rows: list[dict[str, Any]] = []
    for queue, position in call.cluster.broker.consumers.positions(consumer_name(node)).items():
        ref = refs.get(queue.topic_id)
        cluster, path = (ref.cluster, ref.path) if ref is not None else queue_named_by(position, queue.topic_id.hex)
        rows.append(
            {
                "queue_cluster": cluster,
                "queue_path": path,
                "partition_index": YsonUint64(queue.partition),
                "offset": YsonUint64(position.offset),
                "meta": None,
            }
        )
    return sorted(rows, key=lambda row: (row["queue_cluster"], row["queue_path"], row["partition_index"]))


def queue_named_by(position: Position, default: str) -> tuple[str, str]:
    """The queue in the metadata of a position, for one that is no longer registered."""
    cluster, colon, path = position.metadata.partition(":")
    return (cluster, path) if colon else ("", default)


async def _queue_rows(call: Call, node: Node, query: Query) -> list[dict[str, Any]]:
    """The rows that match the conditions. Only tablets and row indexes within their bounds are read."""
    codec = call.cluster.codec(node)
    topic = call.cluster.broker.namespace.topic(node)
    first_tablet, last_tablet = query.bounds(TABLET_INDEX)
    low, high = query.bounds(ROW_INDEX)
    enough = None if query.order_by or query.limit is None else query.offset + query.limit
    rows: list[dict[str, Any]] = []
    for number in range(first_tablet, min(topic.partitions, topic.partitions if last_tablet is None else last_tablet + 1)):
        partition = call.cluster.partition(node, number)
        at = max(low, 0)
        while high is None or at <= high:
            pulled = await pull(
                partition, codec, at, rows_max=ROWS_AT_ONCE, weight_max=BYTES_AT_ONCE, subjects=call.cluster.subjects
            )
            if pulled.next_offset is None:
                break
            at = pulled.next_offset
            rows += (row for row in pulled.rows() if all(condition.holds(row) for condition in query.conditions))
            if enough is not None and len(rows) >= enough:
                return rows
            if len(rows) > MATCHING_MAX:
                raise YtError(GENERIC, f"the query matches more than {MATCHING_MAX} rows; add a condition or a limit")
    return rows
