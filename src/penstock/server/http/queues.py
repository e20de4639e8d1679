"""/queues: topics with the data of the Queue Agent: rates, registrations of consumers, automatic trimming."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from penstock.broker import INTERNAL_TOPICS, Operation, Topic
from penstock.broker.namespace import Node, topic_name_of
from penstock.broker.queue_agent import Status
from penstock.core.errors import PenstockError
from penstock.server.http.caller import Caller
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Page, Paging, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.topics import topic_for, visible_topics

NO_RATES = {"current": 0.0, "1m": 0.0, "1h": 0.0, "1d": 0.0}


class QueueNames(RequestModel, frozen=True):
    """The queue in the path: the name of its topic, or its YT path."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Rates(ResponseModel, frozen=True):
    """Rates per second: current, and over a minute, an hour and a day."""

    current: float
    minute: float = msgspec.field(name="1m")
    hour: float = msgspec.field(name="1h")
    day: float = msgspec.field(name="1d")


class TrimView(ResponseModel, frozen=True):
    """The configuration of automatic trimming."""

    enable: bool
    retained_rows: int | None
    retained_lifetime_ms: int | None


class QueueView(ResponseModel, frozen=True):
    """A queue in a list."""

    name: str
    path: str
    topic: str
    partitions: int
    mount_state: str
    write_row_count_rate: Rates
    write_data_weight_rate: Rates
    registrations: int
    vital: int
    trim: TrimView
    alerts: int


class RegistrationView(ResponseModel, frozen=True):
    """The registration of a consumer. Messages that a vital consumer has not read are not trimmed. The status of each partition
    is in the form of YT's attributes; null if the consumer is on another cluster, or may not be described."""

    consumer: str
    vital: bool
    status: dict[str, Any] | None
    partitions: list[dict[str, Any]] | None


class QueueAlertView(ResponseModel, frozen=True):
    """An alert of the Queue Agent."""

    name: str
    message: str


class QueueDetail(ResponseModel, frozen=True):
    """All data of the Queue Agent on a queue. `partition_list` has the form of YT's `@queue_partitions`."""

    name: str
    path: str
    topic: str
    partitions: int
    mount_state: str
    write_row_count_rate: Rates
    write_data_weight_rate: Rates
    registrations: list[RegistrationView]
    trim: TrimView
    alerts: list[QueueAlertView]
    exports: dict[str, Any] | None
    partition_list: list[dict[str, Any]]


class QueueResource(Resource):
    """Queues."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/queues", self.list_queues, "topics as queues, with rates and registrations"),
            Route("GET", "/queues/{name}", self.show, "one queue: rates, registrations, trimming, alerts", (404,)),
        ]

    async def list_queues(self, call: Call[Nothing, Paging, Nothing]) -> Page[QueueView]:
        """GET /queues."""
        topics = [
            topic for topic in visible_topics(self._context, call.caller, call.query.search) if topic.name not in INTERNAL_TOPICS
        ]
        nodes = [(topic, self._broker.namespace.find(self._broker.namespace.path_of(topic))) for topic in call.query.page(topics)]
        return Page([self._queue(topic, node) for topic, node in nodes if node is not None], len(topics))

    async def show(self, call: Call[QueueNames, Nothing, Nothing]) -> QueueDetail:
        """GET /queues/{name}."""
        topic, node = queue_for(self._context, call.caller, Operation.DESCRIBE, call.names.name)
        agent = self._broker.queue_agent
        status = agent.queue_status(node, has_timestamp=False, has_weight=False)
        shown = self._queue(topic, node)
        return QueueDetail(
            name=topic.name,
            path=node.path,
            topic=topic.name,
            partitions=topic.partitions,
            mount_state=shown.mount_state,
            write_row_count_rate=shown.write_row_count_rate,
            write_data_weight_rate=shown.write_data_weight_rate,
            registrations=[await self._registration(node, registration) for registration in status["registrations"]],
            trim=shown.trim,
            alerts=[
                QueueAlertView(name=name, message=registration["message"])
                for name, registration in status.get("alerts", {}).items()
            ],
            exports=status.get("exports"),
            partition_list=await agent.queue_partitions(node),
        )

    def _queue(self, topic: Topic, node: Node) -> QueueView:
        status = self._broker.queue_agent.queue_status(node, has_timestamp=False, has_weight=False)
        return QueueView(
            name=topic.name,
            path=node.path,
            topic=topic.name,
            partitions=topic.partitions,
            mount_state=node.mount_state.value,
            write_row_count_rate=_rates(status["write_row_count_rate"]),
            write_data_weight_rate=_rates(status["write_data_weight_rate"]),
            registrations=len(status["registrations"]),
            vital=sum(1 for registration in status["registrations"] if registration["vital"]),
            trim=trimming_of(node),
            alerts=len(status.get("alerts", {})),
        )

    async def _registration(self, queue: Node, registration: Status) -> RegistrationView:
        consumer: str = registration["consumer"]
        agent = self._broker.queue_agent
        cluster, _, path = consumer.partition(":")
        node = self._broker.namespace.consumer(path) if cluster == agent.cluster else None
        status = partitions = None
        if node is not None:
            own = str(agent.ref(queue.path))
            try:
                status = (await agent.consumer_status(node))["queues"].get(own)
                known = (await agent.consumer_partitions(node)).get(own)
                partitions = known if isinstance(known, list) else None
            except PenstockError as error:
                status = {"error": {"message": str(error)}}
        return RegistrationView(consumer=consumer, vital=registration["vital"], status=status, partitions=partitions)


def queue_for(context: NodeContext, caller: Caller, operation: Operation, name: str) -> tuple[Topic, Node]:
    """A queue by the name of its topic or by its path, if the caller is allowed the operation."""
    namespace = context.broker.namespace
    if name.startswith("//"):
        queue = namespace.find(name)
        # Users who may not describe a queue must not learn whether it exists.
        caller.check_topic(operation, (queue and queue.topic) or topic_name_of(name))
        node = namespace.node(name)
        return namespace.topic(node), node
    topic = topic_for(context, caller, operation, name)
    return topic, namespace.node(namespace.path_of(topic))


def trimming_of(node: Node) -> TrimView:
    """The trimming settings in the attributes of a queue, which were validated when they were set."""
    raw = msgspec.json.decode(node.attributes.get("auto_trim_config", b"null")) or {}
    return TrimView(
        enable=bool(raw.get("enable")),
        retained_rows=raw.get("retained_rows"),
        retained_lifetime_ms=raw.get("retained_lifetime_duration"),
    )


def _rates(given: dict[str, float]) -> Rates:
    return Rates(current=given["current"], minute=given["1m"], hour=given["1h"], day=given["1d"])
