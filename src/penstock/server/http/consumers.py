"""/consumers: consumer groups with their lag; resets offsets and deletes groups without members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from penstock.broker import Operation, Position, ResourceKind, Topic, TopicPartition
from penstock.broker.groups import NonEmptyGroupError
from penstock.core.errors import InvalidRequestError
from penstock.server.http.caller import Caller
from penstock.server.http.consumer_directory import ConsumerDirectory, ConsumerEntry, ConsumerKind
from penstock.server.http.consumer_positions import ConsumerPositions, PositionView
from penstock.server.http.errors import MalformedRequestError, NotSupportedHereError
from penstock.server.http.figures import ConsumerFigures, Lag, Snapshot
from penstock.server.http.message_scan import offset_at_time
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import (
    Call,
    Count,
    Done,
    Limit,
    Nothing,
    Page,
    Paging,
    RequestModel,
    Resource,
    ResponseModel,
    Route,
)
from penstock.server.http.topics import TopicName, TopicNames, topic_for

TOPICS_SHOWN: Final = 20

ConsumerName = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Sort = Literal["name", "kind", "state", "members", "lag_messages", "lag_bytes", "lag_seconds", "retention_share"]


class ConsumerNames(RequestModel, frozen=True):
    """The consumer in the path."""

    name: ConsumerName


class ConsumersQuery(Paging, frozen=True, kw_only=True):
    """Search, order and page of a list of consumers."""

    kind: ConsumerKind | None = None
    sort: Sort = "name"
    order: Literal["asc", "desc"] = "asc"


class ConsumerView(ResponseModel, frozen=True):
    """A consumer in a list. `lag_seconds` is the age of its first unread message, `retention_share` the share of its retention
    that this message has used up: at 1 it is deleted unread. `topics` has only the first few."""

    name: str
    kind: ConsumerKind
    state: str
    members: int
    topics: list[str]
    topic_count: int
    lag_messages: int
    lag_bytes: int
    lag_seconds: float | None
    retention_share: float | None
    vital: bool


class MemberView(ResponseModel, frozen=True):
    """A member of a group, and the partitions it has, by topic."""

    id: str
    client_id: str
    host: str
    partitions: dict[str, list[int]]


class PositionsQuery(RequestModel, frozen=True, kw_only=True):
    """The requested part of the committed offsets."""

    topic: TopicName | None = None
    offset: Count = 0
    limit: Limit = 500


class ConsumerDetail(ResponseModel, frozen=True):
    """A consumer with its members and a page of its committed offsets. The sums are over all requested offsets."""

    name: str
    kind: ConsumerKind
    state: str
    vital: bool
    members: list[MemberView]
    topics: list[str]
    lag_messages: int
    lag_bytes: int
    lag_seconds: float | None
    retention_share: float | None
    positions: list[PositionView]
    position_count: int


class ResetRequest(RequestModel, frozen=True, kw_only=True):
    """The new offsets in a topic; `value` is the offset, or the time in milliseconds."""

    topic: TopicName
    to: Literal["earliest", "latest", "offset", "time"]
    partitions: list[Annotated[int, msgspec.Meta(ge=0, le=99_999)]] | None = None
    value: Count | None = None
    dry_run: bool = False


class OffsetMove(ResponseModel, frozen=True):
    """One committed offset before and after the reset."""

    topic: str
    partition: int
    before: int | None
    after: int
    start: int
    end: int


class ResetPlan(ResponseModel, frozen=True):
    """The reset offsets, or with dry_run those that would be reset."""

    done: bool
    items: list[OffsetMove]


class ConsumerResource(Resource):
    """Consumers of every kind."""

    def __init__(self, context: NodeContext, directory: ConsumerDirectory) -> None:
        self._context = context
        self._broker = context.broker
        self._directory = directory
        self._positions = ConsumerPositions(context, directory)

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/consumers", self.list_consumers, "consumers of every kind"),
            Route("GET", "/consumers/{name}", self.show, "one consumer, its members and positions", (404,)),
            Route("DELETE", "/consumers/{name}", self.delete, "delete a consumer and its positions", (404, 409, 422)),
            Route("POST", "/consumers/{name}/reset", self.reset, "move its positions, or show how", (404, 409, 422)),
            Route("GET", "/topics/{name}/consumers", self.list_of_topic, "the consumers of a topic", (404,)),
        ]

    async def list_consumers(self, call: Call[Nothing, ConsumersQuery, Nothing]) -> Page[ConsumerView]:
        """GET /consumers: those that the caller may describe."""
        query = call.query
        snapshot = await self._context.figures.snapshot()
        known = await self._directory.all(snapshot)
        part = query.search.lower()
        consumers = [
            consumer
            for name, consumer in sorted(known.items())
            if part in name.lower() and query.kind in (None, consumer.kind) and _may_see(call.caller, consumer)
        ]
        if query.sort != "name":
            consumers.sort(key=self._order_of(query.sort, snapshot))
        if query.order == "desc":
            consumers.reverse()
        return Page([await self._view(consumer, snapshot) for consumer in query.page(consumers)], len(consumers))

    async def list_of_topic(self, call: Call[TopicNames, Paging, Nothing]) -> Page[ConsumerView]:
        """GET /topics/{name}/consumers: those with a committed offset in it."""
        topic = topic_for(self._context, call.caller, Operation.DESCRIBE, call.names.name)
        snapshot = await self._context.figures.snapshot()
        readers = snapshot.readers.get(topic.id, set())
        durables = {name for name, _ in await self._directory.stream_places_in(topic.name)}
        known = await self._directory.all(snapshot)
        consumers = [
            consumer
            for name, consumer in sorted(known.items())
            if (consumer.key in (readers if consumer.kind != "stream" else durables))
            and call.query.search.lower() in name.lower()
            and _may_see(call.caller, consumer)
        ]
        return Page([await self._view(consumer, snapshot) for consumer in call.query.page(consumers)], len(consumers))

    async def show(self, call: Call[ConsumerNames, PositionsQuery, Nothing]) -> ConsumerDetail:
        """GET /consumers/{name}."""
        name, query = call.names.name, call.query
        call.caller.check_group(Operation.DESCRIBE, self._directory.resource_of(name))
        consumer = await self._directory.find(name)
        members = self._directory.members(consumer)
        positions = await self._positions.of(consumer, members)
        if query.topic is not None:
            positions = [position for position in positions if position.topic == query.topic]
        return ConsumerDetail(
            name=name,
            kind=consumer.kind,
            state=self._directory.state(consumer),
            vital=self._directory.is_vital(consumer),
            members=[MemberView(**member._asdict()) for member in members],
            topics=sorted({member.topic for member in positions}),
            positions=positions[query.offset : query.offset + query.limit],
            position_count=len(positions),
            **_totals(positions),
        )

    async def delete(self, call: Call[ConsumerNames, Nothing, Nothing]) -> Done:
        """DELETE /consumers/{name}: a consumer without members."""
        name = call.names.name
        call.caller.check_group(Operation.DELETE, self._directory.resource_of(name))
        consumer = await self._directory.find(name)
        if consumer.kind == "yt":
            await self._broker.namespace.remove(name)
        elif consumer.kind == "kafka":
            await self._broker.groups.delete(consumer.key)
        elif consumer.kind == "ydb":
            topics = ", ".join(topic.name for topic in self._directory.declared_on(name)[:5])
            raise NotSupportedHereError(
                f"consumer {name!r} is declared on topics ({topics}); drop it there, by ALTER TOPIC of YDB"
            )
        else:
            raise NotSupportedHereError(f"{name!r} is a durable name of streams; those stay as long as their subjects")
        return Done()

    async def reset(self, call: Call[ConsumerNames, Nothing, ResetRequest]) -> ResetPlan:
        """POST /consumers/{name}/reset. As with Kafka's tools, only while the consumer has no members."""
        name, body, caller = call.names.name, call.body, call.caller
        caller.check_group(Operation.READ, self._directory.resource_of(name))
        topic = topic_for(self._context, caller, Operation.READ, body.topic)
        consumer = await self._directory.find(name)
        if (body.to in ("offset", "time")) != (body.value is not None):
            raise MalformedRequestError("value is given with to=offset and to=time, and with nothing else")
        if consumer.kind == "stream":
            return await self._reset_stream(consumer, topic, body)
        if self._directory.has_members(consumer):
            raise NonEmptyGroupError(f"consumer {name!r} has members, which would overwrite it; stop them first")
        numbers = list(range(topic.partitions)) if body.partitions is None else sorted(set(body.partitions))
        items = [await self._move(consumer, topic, number, body) for number in numbers]
        if not body.dry_run:
            moves = [(TopicPartition(topic.id, move.partition), Position(move.after)) for move in items]
            await self._broker.consumers.commit(consumer.key, moves)
        return ResetPlan(done=not body.dry_run, items=items)

    async def _move(self, consumer: ConsumerEntry, topic: Topic, number: int, body: ResetRequest) -> OffsetMove:
        partition = self._broker.partition(topic, number)
        start, end = partition.start_offset, partition.end_offset
        after = {"earliest": start, "latest": end}.get(body.to, body.value or 0)
        if body.to == "time":
            after = await offset_at_time(partition, body.value or 0, self._context.clock)
        before = self._broker.consumers.position(consumer.key, TopicPartition(topic.id, number))
        return OffsetMove(
            topic=topic.name,
            partition=number,
            before=None if before is None else before.offset,
            after=min(max(after, start), end),
            start=start,
            end=end,
        )

    async def _reset_stream(self, consumer: ConsumerEntry, topic: Topic, body: ResetRequest) -> ResetPlan:
        """Reset a durable consumer of streams, whose position is the last acknowledged sequence."""
        engine = self._context.streams
        if engine is None or body.to == "time":
            raise InvalidRequestError(
                "a durable name of streams is moved to earliest, latest or a sequence (offset), not to a time"
            )
        patterns = [place.subject for name, place in await self._directory.stream_places_in(topic.name) if name == consumer.key]
        if patterns and topic.name not in patterns:
            raise NotSupportedHereError(
                f"{consumer.name!r} consumes {topic.name!r} by the pattern {patterns[0]!r} and has one position for all of it; "
                f"move it with: penstock stream ack '{patterns[0]}' {consumer.key} SEQUENCE --rewind"
            )
        last = await engine.last_sequence(topic.name)
        after = {"earliest": 0, "latest": last}.get(body.to, body.value or 0)
        before = await engine.get_position(consumer.key, topic.name)
        if not body.dry_run:
            after = await engine.acknowledge(consumer.key, topic.name, after, rewind=True)
            self._directory.forget_streams()
        move = OffsetMove(topic=topic.name, partition=0, before=before, after=after, start=0, end=last)
        return ResetPlan(done=not body.dry_run, items=[move])

    async def _view(self, consumer: ConsumerEntry, snapshot: Snapshot) -> ConsumerView:
        figures = await self._figures(consumer, snapshot)
        topics = sorted(figures.lag_by_topic)
        return ConsumerView(
            name=consumer.name,
            kind=consumer.kind,
            state=self._directory.state(consumer),
            members=len(self._directory.members(consumer)),
            topics=topics[:TOPICS_SHOWN],
            topic_count=len(topics),
            lag_messages=figures.lag.messages,
            lag_bytes=figures.lag.size,
            lag_seconds=self._positions.age_s(figures.lag),
            retention_share=figures.lag.retention_share,
            vital=self._directory.is_vital(consumer),
        )

    async def _figures(self, consumer: ConsumerEntry, snapshot: Snapshot) -> ConsumerFigures:
        if consumer.kind != "stream":
            return snapshot.consumers.get(consumer.key, ConsumerFigures())
        figures = ConsumerFigures()
        for place in (await self._directory.stream_places()).get(consumer.key, []):
            figures.add(place.subject, place.lag or Lag())
        return figures

    def _order_of(self, sort: str, snapshot: Snapshot) -> Callable[[ConsumerEntry], Any]:
        none = ConsumerFigures()

        def lag(consumer: ConsumerEntry) -> Lag:
            # Durable consumers of streams are also groups of their display name, about a second later.
            return snapshot.consumers.get(consumer.name if consumer.kind == "stream" else consumer.key, none).lag

        orders: dict[str, Callable[[ConsumerEntry], Any]] = {
            "kind": lambda consumer: consumer.kind,
            "state": self._directory.state,
            "members": lambda consumer: len(self._directory.members(consumer)),
            "lag_messages": lambda consumer: lag(consumer).messages,
            "lag_bytes": lambda consumer: lag(consumer).size,
            "lag_seconds": lambda consumer: -(lag(consumer).since_ms or self._context.now_ms()),
            "retention_share": lambda consumer: lag(consumer).retention_share or 0.0,
        }
        return orders[sort]


def _may_see(caller: Caller, consumer: ConsumerEntry) -> bool:
    return caller.may(Operation.DESCRIBE, ResourceKind.GROUP, consumer.resource)


def _totals(positions: list[PositionView]) -> dict[str, Any]:
    """The total lag of a consumer."""
    ages = [position.lag_seconds for position in positions if position.lag_seconds is not None]
    shares = [position.retention_share for position in positions if position.retention_share is not None]
    return {
        "lag_messages": sum(position.lag_messages or 0 for position in positions),
        "lag_bytes": sum(position.lag_bytes or 0 for position in positions),
        "lag_seconds": max(ages, default=None),
        "retention_share": max(shares, default=None),
    }
