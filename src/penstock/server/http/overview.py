"""/overview: the state of the node, and its alerts."""

from __future__ import annotations

from typing import Literal

from penstock.broker import CLUSTER_NAME, Operation, ResourceKind
from penstock.server.http.caller import Caller
from penstock.server.http.consumer_directory import ConsumerDirectory, ConsumerEntry
from penstock.server.http.figures import PIPELINES_TOPIC, Snapshot, TopicCounts
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Resource, ResponseModel, Route
from penstock.server.http.topics import visible_topics
from penstock.server.metrics.alerts import CRITICAL
from penstock.server.metrics.alerts import Alert as KnownAlert


class FlowView(ResponseModel, frozen=True):
    """Messages and bytes per second."""

    messages_per_s: float
    bytes_per_s: float


class SpaceView(ResponseModel, frozen=True):
    """Space used by data on all disks, and free and total space of their file systems."""

    used: int
    free: int
    total: int


class LagView(ResponseModel, frozen=True):
    """The consumer with the largest lag in all of its topics, and the topic that has most of it."""

    consumer: str
    topic: str
    messages: int


class Alert(ResponseModel, frozen=True):
    """An alert, and the object it is about, if it has a name; `link` is its page in the console."""

    level: Literal["warning", "critical"]
    code: str
    message: str
    what_to_do: str
    link: str
    name: str


class Overview(ResponseModel, frozen=True):
    """The state of the node. Storage is null for users without DESCRIBE on the cluster."""

    produce: FlowView
    fetch: FlowView
    storage: SpaceView | None
    topics: int
    partitions: int
    consumers: int
    lag_max: LagView | None
    alerts: list[Alert]


class OverviewResource(Resource):
    """The overview."""

    def __init__(self, context: NodeContext, directory: ConsumerDirectory) -> None:
        self._context = context
        self._directory = directory

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [Route("GET", "/overview", self.show, "rates, storage, the largest lag and alerts")]

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> Overview:
        """GET /overview: what the caller may see."""
        context, caller = self._context, call.caller
        snapshot = await context.figures.snapshot()
        figures = context.figures
        counts = figures.counts() if caller.access is None else TopicCounts.of(visible_topics(context, caller))
        consumers = [consumer for consumer in (await self._directory.all(snapshot)).values() if _may_describe(caller, consumer)]
        may_cluster = caller.may(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)
        sources = context.observatory.sources
        space = sources.space() if may_cluster and sources is not None else None
        rates = context.observatory.flows.rates
        return Overview(
            produce=FlowView(messages_per_s=rates.produce_messages_per_s, bytes_per_s=rates.produce_bytes_per_s),
            fetch=FlowView(messages_per_s=rates.fetch_messages_per_s, bytes_per_s=rates.fetch_bytes_per_s),
            storage=None if space is None else SpaceView(used=space.used, free=space.free, total=space.total),
            **counts._asdict(),
            consumers=len(consumers),
            lag_max=_largest_lag(consumers, snapshot),
            alerts=[_view(alert) for alert in context.observatory.alerts if _may_know(caller, alert)],
        )


def _largest_lag(consumers: list[ConsumerEntry], snapshot: Snapshot) -> LagView | None:
    worst: LagView | None = None
    for view in consumers:
        # Durable consumers of streams are also groups of their display name, about a second later.
        figures = snapshot.consumers.get(view.name if view.kind == "stream" else view.key)
        if figures is not None and figures.lag.messages > (0 if worst is None else worst.messages):
            topic = max(figures.lag_by_topic, key=figures.lag_by_topic.__getitem__)
            worst = LagView(consumer=view.name, topic=topic, messages=figures.lag.messages)
    return worst


def _view(alert: KnownAlert) -> Alert:
    level: Literal["warning", "critical"] = "critical" if alert.level == CRITICAL else "warning"
    return Alert(
        level=level, code=alert.code.upper(), message=alert.message, what_to_do=alert.what_to_do, link=alert.link, name=alert.name
    )


def _may_know(caller: Caller, alert: KnownAlert) -> bool:
    """Whether an alert is about something that the caller may describe."""
    if alert.about == "topic":
        return caller.may_topic(Operation.DESCRIBE, alert.name)
    if alert.about == "consumer":
        return caller.may(Operation.DESCRIBE, ResourceKind.GROUP, alert.name)
    if alert.about == "pipeline":
        return caller.may_topic(Operation.READ, PIPELINES_TOPIC)
    return caller.may(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)


def _may_describe(caller: Caller, consumer: ConsumerEntry) -> bool:
    return caller.may(Operation.DESCRIBE, ResourceKind.GROUP, consumer.resource)
