"""Registrations of consumers at queues, which are stored on the clusters of both.

The cluster of the queue enforces them: it does not trim what a vital consumer has not read, and lets only registered consumers
pull. So it stores a new registration first, and removes it again if the consumer's cluster refuses it.
"""

from __future__ import annotations

import logging
from typing import Any

from yt.yson import to_yson_type

from penstock.broker import Operation
from penstock.broker.namespace import Kind
from penstock.broker.registrations import Ref, Registration
from penstock.core.errors import PenstockError
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.paths import Path
from penstock.gateway.yt.peers import PeerUnavailableError
from penstock.gateway.yt.permissions import access_denied, check, check_peer, is_peer_itself, may_node
from penstock.gateway.yt.visible_nodes import consumer_at, may_use_ref, table_at

log = logging.getLogger(__name__)

# Set when one cluster forwards a registration to another, so that it is not forwarded back.
FORWARDED = "penstock_forwarded"
# Set to remove a registration here although the other cluster does not answer.
FORCE = "penstock_force"
REGISTER, UNREGISTER = "register_queue_consumer", "unregister_queue_consumer"


async def register(call: Call) -> Reply:
    """Register a consumer at a queue, on both clusters or on none."""
    queue, consumer = queue_and_consumer(call)
    is_forwarded = _is_forwarded(call)
    if call.get("vital") is None:
        raise YtError(GENERIC, 'missing required parameter "vital"')
    registration = Registration(queue, consumer, call.flag("vital"), _partitions(call))
    _check_register(call, registration)
    if call.cluster.name not in (queue.cluster, consumer.cluster):
        await _forward(call, queue.cluster, REGISTER, registration)
        return Reply({})
    registrations = call.cluster.broker.registrations
    before = registrations.registration(queue, consumer)
    done: list[str] = []
    try:
        for cluster in _clusters(queue, consumer):
            if cluster == call.cluster.name:
                await registrations.register(registration)
            elif not is_forwarded:
                await _forward(call, cluster, REGISTER, registration)
            done.append(cluster)
    except PenstockError:
        for cluster in done:
            await _roll_back(call, cluster, registration, before)
        raise
    return Reply({})


async def unregister(call: Call) -> Reply:
    """Remove a registration, on this cluster last. The objects themselves and the other cluster may be gone."""
    queue, consumer = queue_and_consumer(call)
    is_forwarded = _is_forwarded(call)
    here = call.cluster.name
    if here not in (queue.cluster, consumer.cluster):
        await _forward(call, queue.cluster, UNREGISTER, Registration(queue, consumer, vital=False))
        return Reply({})
    if not is_forwarded:
        _check_unregister(call, queue, consumer)
    for cluster in {queue.cluster, consumer.cluster} - {here} if not is_forwarded else ():
        if call.cluster.peers.knows(cluster):
            await _unregister_on_peer(call, cluster, queue, consumer)
        else:
            log.warning(
                "%s is unregistered from %s on this cluster only: --peer-cluster does not name %r any more",
                consumer,
                queue,
                cluster,
            )
    await call.cluster.broker.registrations.unregister(queue, consumer)
    return Reply({})


async def list_registrations(call: Call) -> Reply:
    """List the registrations of a queue, of a consumer or of both; by default all that the caller may see."""
    here = call.cluster.name
    queue = None if call.get("queue_path") is None else call.path("queue_path").ref(here)
    consumer = None if call.get("consumer_path") is None else call.path("consumer_path").ref(here)
    clusters = {ref.cluster for ref in (queue, consumer) if ref is not None}
    if clusters and here not in clusters:
        cluster = (queue or consumer or Ref(here, "")).cluster
        parameters = {**call.parameters, "output_format": call.get("output_format")}
        body, _ = await call.cluster.peers.execute(
            cluster, "GET", call.name, without_nulls(parameters), authorization=call.authorization
        )
        return Reply(rows=body)
    registrations = [
        registration
        for registration in call.cluster.broker.registrations
        if (queue is None or registration.queue == queue)
        and (consumer is None or registration.consumer == consumer)
        and _may_see(call, registration)
    ]
    return Reply([_to_yson(registration) for registration in sorted(registrations)])


def queue_and_consumer(call: Call) -> tuple[Ref, Ref]:
    """The queue and the consumer in the parameters."""
    here = call.cluster.name
    return call.path("queue_path").ref(here), call.path("consumer_path").ref(here)


def local_path(ref: Ref) -> Path:
    """The path of an object on this cluster."""
    return Path(ref.path, None, None)


def without_nulls(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that are not null."""
    return {name: value for name, value in parameters.items() if value is not None}


def _check_register(call: Call, registration: Registration) -> None:
    """YtError unless those of the two objects that are on this cluster exist and the caller may register them."""
    queue, consumer = registration.queue, registration.consumer
    if queue.cluster == call.cluster.name:
        node = table_at(call, local_path(queue), Kind.QUEUE)
        # The right to register vital consumers covers all others.
        if not may_node(call, Operation.ALTER, node):
            check(call, Operation.ALTER if registration.vital else Operation.READ, node)
    if consumer.cluster == call.cluster.name:
        check(call, Operation.READ, consumer_at(call, consumer.path))


def _check_unregister(call: Call, queue: Ref, consumer: Ref) -> None:
    """YtError unless the caller may alter the queue or read as the consumer, whichever is on this cluster."""
    needs = ((queue, Operation.ALTER, Kind.QUEUE), (consumer, Operation.READ, Kind.CONSUMER))
    own = [(ref, operation, kind) for ref, operation, kind in needs if ref.cluster == call.cluster.name]
    if not any(may_use_ref(call, operation, ref, kind) for ref, operation, kind in own):
        raise access_denied(call, Operation.ALTER, queue.path)


async def _unregister_on_peer(call: Call, cluster: str, queue: Ref, consumer: Ref) -> None:
    try:
        await _forward(call, cluster, UNREGISTER, Registration(queue, consumer, vital=False))
    except PeerUnavailableError as error:
        if not call.flag(FORCE):
            raise PeerUnavailableError(
                f"{error}; nothing was changed: retry, or if that cluster is gone for good, remove the registration on this one "
                f"only with {FORCE}=%true (yt execute {UNREGISTER}), or after removing it from --peer-cluster"
            ) from error
        log.warning("%s is unregistered from %s on this cluster only, as forced: %s", consumer, queue, error)


async def _roll_back(call: Call, cluster: str, registration: Registration, before: Registration | None) -> None:
    """Restore the previous registration of a cluster, or remove the new one. An error here is only logged, as the caller gets the
    error that caused the rollback."""
    registrations = call.cluster.broker.registrations
    try:
        if cluster != call.cluster.name:
            await _forward(call, cluster, UNREGISTER if before is None else REGISTER, before or registration)
        elif before is None:
            await registrations.unregister(registration.queue, registration.consumer)
        else:
            await registrations.register(before)
    except PenstockError as error:
        log.warning(
            "the registration of %s at %s failed, and could not be rolled back on cluster %r, where it prevents trimming if "
            "it is vital; unregister it: %s",
            registration.consumer,
            registration.queue,
            cluster,
            error,
        )


async def _forward(call: Call, cluster: str, command: str, registration: Registration) -> None:
    queue, consumer = registration.queue, registration.consumer
    partitions = None if registration.partitions is None else list(registration.partitions)
    parameters: dict[str, Any] = {
        "queue_path": to_yson_type(queue.path, {"cluster": queue.cluster}),
        "consumer_path": to_yson_type(consumer.path, {"cluster": consumer.cluster}),
        # A cluster with neither object stores nothing; it asks the cluster of the queue to register on both.
        FORWARDED: call.cluster.name in (queue.cluster, consumer.cluster),
    }
    if command == REGISTER:
        parameters |= {"vital": registration.vital, "partitions": partitions}
    elif not parameters[FORWARDED]:
        parameters[FORCE] = call.get(FORCE)
    await call.cluster.peers.execute(cluster, "POST", command, without_nulls(parameters), authorization=call.authorization)


def _is_forwarded(call: Call) -> bool:
    """Whether another cluster forwards a registration. YtError if the caller is not a cluster."""
    if call.flag(FORWARDED):
        check_peer(call)
        return True
    return False


def _may_see(call: Call, registration: Registration) -> bool:
    """Whether the caller may see a registration, by its rights on either object that is on this cluster."""
    refs = ((registration.queue, Kind.QUEUE), (registration.consumer, Kind.CONSUMER))
    own = [(ref, kind) for ref, kind in refs if ref.cluster == call.cluster.name]
    return is_peer_itself(call) or any(may_use_ref(call, Operation.DESCRIBE, ref, kind) for ref, kind in own)


def _clusters(queue: Ref, consumer: Ref) -> list[str]:
    """The clusters that store a registration, that of the queue first."""
    return list(dict.fromkeys((queue.cluster, consumer.cluster)))


def _partitions(call: Call) -> tuple[int, ...] | None:
    numbers = call.get("partitions")
    if numbers is None:
        return None
    if not isinstance(numbers, list) or not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise YtError(GENERIC, f"partitions must be a list of numbers, not {numbers!r}")
    return tuple(sorted({int(number) for number in numbers}))


def _to_yson(registration: Registration) -> dict[str, Any]:
    return {
        "queue_path": to_yson_type(registration.queue.path, {"cluster": registration.queue.cluster}),
        "consumer_path": to_yson_type(registration.consumer.path, {"cluster": registration.consumer.cluster}),
        "vital": registration.vital,
        "partitions": None if registration.partitions is None else list(registration.partitions),
    }


COMMANDS = {
    REGISTER: Command(register, is_volatile=True),
    UNREGISTER: Command(unregister, is_volatile=True),
    "list_queue_consumer_registrations": Command(list_registrations),
}
