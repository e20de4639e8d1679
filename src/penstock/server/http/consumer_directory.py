"""All consumers of a node: Kafka consumer groups, YT consumers, consumers declared on YDB topics, durable consumers of streams.
All but the last have their committed offsets in one table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from penstock.broker import Topic, TopicPartition, UnknownTopicError
from penstock.broker.groups import (
    CONSUMER,
    UnknownGroupError,
    assigned_partitions,
)
from penstock.broker.namespace import Kind, Node, consumer_name
from penstock.broker.streams import StreamEngine, Streams, consumes, is_pattern
from penstock.core.errors import PenstockError, UnavailableError
from penstock.server.http.figures import DECLARING, Lag, Snapshot
from penstock.server.http.node_context import NodeContext

YT_PREFIX: Final = "\1"
STREAM_PREFIX: Final = "stream:"
EVERYTHING: Final = ">"
SUBJECTS_MAX: Final = 10_000
STREAMS_FRESH_S: Final = 2.0

ConsumerKind = Literal["kafka", "yt", "ydb", "stream"]


class ConsumerEntry(NamedTuple):
    """A consumer: its display name, its key in the table of committed offsets, and its resource in access rules."""

    name: str
    kind: ConsumerKind
    key: str
    resource: str
    node: Node | None = None  # of a consumer of YT


class MemberEntry(NamedTuple):
    """A member of a group, and the partitions it has, by topic."""

    id: str
    client_id: str
    host: str
    partitions: dict[str, list[int]]


class StreamPlace(NamedTuple):
    """The position of a durable consumer in a subject or pattern, and its lag; None if unknown."""

    subject: str
    sequence: int
    last_sequence: int
    lag: Lag | None


class ConsumerDirectory:
    """Finds consumers."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._broker = context.broker
        self._declared: tuple[int, dict[str, list[Topic]], set[str]] = (-1, {}, set())
        self._streams: tuple[float, dict[str, list[StreamPlace]]] = (-STREAMS_FRESH_S, {})

    async def all(self, snapshot: Snapshot) -> dict[str, ConsumerEntry]:
        """Every consumer, by display name."""
        entries: dict[str, ConsumerEntry] = {}
        for name in self._declared_consumers()[0]:
            entries[name] = ConsumerEntry(name, "ydb", name, name)
        for name in (*self._group_names(), *(name for name in snapshot.consumers if not name.startswith(YT_PREFIX))):
            entries.setdefault(name, ConsumerEntry(name, "kafka", name, name))
        for node in self._broker.namespace.consumers():
            entries[node.path] = ConsumerEntry(node.path, "yt", consumer_name(node), node.path, node)
        # Durable consumers are also groups, for Kafka's tools; the position in the stream is authoritative.
        for name in await self.stream_places():
            entries[STREAM_PREFIX + name] = ConsumerEntry(STREAM_PREFIX + name, "stream", name, name)
        return entries

    async def find(self, name: str) -> ConsumerEntry:
        """One consumer by its display name. Raises UnknownGroupError if there is none."""
        if name in self._declared_consumers()[0]:
            return ConsumerEntry(name, "ydb", name, name)
        node = self._broker.namespace.find(name) if name.startswith("//") else None
        if node is not None and node.kind is Kind.CONSUMER:
            return ConsumerEntry(name, "yt", consumer_name(node), name, node)
        durable = name.removeprefix(STREAM_PREFIX)
        if durable != name and durable in await self.stream_places():
            return ConsumerEntry(name, "stream", durable, durable)
        groups = self._broker.groups
        if not name.startswith(YT_PREFIX) and (groups.kind(name) or self._broker.consumers.has_positions(name)):
            return ConsumerEntry(name, "kafka", name, name)
        raise UnknownGroupError(f"there is no consumer {name!r}; GET /api/v1/consumers lists them")

    def resource_of(self, name: str) -> str:
        """The resource name of a consumer in access rules, whether it exists or not."""
        return name.removeprefix(STREAM_PREFIX)

    def state(self, consumer: ConsumerEntry) -> str:
        """Its state, in the terms of its protocol."""
        if consumer.kind == "stream":
            return "Durable"
        if consumer.node is not None:
            return consumer.node.mount_state.value.capitalize()
        for kind in self._broker.groups.kinds():
            if kind.has(consumer.key):
                return kind.summary(consumer.key).state
        if self._ydb_readers(consumer):
            return "Reading"
        return "Declared" if consumer.kind == "ydb" else "Empty"

    def has_members(self, consumer: ConsumerEntry) -> bool:
        """Whether it has active members, which would overwrite its offsets."""
        groups = self._broker.groups
        is_group = groups.kind(consumer.key) is not None and groups.empty_since_ms(consumer.key) is None
        return is_group or bool(self._ydb_readers(consumer))

    def members(self, consumer: ConsumerEntry) -> list[MemberEntry]:
        """Its active members: of the group, and read sessions of YDB clients."""
        if consumer.kind == "stream":
            return []
        readers = self._ydb_readers(consumer)
        return self._group_members(consumer) + [
            MemberEntry(reader, "", "", self._by_topic(frozenset(queues))) for reader, queues in sorted(readers.items())
        ]

    def _ydb_readers(self, consumer: ConsumerEntry) -> Mapping[str, Sequence[TopicPartition]]:
        readers_of = self._context.readers_of
        return {} if readers_of is None or consumer.kind == "stream" else readers_of(consumer.key)

    def _group_members(self, consumer: ConsumerEntry) -> list[MemberEntry]:
        groups = self._broker.groups
        kind = groups.kind(consumer.key)
        if kind is None:
            return []
        if kind == CONSUMER:
            group = groups.consumer.group(consumer.key)
            members = [] if group is None else list(group.members.values())
            return [
                MemberEntry(
                    member.id, member.client_id, member.client_host.lstrip("/"), self._by_topic(member.assigned | member.revoking)
                )
                for member in members
            ]
        described = groups.describe_classic(consumer.key)
        return [
            MemberEntry(
                member.member_id,
                member.client_id,
                member.client_host.lstrip("/"),
                {topic: list(numbers) for topic, numbers in (assigned_partitions(member.assignment) or {}).items()},
            )
            for member in described.members
        ]

    def is_vital(self, consumer: ConsumerEntry) -> bool:
        """Whether messages are kept until it has read them, in any topic."""
        agent = self._broker.queue_agent
        path = consumer.name if consumer.kind == "yt" else f"//groups/{consumer.key}"
        if consumer.kind == "stream":
            return False
        registered = self._broker.registrations.of_consumer(agent.ref(path))
        return consumer.key in self._declared_consumers()[1] or any(registration.vital for registration in registered)

    def declared_on(self, name: str) -> list[Topic]:
        """The topics that a consumer is declared on."""
        return self._declared_consumers()[0].get(name, [])

    async def stream_places(self) -> dict[str, list[StreamPlace]]:
        """Recent positions of durable consumers of streams."""
        engine, clock = self._context.streams, self._context.clock
        if engine is None:
            return {}
        if clock.monotonic() - self._streams[0] < STREAMS_FRESH_S:
            return self._streams[1]
        places: dict[str, list[StreamPlace]] = {}
        subjects = (await engine.get_subjects())[:SUBJECTS_MAX]
        last = dict.fromkeys(subjects, 0)
        for position in await engine.get_consumers(EVERYTHING):
            if is_pattern(position.subject):
                await asyncio.sleep(0)  # each looks at all subjects
                names = [name for name in subjects if consumes(position.subject, name)]
            elif position.subject in last:
                names = [position.subject]
            else:
                continue  # of a subject that is gone
            lag: Lag | None = None
            for name in names:
                last[name] = last[name] or await last_sequence_of(engine, name) or 0
                own = self._stream_lag(name, position.last_sequence)
                lag = own if lag is None or own is None else lag.joined(own)
            place = StreamPlace(position.subject, position.last_sequence, max((last[name] for name in names), default=0), lag)
            places.setdefault(position.durable_name, []).append(place)
        self._streams = (clock.monotonic(), places)
        return places

    def forget_streams(self) -> None:
        """Drop the cached positions after a reset."""
        self._streams = (-STREAMS_FRESH_S, {})

    async def stream_places_in(self, subject: str) -> list[tuple[str, StreamPlace]]:
        """The durable consumers of a subject, by name or by pattern, with their positions."""
        places = await self.stream_places()
        return [
            (durable, place._replace(lag=self._stream_lag(subject, place.sequence)))
            for durable, all_places in sorted(places.items())
            for place in all_places
            if consumes(place.subject, subject)
        ]

    def _stream_lag(self, subject: str, sequence: int) -> Lag | None:
        engine = self._context.streams
        offset = engine.offset_after(subject, sequence) if isinstance(engine, Streams) else None
        if offset is None:
            return None
        try:
            topic = self._broker.catalog.topic(subject)
            return self._context.figures.lag_at(topic, 0, offset)
        except PenstockError:
            return None

    def _by_topic(self, queues: frozenset[TopicPartition]) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for topic_id, number in sorted(queues):
            try:
                name = self._broker.catalog.topic_by_id(topic_id).name
            except UnknownTopicError:
                continue
            numbers.setdefault(name, []).append(number)
        return numbers

    def _group_names(self) -> list[str]:
        return [name for groups in self._broker.groups.kinds() for name in groups.names()]

    def _declared_consumers(self) -> tuple[dict[str, list[Topic]], set[str]]:
        """Consumers declared on topics, and the important ones; cached until the catalog changes."""
        version = self._broker.catalog.version
        if self._declared[0] != version:
            declared: dict[str, list[Topic]] = {}
            important: set[str] = set()
            for topic in self._context.figures.topics():
                if topic.config.own.keys() & DECLARING:
                    important.update(topic.config.important_consumers)
                    for name in topic.config.declared_consumers:
                        declared.setdefault(name, []).append(topic)
            self._declared = (version, declared, important)
        return self._declared[1], self._declared[2]


async def last_sequence_of(engine: StreamEngine, subject: str) -> int | None:
    """The last sequence of a subject; None while its partition is unavailable, so that others can still be shown."""
    try:
        return await engine.last_sequence(subject)
    except UnavailableError:
        return None
