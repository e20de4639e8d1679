"""/topics: list, create, describe and delete topics, add partitions, repair damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from penstock.broker import (
    CLUSTER_NAME,
    Operation,
    ResourceKind,
    TabletDamage,
    Topic,
    TopicConfig,
)
from penstock.server.http.caller import Caller
from penstock.server.http.figures import Snapshot, TopicFigures, is_internal
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Done, Nothing, Page, Paging, RequestModel, Resource, ResponseModel, Route

SUMMED_MAX = 5000  # partitions of the topics of a page that are looked at for it

TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class TopicNames(RequestModel, frozen=True):
    """Which topic."""

    name: TopicName


class TopicsQuery(Paging, frozen=True, kw_only=True):
    """Which topics, and in which order."""

    sort: Literal["name", "partitions", "messages", "bytes", "produce_bytes_per_s", "fetch_bytes_per_s", "consumers"] = "name"
    order: Literal["asc", "desc"] = "asc"
    internal: bool = True  # whether those that the broker keeps for itself are among them


class TopicView(ResponseModel, frozen=True):
    """A topic in a list."""

    name: str
    id: str
    partitions: int
    messages: int
    bytes: int
    produce_messages_per_s: float
    produce_bytes_per_s: float
    fetch_messages_per_s: float
    fetch_bytes_per_s: float
    retention_ms: int | None
    retention_bytes: int | None
    cleanup_policy: str
    is_internal: bool
    consumers: int
    last_message_ms: int | None


class NewTopic(RequestModel, frozen=True):
    """A topic that is to be made."""

    name: TopicName
    partitions: PartitionCount | None = None
    config: dict[str, str] = msgspec.field(default_factory=dict)


class NewPartitionCount(RequestModel, frozen=True):
    """How many partitions a topic is to have."""

    total: PartitionCount


class LostRangeView(ResponseModel, frozen=True):
    """Offsets of a partition that are lost, both ends included."""

    partition: int
    first: int
    last: int


class DamageView(ResponseModel, frozen=True):
    """What is lost of a topic: log entries of its tablets, and offsets."""

    log: list[str]
    offsets: list[LostRangeView]


class TopicResource(Resource):
    """Topics and their partitions."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/topics", self.list_topics, "topics, a page at a time"),
            Route("POST", "/topics", self.create, "make a topic", (409, 422)),
            Route("GET", "/topics/{name}", self.show, "one topic", (404,)),
            Route("DELETE", "/topics/{name}", self.delete, "delete a topic with all its messages", (404, 422)),
            Route("POST", "/topics/{name}/partitions", self.add_partitions, "give a topic more partitions", (404, 422)),
            Route("GET", "/topics/{name}/damage", self.examine, "read all of a topic, and tell what is lost of it", (404,)),
            Route("POST", "/topics/{name}/repair", self.repair, "give up what is lost, and serve the rest", (404, 422)),
        ]

    async def list_topics(self, call: Call[Nothing, TopicsQuery, Nothing]) -> Page[TopicView]:
        """GET /topics: those that the caller may describe."""
        query = call.query
        topics = visible_topics(self._context, call.caller, query.search, internal=query.internal)
        # In the order of their names they can be listed without knowing anything else of all of them.
        figures = self._context.figures
        if query.sort == "name":
            figures.refresh()
            snapshot = figures.last
        else:
            snapshot = await figures.snapshot()
            topics = sorted(topics, key=self._order_of(query.sort, snapshot))
        if query.order == "desc":
            topics = topics[::-1]
        page = query.page(topics)
        if sum(topic.partitions for topic in page) <= SUMMED_MAX:
            now = {topic.id: figures.topic(topic) for topic in page}
            snapshot = Snapshot(snapshot.taken_s, now, readers=snapshot.readers)
        return Page([self._view(topic, snapshot) for topic in page], len(topics))

    async def create(self, call: Call[Nothing, Nothing, NewTopic]) -> TopicView:
        """POST /topics: needs CREATE on the cluster or on this topic."""
        new_topic, caller = call.body, call.caller
        if not caller.may(Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
            caller.check_topic(Operation.CREATE, new_topic.name)
        topic = await self._broker.create_topic(new_topic.name, new_topic.partitions, TopicConfig(new_topic.config))
        return self._view(topic, Snapshot(0.0))

    async def show(self, call: Call[TopicNames, Nothing, Nothing]) -> TopicView:
        """GET /topics/{name}: with sums as they are now."""
        topic = topic_for(self._context, call.caller, Operation.DESCRIBE, call.names.name)
        figures = self._context.figures
        snapshot = await figures.snapshot()
        return self._view(topic, Snapshot(0.0, {topic.id: figures.topic(topic)}, readers=snapshot.readers))

    async def delete(self, call: Call[TopicNames, Nothing, Nothing]) -> Done:
        """DELETE /topics/{name}."""
        topic = topic_for(self._context, call.caller, Operation.DELETE, call.names.name)
        await self._broker.delete_topic(topic.name)
        return Done()

    async def add_partitions(self, call: Call[TopicNames, Nothing, NewPartitionCount]) -> TopicView:
        """POST /topics/{name}/partitions."""
        topic = topic_for(self._context, call.caller, Operation.ALTER, call.names.name)
        topic = await self._broker.add_partitions(topic.name, call.body.total)
        return self._view(topic, await self._context.figures.snapshot())

    async def examine(self, call: Call[TopicNames, Nothing, Nothing]) -> DamageView:
        """GET /topics/{name}/damage."""
        topic = topic_for(self._context, call.caller, Operation.DESCRIBE, call.names.name)
        return _shown_damage(await self._broker.examine(topic))

    async def repair(self, call: Call[TopicNames, Nothing, Nothing]) -> DamageView:
        """POST /topics/{name}/repair: a caller who may delete the topic may give up what is lost of it."""
        topic = topic_for(self._context, call.caller, Operation.DELETE, call.names.name)
        return _shown_damage(await self._broker.give_up_lost(topic))

    def _view(self, topic: Topic, snapshot: Snapshot) -> TopicView:
        """A topic with what is known of it."""
        figures = snapshot.topics.get(topic.id, TopicFigures())
        rates = self._context.observatory.topic_rates(topic.name)
        config = topic.config
        is_cut = "delete" in config["cleanup.policy"].split(",")
        retention_ms, retention_bytes = int(config["retention.ms"]), int(config["retention.bytes"])
        return TopicView(
            name=topic.name,
            id=str(topic.id),
            partitions=topic.partitions,
            messages=figures.messages,
            bytes=figures.size,
            **rates._asdict(),
            retention_ms=retention_ms if is_cut and retention_ms >= 0 else None,
            retention_bytes=retention_bytes if is_cut and retention_bytes >= 0 else None,
            cleanup_policy=config["cleanup.policy"],
            is_internal=is_internal(topic.name),
            consumers=len(snapshot.readers.get(topic.id, ())),
            last_message_ms=figures.last_ms if figures.last_ms >= 0 else None,
        )

    def _order_of(self, sort: str, snapshot: Snapshot) -> Callable[[Topic], float]:
        none = TopicFigures()
        rates = self._context.observatory.topic_rates
        orders: dict[str, Callable[[Topic], float]] = {
            "partitions": lambda topic: topic.partitions,
            "messages": lambda topic: snapshot.topics.get(topic.id, none).messages,
            "bytes": lambda topic: snapshot.topics.get(topic.id, none).size,
            "produce_bytes_per_s": lambda topic: rates(topic.name).produce_bytes_per_s,
            "fetch_bytes_per_s": lambda topic: rates(topic.name).fetch_bytes_per_s,
            "consumers": lambda topic: len(snapshot.readers.get(topic.id, ())),
        }
        return orders[sort]


def topic_for(context: NodeContext, caller: Caller, operation: Operation, name: str) -> Topic:
    """A topic with which the caller may do this. NotAllowedError, or UnknownTopicError."""
    caller.check_topic(operation, name)
    return context.broker.catalog.topic(name)


def visible_topics(context: NodeContext, caller: Caller, search: str = "", *, internal: bool = True) -> list[Topic]:
    """The topics that a caller may know of, by name."""
    topics = context.figures.topics()
    if search:
        part = search.lower()
        topics = [topic for topic in topics if part in topic.name.lower()]
    if not internal:
        topics = [topic for topic in topics if not is_internal(topic.name)]
    if caller.access is not None:
        topics = [topic for topic in topics if caller.may_topic(Operation.DESCRIBE, topic.name)]
    return topics


def _shown_damage(damage: TabletDamage) -> DamageView:
    lost = [
        LostRangeView(partition=number, first=entry.first_offset, last=entry.next_offset - 1)
        for number, several in sorted(damage.offsets.items())
        for entry in several
    ]
    return DamageView(log=list(damage.log), offsets=lost)
