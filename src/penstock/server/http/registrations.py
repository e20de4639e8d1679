"""/queues/{name}/registrations and /queues/{name}/trimming: the consumers a queue waits for, and its automatic trimming."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.broker import Operation
from penstock.broker.groups import UnknownGroupError
from penstock.broker.namespace import GROUPS_FOLDER, group_name
from penstock.broker.registrations import Ref, Registration
from penstock.server.http.consumer_directory import ConsumerDirectory
from penstock.server.http.errors import MalformedRequestError, NotFoundError, NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.queues import QueueNames, TrimView, queue_for, trimming_of
from penstock.server.http.route import Call, Count, Done, Nothing, RequestModel, Resource, Route

SECOND_MS = 1000


class RegistrationNames(QueueNames, frozen=True):
    """Which queue, and which consumer: a group by its name, `stream:NAME` for a durable name of streams, a consumer of YT by
    its path, or as a list of registrations has it."""

    consumer: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class RegistrationRequest(RequestModel, frozen=True):
    """Whether the consumer is vital, and which partitions it reads: null for all."""

    vital: bool
    partitions: list[Count] | None = None


class TrimRequest(RequestModel, frozen=True):
    """Automatic trimming: rows that all vital consumers have read are deleted, except the last ones by number or age."""

    enable: bool
    retained_rows: Count | None = None
    retained_lifetime_ms: Count | None = None


class RegistrationResource(Resource):
    """Who reads a queue, and what becomes of what they have read."""

    def __init__(self, context: NodeContext, directory: ConsumerDirectory) -> None:
        self._context = context
        self._broker = context.broker
        self._directory = directory

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        route = "/queues/{name}/registrations/{consumer}"
        return [
            Route("PUT", route, self.register, "register a consumer, or say otherwise whether it is vital", (404, 409, 422)),
            Route(
                "DELETE",
                route,
                self.unregister,
                "end a registration: the queue does not wait for the consumer any more",
                (404, 409, 422),
            ),
            Route("PUT", "/queues/{name}/trimming", self.set_trimming, "set automatic trimming", (404, 422)),
        ]

    async def register(self, call: Call[RegistrationNames, Nothing, RegistrationRequest]) -> Done:
        """PUT /queues/{name}/registrations/{consumer}. For a vital one it takes the right to alter the topic."""
        caller, body = call.caller, call.body
        consumer = self._consumer(call)
        # The right to register vital consumers covers all others.
        name = call.names.name
        topic, queue = queue_for(self._context, caller, Operation.DESCRIBE, name)
        if not caller.may_topic(Operation.ALTER, topic.name):
            caller.check_topic(Operation.ALTER if body.vital else Operation.READ, topic.name)
        if self._broker.namespace.consumer(consumer.path) is None:
            raise UnknownGroupError(f"there is no consumer {consumer.path}; GET /api/v1/consumers lists them")
        partitions = None if body.partitions is None else tuple(sorted(set(body.partitions)))
        if partitions and partitions[-1] >= topic.partitions:
            raise MalformedRequestError(f"{name} has no partition {partitions[-1]}; it has {topic.partitions}, from 0 on")
        await self._broker.registrations.register(Registration(self._ref(queue.path), consumer, body.vital, partitions))
        return Done()

    async def unregister(self, call: Call[RegistrationNames, Nothing, Nothing]) -> Done:
        """DELETE /queues/{name}/registrations/{consumer}."""
        consumer = self._consumer(call)
        topic, queue = queue_for(self._context, call.caller, Operation.DESCRIBE, call.names.name)
        registration = self._broker.registrations.registration(self._ref(queue.path), consumer)
        if registration is None:
            raise NotFoundError(f"{consumer} is not registered at {call.names.name}")
        if registration.vital:
            call.caller.check_topic(Operation.ALTER, topic.name)
        await self._broker.registrations.unregister(registration.queue, consumer)
        return Done()

    async def set_trimming(self, call: Call[QueueNames, Nothing, TrimRequest]) -> TrimView:
        """PUT /queues/{name}/trimming: the attribute `auto_trim_config` of YT."""
        body = call.body
        _, queue = queue_for(self._context, call.caller, Operation.ALTER, call.names.name)
        if body.retained_lifetime_ms is not None and body.retained_lifetime_ms % SECOND_MS:
            raise MalformedRequestError("retained_lifetime_ms is a number of milliseconds that make whole seconds")
        config: dict[str, bool | int] = {"enable": body.enable}
        kept = {"retained_rows": body.retained_rows, "retained_lifetime_duration": body.retained_lifetime_ms}
        config |= {name: value for name, value in kept.items() if value is not None}
        changed = await self._broker.namespace.set_attributes(queue.path, {"auto_trim_config": msgspec.json.encode(config)})
        return trimming_of(changed)

    def _consumer(
        self, call: Call[RegistrationNames, Nothing, RegistrationRequest] | Call[RegistrationNames, Nothing, Nothing]
    ) -> Ref:
        """The consumer that is named, if the caller may read as it."""
        name = call.names.consumer
        cluster, _, path = name.partition(":")
        if not path.startswith("//"):
            path = name if name.startswith("//") else f"{GROUPS_FOLDER}/{name}"
        elif cluster != self._broker.queue_agent.cluster:
            raise NotSupportedHereError(
                f"{name} is on another cluster, which has to know of it too; use `yt register-queue-consumer` and "
                f"`yt unregister-queue-consumer`"
            )
        call.caller.check_group(Operation.READ, self._directory.resource_of(group_name(path) or path))
        return self._ref(path)

    def _ref(self, path: str) -> Ref:
        return Ref(self._broker.queue_agent.cluster, path)
