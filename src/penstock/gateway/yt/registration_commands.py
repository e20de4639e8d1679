"""Registrations of consumers at queues, which the clusters of both keep.

The cluster of the queue decides: it does not trim what a vital consumer has not read, and lets no other consumers pull. So it is
told first of a new registration, and a registration that the other cluster did not take is taken back there.
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
from penstock.gateway.yt.permissions import asks_for_itself, check, check_peer, denied, may_node
from penstock.gateway.yt.visible_nodes import consumer_at, may_ref, table_at

log = logging.getLogger(__name__)

# Set when one cluster tells another of a registration, so that it is not told back.
FORWARDED = "penstock_forwarded"
# Set to end a registration here though the other cluster does not answer, being gone for good.
FORCE = "penstock_force"
REGISTER, UNREGISTER = "register_queue_consumer", "unregister_queue_consumer"


async def register(call: Call) -> Reply:
    """Register a consumer at a queue, on the clusters of both or on none."""
    queue, consumer = pair(call)
    is_passed_on = _is_passed_on(call)
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
            elif not is_passed_on:
                await _forward(call, cluster, REGISTER, registration)
            done.append(cluster)
    except PenstockError:
        for cluster in done:
            await _take_back(call, cluster, registration, before)
        raise
    return Reply({})


async def unregister(call: Call) -> Reply:
    """End a registration, on this cluster last; the objects themselves, and the other cluster, may be gone."""
    queue, consumer = pair(call)
    is_passed_on = _is_passed_on(call)
    here = call.cluster.name
    if here not in (queue.cluster, consumer.cluster):
        await _forward(call, queue.cluster, UNREGISTER, Registration(queue, consumer, vital=False))
        return Reply({})
    if not is_passed_on:
        _check_unregister(call, queue, consumer)
    for cluster in {queue.cluster, consumer.cluster} - {here} if not is_passed_on else ():
        if call.cluster.peers.knows(cluster):
            await _unregister_there(call, cluster, queue, consumer)
        else:
            log.warning("%s is unregistered from %s here alone: no --peer-cluster names %r any more", consumer, queue, cluster)
    await call.cluster.broker.registrations.unregister(queue, consumer)
    return Reply({})


async def list_registrations(call: Call) -> Reply:
    """Registrations of a queue, of a consumer, of both, or all that this cluster knows of and the caller may."""
    here = call.cluster.name
    queue = None if call.get("queue_path") is None else call.path("queue_path").ref(here)
    consumer = None if call.get("consumer_path") is None else call.path("consumer_path").ref(here)
    clusters = {ref.cluster for ref in (queue, consumer) if ref is not None}
    if clusters and here not in clusters:
        cluster = (queue or consumer or Ref(here, "")).cluster
        parameters = {**call.parameters, "output_format": call.get("output_format")}
        body, _ = await call.cluster.peers.ask(cluster, "GET", call.name, given(parameters), authorization=call.authorization)
        return Reply(rows=body)
    found = [
        one
        for one in call.cluster.broker.registrations
        if (queue is None or one.queue == queue) and (consumer is None or one.consumer == consumer) and _may_see(call, one)
    ]
    return Reply([_shown(one) for one in sorted(found)])


def pair(call: Call) -> tuple[Ref, Ref]:
    """The queue and the consumer that a command names."""
    here = call.cluster.name
    return call.path("queue_path").ref(here), call.path("consumer_path").ref(here)


def local(ref: Ref) -> Path:
    """The path of an object of this cluster."""
    return Path(ref.path, None, None)


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters without those that are not given."""
    return {name: value for name, value in parameters.items() if value is not None}


def _check_register(call: Call, registration: Registration) -> None:
    """An error unless what is here of both is there, and may be registered by the caller."""
    queue, consumer = registration.queue, registration.consumer
    if queue.cluster == call.cluster.name:
        node = table_at(call, local(queue), Kind.QUEUE)
        # The right to register vital consumers covers all others.
        if not may_node(call, Operation.ALTER, node):
            check(call, Operation.ALTER if registration.vital else Operation.READ, node)
    if consumer.cluster == call.cluster.name:
        check(call, Operation.READ, consumer_at(call, consumer.path))


def _check_unregister(call: Call, queue: Ref, consumer: Ref) -> None:
    """Either the right to change the queue or that to read as the consumer will do, if the object is of this cluster."""
    needs = ((queue, Operation.ALTER, Kind.QUEUE), (consumer, Operation.READ, Kind.CONSUMER))
    own = [(ref, operation, kind) for ref, operation, kind in needs if ref.cluster == call.cluster.name]
    if not any(may_ref(call, operation, ref, kind) for ref, operation, kind in own):
        raise denied(call, Operation.ALTER, queue.path)


async def _unregister_there(call: Call, cluster: str, queue: Ref, consumer: Ref) -> None:
    try:
        await _forward(call, cluster, UNREGISTER, Registration(queue, consumer, vital=False))
    except PeerUnavailableError as error:
        if not call.flag(FORCE):
            raise PeerUnavailableError(
                f"{error}; nothing was changed: try again, or if that cluster is gone for good, end the registration on this one "
                f"alone with {FORCE}=%true (yt execute {UNREGISTER}), or after taking it out of --peer-cluster"
            ) from error
        log.warning("%s is unregistered from %s here alone, as asked: %s", consumer, queue, error)


async def _take_back(call: Call, cluster: str, registration: Registration, before: Registration | None) -> None:
    """Have a cluster that has taken a registration forget it, or go back to the one before. What goes wrong is logged: the caller
    is told what went wrong first."""
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
            "the registration of %s at %s failed, and could not be taken back on cluster %r, where it holds back trimming if it "
            "is vital; unregister it: %s",
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
        # Where neither object is, nothing is kept, and the cluster of the queue sees to both.
        FORWARDED: call.cluster.name in (queue.cluster, consumer.cluster),
    }
    if command == REGISTER:
        parameters |= {"vital": registration.vital, "partitions": partitions}
    elif not parameters[FORWARDED]:
        parameters[FORCE] = call.get(FORCE)
    await call.cluster.peers.ask(cluster, "POST", command, given(parameters), authorization=call.authorization)


def _is_passed_on(call: Call) -> bool:
    """Whether another cluster tells of a registration. An error if somebody else says so."""
    if call.flag(FORWARDED):
        check_peer(call)
        return True
    return False


def _may_see(call: Call, registration: Registration) -> bool:
    """Whether the caller may know of a registration: through either of its objects, if that is of this cluster."""
    refs = ((registration.queue, Kind.QUEUE), (registration.consumer, Kind.CONSUMER))
    own = [(ref, kind) for ref, kind in refs if ref.cluster == call.cluster.name]
    return asks_for_itself(call) or any(may_ref(call, Operation.DESCRIBE, ref, kind) for ref, kind in own)


def _clusters(queue: Ref, consumer: Ref) -> list[str]:
    """The clusters that keep a registration, that of the queue first."""
    return list(dict.fromkeys((queue.cluster, consumer.cluster)))


def _partitions(call: Call) -> tuple[int, ...] | None:
    asked = call.get("partitions")
    if asked is None:
        return None
    if not isinstance(asked, list) or not all(isinstance(one, int) and one >= 0 for one in asked):
        raise YtError(GENERIC, f"partitions is a list of numbers, not {asked!r}")
    return tuple(sorted({int(one) for one in asked}))


def _shown(registration: Registration) -> dict[str, Any]:
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
