"""Whether a client may have what it asks for: guards around the handlers of apis, one by api, used only when security is on.

A guard takes out of a request what its client may not touch, lets the handler answer the rest, and adds the refusals to its
answer. So no handler knows of access rules, and without security none of this runs. Produce and Fetch are guarded where they are
served: the one runs without a task, the other keeps sessions that remember what was asked for before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from penstock.broker import CLUSTER_NAME, OPERATIONS, Operation, ResourceKind, UnknownTopicError
from penstock.gateway.kafka.call import Call, Caller
from penstock.kafka.protocol import ZERO_UUID, Message

Handler = Callable[[Call, Any], Awaitable[Any]]
Guard = Callable[[Call, Any, Handler], Awaitable[Any]]

NOT_ASKED: Final = -(1 << 31)  # authorized operations when the client did not request them


def may_topic(call: Caller, operation: Operation, topic: str | bytes) -> bool:
    """Whether something may be done with a topic, by name or id. An id that means nothing is for the handler to refuse."""
    if not isinstance(topic, str):
        try:
            topic = call.node.broker.catalog.topic_by_id(UUID(bytes=topic)).name
        except UnknownTopicError:
            return True
    return call.may(operation, ResourceKind.TOPIC, topic)


def may_cluster(call: Call, operation: Operation) -> bool:
    """Whether something may be done with the cluster as a whole."""
    return call.may(operation, ResourceKind.CLUSTER, CLUSTER_NAME)


def topic_ref(item: Any) -> str | bytes:
    """How a part of a request names its topic: by id where it has one."""
    topic_id: bytes = getattr(item, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return topic_id
    name: str | None = item.topic if hasattr(item, "topic") else item.name
    return name or ""


def allowed_operations(call: Call, kind: ResourceKind, name: str) -> int:
    """What may be done with a resource, as bits."""
    return sum(1 << operation for operation in OPERATIONS[kind] if call.may(operation, kind, name))


def whole(allowed: Callable[[Call, Any], bool], refuse: Callable[[Any], Message]) -> Guard:
    """A guard for a request that is allowed or refused as a whole."""

    async def guard(call: Call, request: Any, handler: Handler) -> Any:
        return await handler(call, request) if allowed(call, request) else refuse(request)

    return guard


def on_cluster(operation: Operation, refuse: Callable[[Any], Message]) -> Guard:
    """A guard for what is done with the cluster as a whole."""
    return whole(lambda call, _: may_cluster(call, operation), refuse)


def each(items: str, answers: str, allowed: Callable[[Call, Any], bool], refuse: Callable[[Any], object]) -> Guard:
    """A guard for a request whose parts are answered each for itself; `items` and `answers` name them and their answers."""

    async def guard(call: Call, request: Any, handler: Handler) -> Any:
        denied = take_out(request, items, lambda item: allowed(call, item))
        response = await handler(call, request)
        getattr(response, answers).extend(refuse(item) for item in denied)
        return response

    return guard


def each_topic(operation: Operation, refuse: Callable[[Any], object], items: str = "topics", answers: str = "topics") -> Guard:
    """A guard for a request whose parts each name a topic."""
    return each(items, answers, lambda call, item: may_topic(call, operation, topic_ref(item)), refuse)


def only(answers: str, allowed: Callable[[Call, Any], bool]) -> Guard:
    """A guard for a list of what there is: only what the client may know of is in it."""

    async def guard(call: Call, request: Any, handler: Handler) -> Any:
        response = await handler(call, request)
        setattr(response, answers, [item for item in getattr(response, answers) if allowed(call, item)])
        return response

    return guard


def both(first: Guard, second: Guard) -> Guard:
    """Two guards, one behind the other."""

    async def guard(call: Call, request: Any, handler: Handler) -> Any:
        async def inner(call: Call, request: Any) -> Any:
            return await second(call, request, handler)

        return await first(call, request, inner)

    return guard


def take_out(request: Any, items: str, allowed: Callable[[Any], bool]) -> list[Any]:
    """Remove the parts of a request that are not allowed, and return them."""
    kept: list[Any] = []
    denied: list[Any] = []
    for item in getattr(request, items):
        (kept if allowed(item) else denied).append(item)
    if denied:
        setattr(request, items, kept)
    return denied
