"""Committed offsets and lag of a consumer by partition."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker import Position, Topic, UnknownTopicError
from penstock.core.errors import PenstockError
from penstock.server.http.consumer_directory import ConsumerDirectory, ConsumerEntry, MemberEntry
from penstock.server.http.figures import Lag
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import ResponseModel

NEVER: Final = -1  # the time of a commit that has not happened yet


class PositionView(ResponseModel, frozen=True):
    """The committed offset of a consumer in a partition, or the last acknowledged sequence in a stream; null while it has none.
    Unknown values, of queues on another cluster, are null."""

    topic: str
    partition: int
    position: int | None
    start: int | None
    end: int | None
    lag_messages: int | None
    lag_bytes: int | None
    lag_seconds: float | None
    retention_share: float | None
    committed_ms: int | None
    member: str | None


class _Place(NamedTuple):
    topic: str
    partition: int
    position: int | None
    start: int | None = None
    end: int | None = None
    lag: Lag | None = None
    committed_ms: int | None = None
    member: str | None = None


class ConsumerPositions:
    """Views of the committed offsets of consumers."""

    def __init__(self, context: NodeContext, directory: ConsumerDirectory) -> None:
        self._context = context
        self._broker = context.broker
        self._directory = directory

    async def of(self, consumer: ConsumerEntry, members: list[MemberEntry]) -> list[PositionView]:
        """All committed offsets of a consumer, and the assigned partitions without one."""
        if consumer.kind == "stream":
            places = (await self._directory.stream_places()).get(consumer.key, [])
            return [self._view(_Place(place.subject, 0, place.sequence, 0, place.last_sequence, place.lag)) for place in places]
        owners = {
            (topic, number): member.id for member in members for topic, numbers in member.partitions.items() for number in numbers
        }
        views: dict[tuple[str, int], PositionView] = {}
        for queue, position in self._broker.consumers.positions(consumer.key).items():
            topic = self._topic_of(queue.topic_id)
            name = self._remote_name(consumer, queue.topic_id) if topic is None else topic.name
            views[name, queue.partition] = self._in(topic, name, queue.partition, position, owners.get((name, queue.partition)))
        for topic in self._directory.declared_on(consumer.key):
            for name, number in self._context.figures.unread(topic):
                if name == consumer.key:
                    start = Position(0, commit_time_ms=NEVER)
                    views[topic.name, number] = self._in(topic, topic.name, number, start, owners.get((topic.name, number)))
        for (name, number), member in owners.items():
            if (name, number) not in views:
                views[name, number] = self._in(self._topic_named(name), name, number, None, member)
        return [views[place] for place in sorted(views)]

    def age_s(self, lag: Lag) -> float | None:
        """The age of the first unread message."""
        if lag.since_ms is None:
            return None if lag.messages else 0.0
        return max((self._context.now_ms() - lag.since_ms) / 1000, 0.0)

    def _in(self, topic: Topic | None, name: str, number: int, position: Position | None, member: str | None) -> PositionView:
        place = _Place(name, number, None, member=member)
        if position is not None:
            committed_ms = None if position.commit_time_ms == NEVER else position.commit_time_ms
            place = place._replace(position=position.offset, committed_ms=committed_ms)
        if topic is not None:
            with suppress(PenstockError):
                status = self._broker.status(topic, number)
                lag = None if position is None else self._context.figures.lag_at(topic, number, position.offset)
                place = place._replace(start=status.start_offset, end=status.end_offset, lag=lag)
        return self._view(place)

    def _view(self, place: _Place) -> PositionView:
        lag = place.lag
        return PositionView(
            topic=place.topic,
            partition=place.partition,
            position=place.position,
            start=place.start,
            end=place.end,
            lag_messages=None if lag is None else lag.messages,
            lag_bytes=None if lag is None else lag.size,
            lag_seconds=None if lag is None else self.age_s(lag),
            retention_share=None if lag is None else lag.retention_share,
            committed_ms=place.committed_ms,
            member=place.member,
        )

    def _topic_of(self, topic_id: UUID) -> Topic | None:
        try:
            return self._broker.catalog.topic_by_id(topic_id)
        except UnknownTopicError:
            return None

    def _topic_named(self, name: str) -> Topic | None:
        try:
            return self._broker.catalog.topic(name)
        except UnknownTopicError:
            return None

    def _remote_name(self, consumer: ConsumerEntry, topic_id: UUID) -> str:
        """The name of a queue of another cluster, from its registration."""
        agent = self._broker.queue_agent
        for registration in self._broker.registrations.of_consumer(agent.ref(consumer.name)):
            if agent.queue_id(registration.queue) == topic_id:
                return str(registration.queue)
        return str(topic_id)
