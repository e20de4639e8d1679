"""Commands on queues and consumers: registrations, pulling, advancing."""

from __future__ import annotations

from typing import Any

from yt.yson import to_yson_type

from penstock.broker import Operation, Position, Queue
from penstock.broker.namespace import Kind, Node, consumer_name
from penstock.broker.registrations import Ref, Registration
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.errors import GENERIC, LOCK_CONFLICT, NO_SUCH_NODE, NOT_AUTHORIZED, OFFSET_CONFLICT, YtError
from penstock.gateway.yt.paths import Path
from penstock.gateway.yt.peers import PLACE_COMMAND
from penstock.gateway.yt.permissions import check, check_peer, denied, is_peer, may_node
from penstock.gateway.yt.row_reader import BYTES_DEFAULT, ROWS_DEFAULT, ROWS_MAX, pull
from penstock.gateway.yt.table_commands import apply
from penstock.gateway.yt.tablet_transactions import Changes

# Set when one cluster tells another of a registration, so that it is not told back.
FORWARDED = "penstock_forwarded"
# Set when one cluster pulls from another for a consumer, whose user it has checked.
READER = "penstock_reader"
OFFSET_MAX = (1 << 63) - 1


async def register(call: Call) -> Reply:
    """Register a consumer at a queue: at the cluster of the queue first, which must not trim from then on."""
    queue, consumer = _pair(call)
    is_passed_on = _is_passed_on(call)
    registration = Registration(queue, consumer, call.flag("vital", None) is True, _partitions(call))
    if call.get("vital") is None:
        raise YtError(GENERIC, 'missing required parameter "vital"')
    for ref, kind in ((queue, Kind.QUEUE), (consumer, Kind.CONSUMER)):
        if ref.cluster == call.cluster.name:
            node = call.cluster.consumer(ref.path) if kind is Kind.CONSUMER else call.cluster.table(_local(ref), kind)
            # The right to register vital consumers covers all others.
            if kind is Kind.CONSUMER or not may_node(call, Operation.ALTER, node):
                check(call, Operation.ALTER if kind is Kind.QUEUE and registration.vital else Operation.READ, node)
    for cluster in _clusters(queue, consumer):
        if cluster == call.cluster.name:
            await call.cluster.broker.registrations.register(registration)
        elif not is_passed_on:
            await _forward(call, cluster, registration, {"vital": registration.vital, "partitions": call.get("partitions")})
    return Reply({})


async def unregister(call: Call) -> Reply:
    """End a registration, at the cluster of the queue last; the objects themselves may be gone."""
    queue, consumer = _pair(call)
    is_passed_on = _is_passed_on(call)
    if not is_passed_on:
        _check_unregister(call, queue, consumer)
    for cluster in reversed(_clusters(queue, consumer)):
        if cluster == call.cluster.name:
            await call.cluster.broker.registrations.unregister(queue, consumer)
        elif not is_passed_on:
            await _forward(call, cluster, Registration(queue, consumer, vital=False), {})
    return Reply({})


async def list_registrations(call: Call) -> Reply:
    """Registrations of a queue, of a consumer, of both, or all that this cluster knows of."""
    here = call.cluster.name
    queue = None if call.get("queue_path") is None else call.path("queue_path").ref(here)
    consumer = None if call.get("consumer_path") is None else call.path("consumer_path").ref(here)
    clusters = {ref.cluster for ref in (queue, consumer) if ref is not None}
    if clusters and here not in clusters:
        cluster = (queue or consumer or Ref(here, "")).cluster
        parameters = {**call.parameters, "output_format": call.get("output_format")}
        body, _ = await call.cluster.peers.ask(cluster, "GET", call.name, _given(parameters), authorization=call.authorization)
        return Reply(rows=body)
    found = [
        one
        for one in call.cluster.broker.registrations
        if (queue is None or one.queue == queue) and (consumer is None or one.consumer == consumer)
    ]
    return Reply([_shown(one) for one in sorted(found)])


async def pull_queue(call: Call) -> Reply:
    """Rows of a partition of a queue."""
    path = call.path("queue_path")
    offset = call.whole("offset")
    if path.cluster not in (None, call.cluster.name):
        return await _pull_remote(call, path.ref(call.cluster.name), offset)
    node = call.cluster.mounted(path, Kind.QUEUE)
    reader = call.text(READER, None)
    if reader is not None and is_peer(call):
        _check_registered(call, path.ref(call.cluster.name), Ref(*reader.split(":", 1)) if ":" in reader else Ref(reader, ""))
    else:
        check(call, Operation.READ, node)
    return await _pull(call, node, offset)


async def pull_consumer(call: Call) -> Reply:
    """The same for a consumer, which must be registered; without an offset from where it stands."""
    queue, consumer = _pair(call)
    if consumer.cluster != call.cluster.name:
        body, headers = await call.cluster.peers.ask(
            consumer.cluster, "GET", call.name, _given(call.parameters), authorization=call.authorization
        )
        return Reply(rows=body, parameters=_parameters(headers))
    node = call.cluster.consumer(consumer.path)
    call.cluster.check_mounted(node)
    check(call, Operation.READ, node)
    _check_registered(call, queue, consumer)
    index = call.whole("partition_index")
    offset = call.whole("offset", None)
    if offset is None:
        offset = _offset(call, node, _place(call, queue, index))
    if queue.cluster != call.cluster.name:
        return await _pull_remote(call, queue, offset, consumer)
    return await _pull(call, call.cluster.mounted(_local(queue), Kind.QUEUE), offset)


async def row_place(call: Call) -> Reply:
    """What another cluster asks of an offset of a queue, to tell how far its consumers are behind."""
    path = call.path("queue_path")
    node = call.cluster.table(path, Kind.QUEUE)
    check(call, Operation.READ, node)
    number, offset = call.whole("partition_index"), call.whole("offset")
    call.cluster.partition(node, number)
    place = await call.cluster.broker.queue_agent.row_place(path.ref(call.cluster.name), number, max(offset, 0))
    return Reply(place._asdict())


async def advance_consumer(call: Call) -> Reply:
    """Set where a consumer stands, if it stands where it is said to."""
    queue, consumer = _pair(call)
    if consumer.cluster != call.cluster.name:
        raise YtError(GENERIC, f"consumer {consumer} is on another cluster; advance it there")
    node = call.cluster.consumer(consumer.path)
    call.cluster.check_mounted(node, writes=True)
    check(call, Operation.READ, node)
    old, new = call.whole("old_offset", None), call.whole("new_offset")
    if not 0 <= new <= OFFSET_MAX:
        raise YtError(GENERIC, f"new_offset is from 0 on, not {new}")
    place = _place(call, queue, call.whole("partition_index"))
    name = consumer_name(node)
    changes = Changes()
    changes.set_position(name, place, Position(new, metadata=str(queue)))
    in_transaction = call.transaction_id
    if in_transaction is None:
        if old is not None:
            changes.checks.append(lambda: _check_offset(consumer, queue, old, _offset(call, node, place)))
    else:
        gathered = call.cluster.transactions.find(in_transaction).changes.position(name, place)
        seen = _offset(call, node, place)
        if old is not None:
            _check_offset(consumer, queue, old, seen if gathered is None else gathered.offset)
        changes.checks.append(lambda: _check_unchanged(consumer, queue, seen, _offset(call, node, place)))
    await apply(call, changes)
    return Reply({})


async def _pull(call: Call, node: Node, offset: int) -> Reply:
    if offset < 0:
        raise YtError(GENERIC, f"Cannot read table {node.path} at a negative row index {offset}")
    partition = call.cluster.partition(node, call.whole("partition_index"))
    rows_max, weight_max = call.whole("max_row_count", ROWS_DEFAULT), call.whole("max_data_weight", BYTES_DEFAULT)
    if rows_max <= 0 or weight_max <= 0:
        raise YtError(GENERIC, "max_row_count and max_data_weight are above 0")
    # Fewer are always allowed, and others want to be served too.
    rows_max, weight_max = min(rows_max, ROWS_MAX), min(weight_max, BYTES_DEFAULT)
    pulled = await pull(partition, call.cluster.codec(node), offset, rows_max=rows_max, weight_max=weight_max)
    return Reply(rows=pulled.written(call.output_format()), parameters={"start_offset": pulled.start_offset})


async def _pull_remote(call: Call, queue: Ref, offset: int, consumer: Ref | None = None) -> Reply:
    names = ("partition_index", "max_row_count", "max_data_weight", "output_format")
    parameters = {name: call.get(name) for name in names}
    parameters |= {"queue_path": queue.path, "offset": offset, READER: None if consumer is None else str(consumer)}
    # For a consumer this cluster asks itself, if it can: its user need not be known there, nor may read the queue otherwise.
    is_trusted = consumer is not None and call.cluster.peers.has_token
    authorization = None if is_trusted else call.authorization
    body, headers = await call.cluster.peers.ask(
        queue.cluster, "GET", "pull_queue", _given(parameters), authorization=authorization
    )
    return Reply(rows=body, parameters=_parameters(headers))


async def _forward(call: Call, cluster: str, registration: Registration, more: dict[str, Any]) -> None:
    queue, consumer = registration.queue, registration.consumer
    parameters = {
        "queue_path": to_yson_type(queue.path, {"cluster": queue.cluster}),
        "consumer_path": to_yson_type(consumer.path, {"cluster": consumer.cluster}),
        # Where neither object is, nothing has to be kept, and it is passed on to both.
        FORWARDED: call.cluster.name in (queue.cluster, consumer.cluster),
        **more,
    }
    await call.cluster.peers.ask(cluster, "POST", call.name, _given(parameters), authorization=call.authorization)


def _is_passed_on(call: Call) -> bool:
    """Whether another cluster tells of a registration. An error if somebody else says so."""
    if call.flag(FORWARDED):
        check_peer(call)
        return True
    return False


def _check_registered(call: Call, queue: Ref, consumer: Ref) -> None:
    if call.cluster.broker.registrations.registration(queue, consumer) is None:
        raise YtError(
            NOT_AUTHORIZED,
            f"Consumer {consumer} is not registered for queue {queue}",
            {"queue": str(queue), "consumer": str(consumer)},
        )


def _check_unregister(call: Call, queue: Ref, consumer: Ref) -> None:
    """Either the right to change the queue or that to read as the consumer will do, if the object is here and there at all."""
    pairs = ((queue, Operation.ALTER), (consumer, Operation.READ))
    found = [(call.cluster.broker.namespace.find(ref.path), ref, need) for ref, need in pairs if ref.cluster == call.cluster.name]
    known = [(node, need) for node, _, need in found if node is not None]
    if known and not any(may_node(call, need, node) for node, need in known):
        raise denied(call, Operation.ALTER, queue.path)


def _pair(call: Call) -> tuple[Ref, Ref]:
    here = call.cluster.name
    return call.path("queue_path").ref(here), call.path("consumer_path").ref(here)


def _local(ref: Ref) -> Path:
    return Path(ref.path, None, None)


def _clusters(queue: Ref, consumer: Ref) -> list[str]:
    """The clusters that keep a registration, that of the queue first."""
    return list(dict.fromkeys((queue.cluster, consumer.cluster)))


def _partitions(call: Call) -> tuple[int, ...] | None:
    given = call.get("partitions")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, int) and one >= 0 for one in given):
        raise YtError(GENERIC, f"partitions is a list of numbers, not {given!r}")
    return tuple(sorted({int(one) for one in given}))


def _given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _parameters(headers: Any) -> dict[str, Any] | None:
    from penstock.gateway.yt.formats import parse_yson

    raw = headers.get("X-YT-Response-Parameters")
    return None if raw is None else parse_yson(raw.encode(), "the parameters of a response")


def _shown(registration: Registration) -> dict[str, Any]:
    return {
        "queue_path": to_yson_type(registration.queue.path, {"cluster": registration.queue.cluster}),
        "consumer_path": to_yson_type(registration.consumer.path, {"cluster": registration.consumer.cluster}),
        "vital": registration.vital,
        "partitions": None if registration.partitions is None else list(registration.partitions),
    }


def _place(call: Call, queue: Ref, index: int) -> Queue:
    """A partition of a queue in the table of positions."""
    topic_id = call.cluster.broker.queue_agent.queue_id(queue)
    if topic_id is None:
        raise YtError(NO_SUCH_NODE, f"there is no queue {queue}")
    if queue.cluster == call.cluster.name:
        call.cluster.partition(call.cluster.node(_local(queue)), index)
    elif not 0 <= index < 1 << 32:
        raise YtError(GENERIC, f"partition_index is from 0 on, not {index}")
    return Queue(topic_id, index)


def _offset(call: Call, node: Node, place: Queue) -> int:
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
    "register_queue_consumer": Command(register, is_volatile=True),
    "unregister_queue_consumer": Command(unregister, is_volatile=True),
    "list_queue_consumer_registrations": Command(list_registrations),
    PLACE_COMMAND: Command(row_place),
    "pull_queue": Command(pull_queue, output_type="tabular", is_heavy=True),
    "pull_consumer": Command(pull_consumer, output_type="tabular", is_heavy=True),
    "pull_queue_consumer": Command(pull_consumer, output_type="tabular", is_heavy=True),
    "advance_consumer": Command(advance_consumer, is_volatile=True, takes_transaction=True),
    "advance_queue_consumer": Command(advance_consumer, is_volatile=True, takes_transaction=True),
}
