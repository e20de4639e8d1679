"""Commands that pull from queues and advance consumers."""

from __future__ import annotations

from typing import Any

from penstock.broker import Operation, Position, TopicPartition
from penstock.broker.buffered_transactions import Changes
from penstock.broker.namespace import Kind, Node, consumer_name
from penstock.broker.registrations import Ref
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import GENERIC, LOCK_CONFLICT, NOT_AUTHORIZED, OFFSET_CONFLICT, YtError
from penstock.gateway.yt.peers import PLACE_COMMAND
from penstock.gateway.yt.permissions import check, is_peer
from penstock.gateway.yt.registration_commands import local_path, queue_and_consumer, without_nulls
from penstock.gateway.yt.row_reader import BYTES_DEFAULT, ROWS_DEFAULT, ROWS_MAX, pull
from penstock.gateway.yt.table_commands import apply_changes
from penstock.gateway.yt.visible_nodes import consumer_at, mounted_at, node_at, table_at

# Set when one cluster pulls from another for a consumer, after it has checked the user's rights.
READER = "penstock_reader"
OFFSET_MAX = (1 << 63) - 1


async def pull_queue(call: Call) -> Reply:
    """Pull rows of a partition of a queue."""
    path = call.path("queue_path")
    offset = call.integer("offset")
    if path.cluster not in (None, call.cluster.name):
        return await _pull_remote(call, path.ref(call.cluster.name), offset)
    node = mounted_at(call, path, Kind.QUEUE)
    reader = call.text(READER, None)
    if reader is not None and is_peer(call):
        _check_registered(call, path.ref(call.cluster.name), Ref(*reader.split(":", 1)) if ":" in reader else Ref(reader, ""))
    else:
        check(call, Operation.READ, node)
    return await _pull(call, node, offset)


async def pull_consumer(call: Call) -> Reply:
    """Pull rows for a registered consumer, by default from its committed offset."""
    queue, consumer = queue_and_consumer(call)
    if consumer.cluster != call.cluster.name:
        body, headers = await call.cluster.peers.execute(
            consumer.cluster, "GET", call.name, without_nulls(call.parameters), authorization=call.authorization
        )
        return Reply(rows=body, parameters=_parameters(headers))
    node = consumer_at(call, consumer.path)
    call.cluster.check_mounted(node)
    check(call, Operation.READ, node)
    _check_registered(call, queue, consumer)
    index = call.integer("partition_index")
    offset = call.integer("offset", None)
    if offset is None:
        offset = _offset(call, node, _place(call, queue, consumer, index))
    if queue.cluster != call.cluster.name:
        return await _pull_remote(call, queue, offset, consumer)
    # A registered consumer may read a queue that its user may not describe.
    return await _pull(call, call.cluster.mounted(local_path(queue), Kind.QUEUE), offset)


async def row_place(call: Call) -> Reply:
    """Tell another cluster when an offset was committed and what follows it, for the lag of its consumers."""
    path = call.path("queue_path")
    node = table_at(call, path, Kind.QUEUE)
    check(call, Operation.READ, node)
    number, offset = call.integer("partition_index"), call.integer("offset")
    call.cluster.partition(node, number)
    place = await call.cluster.broker.queue_agent.row_place(path.ref(call.cluster.name), number, max(offset, 0))
    return Reply(place._asdict())


async def advance_consumer(call: Call) -> Reply:
    """Commit an offset of a consumer, if its committed offset is the expected one."""
    queue, consumer = queue_and_consumer(call)
    if consumer.cluster != call.cluster.name:
        raise YtError(GENERIC, f"consumer {consumer} is on another cluster; advance it there")
    node = consumer_at(call, consumer.path)
    call.cluster.check_mounted(node, writes=True)
    check(call, Operation.READ, node)
    old, new = call.integer("old_offset", None), call.integer("new_offset")
    if not 0 <= new <= OFFSET_MAX:
        raise YtError(GENERIC, f"new_offset must be from 0 on, not {new}")
    place = _place(call, queue, consumer, call.integer("partition_index"))
    name = consumer_name(node)
    changes = Changes[EncodedRows]()
    changes.set_position(name, place, Position(new, metadata=str(queue)))
    in_transaction = call.transaction_id
    if in_transaction is None:
        if old is not None:
            changes.checks.append(lambda: _check_offset(consumer, queue, old, _offset(call, node, place)))
    else:
        buffered = call.cluster.transactions.find(in_transaction).changes.position(name, place)
        seen = _offset(call, node, place)
        if old is not None:
            _check_offset(consumer, queue, old, seen if buffered is None else buffered.offset)
        changes.checks.append(lambda: _check_unchanged(consumer, queue, seen, _offset(call, node, place)))
    await apply_changes(call, changes)
    return Reply({})


async def _pull(call: Call, node: Node, offset: int) -> Reply:
    if offset < 0:
        raise YtError(GENERIC, f"Cannot read table {node.path} at a negative row index {offset}")
    partition = call.cluster.partition(node, call.integer("partition_index"))
    rows_max, weight_max = call.integer("max_row_count", ROWS_DEFAULT), call.integer("max_data_weight", BYTES_DEFAULT)
    if rows_max <= 0 or weight_max <= 0:
        raise YtError(GENERIC, "max_row_count and max_data_weight must be above 0")
    # A server may return fewer rows than asked for; the cap keeps one client from blocking others.
    rows_max, weight_max = min(rows_max, ROWS_MAX), min(weight_max, BYTES_DEFAULT)
    cluster = call.cluster
    pulled = await pull(
        partition, cluster.codec(node), offset, rows_max=rows_max, weight_max=weight_max, subjects=cluster.subjects
    )
    return Reply(rows=pulled.encode(call.output_format()), parameters={"start_offset": pulled.start_offset})


async def _pull_remote(call: Call, queue: Ref, offset: int, consumer: Ref | None = None) -> Reply:
    names = ("partition_index", "max_row_count", "max_data_weight", "output_format")
    parameters = {name: call.get(name) for name in names}
    parameters |= {"queue_path": queue.path, "offset": offset, READER: None if consumer is None else str(consumer)}
    # For a consumer this cluster uses its own token if it has one, as the user may be unknown there or may not read the queue.
    is_trusted = consumer is not None and call.cluster.peers.has_token
    authorization = None if is_trusted else call.authorization
    body, headers = await call.cluster.peers.execute(
        queue.cluster, "GET", "pull_queue", without_nulls(parameters), authorization=authorization
    )
    return Reply(rows=body, parameters=_parameters(headers))


def _check_registered(call: Call, queue: Ref, consumer: Ref) -> None:
    if call.cluster.broker.registrations.registration(queue, consumer) is None:
        raise YtError(
            NOT_AUTHORIZED,
            f"Consumer {consumer} is not registered for queue {queue}",
            {"queue": str(queue), "consumer": str(consumer)},
        )


def _parameters(headers: Any) -> dict[str, Any] | None:
    from penstock.gateway.yt.formats import parse_yson

    raw = headers.get("X-YT-Response-Parameters")
    return None if raw is None else parse_yson(raw.encode(), "the response parameters")


def _place(call: Call, queue: Ref, consumer: Ref, index: int) -> TopicPartition:
    """A partition of a queue in the table of positions."""
    topic_id = call.cluster.broker.queue_agent.queue_id(queue)
    if queue.cluster == call.cluster.name:
        is_registered = call.cluster.broker.registrations.registration(queue, consumer) is not None
        node = call.cluster.node(local_path(queue)) if is_registered else node_at(call, local_path(queue))
        call.cluster.partition(node, index)
    elif not 0 <= index < 1 << 32:
        raise YtError(GENERIC, f"partition_index must be from 0 on, not {index}")
    assert topic_id is not None
    return TopicPartition(topic_id, index)


def _offset(call: Call, node: Node, place: TopicPartition) -> int:
    position = call.cluster.broker.consumers.position(consumer_name(node), place)
    return 0 if position is None else position.offset


def _check_offset(consumer: Ref, queue: Ref, expected: int, current: int) -> None:
    if current != expected:
        raise YtError(
            OFFSET_CONFLICT,
            f"Offset conflict at partition of queue {queue} for consumer {consumer}: expected offset {expected}, found {current}",
            {"expected_offset": expected, "current_offset": current, "consumer": str(consumer), "queue": str(queue)},
        )


def _check_unchanged(consumer: Ref, queue: Ref, seen: int, current: int) -> None:
    if current != seen:
        raise YtError(LOCK_CONFLICT, f"The offset of consumer {consumer} in queue {queue} was changed by another transaction")


COMMANDS = {
    PLACE_COMMAND: Command(row_place),
    "pull_queue": Command(pull_queue, output_type="tabular", is_heavy=True),
    "pull_consumer": Command(pull_consumer, output_type="tabular", is_heavy=True),
    "pull_queue_consumer": Command(pull_consumer, output_type="tabular", is_heavy=True),
    "advance_consumer": Command(advance_consumer, is_volatile=True, takes_transaction=True),
    "advance_queue_consumer": Command(advance_consumer, is_volatile=True, takes_transaction=True),
}
