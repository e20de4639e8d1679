"""Sums over partitions, by topic and by consumer, for lists that show many of them.

No request iterates over every partition: a snapshot is taken on demand if the last one is older than a second, in steps that
yield to other requests. A caller waits for it only if it is quick; otherwise the last one is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker import INTERNAL_TOPICS, Broker, PartitionElsewhereError, Position, Topic, TopicPartition
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.queue import Backlog, Partition, PartitionConfig, backlog_of

FRESH_S: Final = 1.0
MOMENT_S: Final = 0.05  # a snapshot that took no longer than this the last time is waited for
STALE_S: Final = 30.0  # one that is older is waited for a little, however long the next may take
PATIENCE_S: Final = 0.25
PARTITIONS_AT_ONCE: Final = 250
POSITIONS_AT_ONCE: Final = 250
PIPELINES_TOPIC: Final = "__penstock_pipelines"
DECLARING: Final = frozenset({"penstock.consumers", "penstock.important.consumers"})


def is_internal(name: str) -> bool:
    """Whether a topic belongs to the broker or its pipelines, and is hidden unless asked for."""
    return name in INTERNAL_TOPICS or name == PIPELINES_TOPIC


class TopicFigures(NamedTuple):
    """Sums over the partitions of a topic, and the time of its last message; -1 if it has none."""

    messages: int = 0
    size: int = 0
    last_ms: int = -1


class TopicCounts(NamedTuple):
    """The number of topics and partitions, without internal topics."""

    topics: int
    partitions: int

    @classmethod
    def of(cls, topics: Iterable[Topic]) -> TopicCounts:
        """The counts of some topics."""
        sizes = [topic.partitions for topic in topics if not is_internal(topic.name)]
        return cls(len(sizes), sum(sizes))


class Lag(NamedTuple):
    """The lag of a consumer in one partition, or in all of its partitions."""

    messages: int = 0
    size: int = 0
    since_ms: int | None = None
    retention_share: float | None = None  # the share of its retention that the first unread message has used up

    def joined(self, other: Lag) -> Lag:
        """The lag of two partitions together: sums of messages and bytes, the worse of time and retention."""
        times = [time for time in (self.since_ms, other.since_ms) if time is not None]
        shares = [share for share in (self.retention_share, other.retention_share) if share is not None]
        return Lag(self.messages + other.messages, self.size + other.size, min(times, default=None), max(shares, default=None))


@dataclass(slots=True)
class ConsumerFigures:
    """Sums over the committed offsets of a consumer."""

    lag_by_topic: dict[str, int] = field(default_factory=dict)  # in messages
    lag: Lag = field(default_factory=Lag)

    def add(self, topic: str, lag: Lag) -> None:
        """Adds the lag in one partition of a topic."""
        self.lag = self.lag.joined(lag)
        self.lag_by_topic[topic] = self.lag_by_topic.get(topic, 0) + lag.messages


@dataclass(slots=True)
class Snapshot:
    """All sums at one time."""

    taken_s: float
    topics: dict[UUID, TopicFigures] = field(default_factory=dict)
    consumers: dict[str, ConsumerFigures] = field(default_factory=dict)
    readers: dict[UUID, set[str]] = field(default_factory=dict)  # the consumers that have a position in a topic
    partitions: int = 0
    duration_s: float = 0.0


class Figures:
    """Takes snapshots of a broker, and keeps the last."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._last: Snapshot | None = None
        self._taking: asyncio.Task[Snapshot] | None = None
        self._sorted: tuple[int, list[Topic]] = (-1, [])
        self._counted: tuple[int, TopicCounts] = (-1, TopicCounts(0, 0))

    def topics(self) -> list[Topic]:
        """Every topic, by name; sorted once for each change of the catalog."""
        version = self._broker.catalog.version
        if self._sorted[0] != version:
            self._sorted = (version, self._broker.catalog.topics())
        return self._sorted[1]

    def counts(self) -> TopicCounts:
        """How many topics and partitions there are; counted once for each change of the catalog."""
        version = self._broker.catalog.version
        if self._counted[0] != version:
            self._counted = (version, TopicCounts.of(self.topics()))
        return self._counted[1]

    @property
    def last(self) -> Snapshot:
        """The last snapshot, however old; an empty one before the first."""
        return Snapshot(0.0) if self._last is None else self._last

    async def snapshot(self) -> Snapshot:
        """A fresh snapshot, or the last one if a fresh one takes too long."""
        last = self._last
        if last is None:
            return await asyncio.shield(self._begin())
        age_s = self._clock.monotonic() - last.taken_s
        if age_s > FRESH_S:
            taking = self._begin()
            if last.duration_s < MOMENT_S or age_s > STALE_S:
                await asyncio.wait((taking,), timeout=PATIENCE_S)
        return self.last

    async def close(self) -> None:
        """Cancels the snapshot that is being taken, if any."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)

    def refresh(self) -> None:
        """Starts a snapshot in the background if the last one is not recent."""
        if self._last is None or self._clock.monotonic() - self._last.taken_s > FRESH_S:
            self._taking = self._begin()

    def _begin(self) -> asyncio.Task[Snapshot]:
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take(), name="figures")
            self._taking.add_done_callback(_noted)
        return self._taking

    async def _take(self) -> Snapshot:
        now_s = self._clock.monotonic()
        snapshot = Snapshot(now_s)
        looked_at = 0
        for topic in self.topics():
            snapshot.topics[topic.id] = self.topic(topic)
            for name, number in self.unread(topic):
                self._add(snapshot, name, TopicPartition(topic.id, number), Position(0))
            snapshot.partitions += topic.partitions
            looked_at += topic.partitions
            if looked_at >= PARTITIONS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        await self._take_positions(snapshot)
        snapshot.duration_s = self._clock.monotonic() - now_s
        self._last = snapshot
        return snapshot

    def topic(self, topic: Topic) -> TopicFigures:
        """The sums of one topic, as of now."""
        messages, size, last_ms = 0, 0, -1
        for number in range(topic.partitions):
            try:
                status = self._broker.status(topic, number)
            except PenstockError:
                continue
            messages += status.message_count
            size += status.size
            last_ms = max(last_ms, status.max_timestamp)
        return TopicFigures(messages, size, last_ms)

    def unread(self, topic: Topic) -> Iterator[tuple[str, int]]:
        """Consumers declared on a topic, and the partitions they have never read."""
        if topic.config.own.keys() & DECLARING:
            for name in topic.config.declared_consumers:
                for number in range(topic.partitions):
                    if self._broker.consumers.position(name, TopicPartition(topic.id, number)) is None:
                        yield name, number

    def partitions(self, topic: Topic) -> Iterable[Partition]:
        """The partitions of a topic that are served here now."""
        for number in range(topic.partitions):
            try:
                yield self._broker.partition(topic, number)
            except PenstockError:
                continue

    async def _take_positions(self, made: Snapshot) -> None:
        after = b""
        while True:
            positions, after = self._broker.consumers.page(after, POSITIONS_AT_ONCE)
            for name, queue, position in positions:
                self._add(made, name, queue, position)
            if not after:
                return
            await asyncio.sleep(0)

    def _add(self, made: Snapshot, name: str, queue: TopicPartition, position: Position) -> None:
        consumer = made.consumers.setdefault(name, ConsumerFigures())
        try:
            topic = self._broker.catalog.topic_by_id(queue.topic_id)
            lag = self.lag_at(topic, queue.partition, position.offset)
        except PenstockError:
            return
        made.readers.setdefault(topic.id, set()).add(name)
        consumer.add(topic.name, lag)

    def lag_at(self, topic: Topic, number: int, position: int) -> Lag:
        """The lag of a reader in a partition. Raises what `partition` of the broker raises if it is not known."""
        try:
            partition = self._broker.partition(topic, number)
        except PartitionElsewhereError:
            return self._lag(self._broker.status(topic, number).backlog(position), topic.config.for_partition())
        return self._lag(backlog_of(partition, position), partition.config)

    def _lag(self, behind: Backlog, config: PartitionConfig) -> Lag:
        if behind.since_ms is not None and behind.since_ms < 0:  # messages without a timestamp
            behind = behind._replace(since_ms=None)
        if not behind.messages:
            return Lag(retention_share=0.0 if _is_cut(config) else None)
        shares: list[float] = []
        if config.retention_ms and behind.since_ms is not None:
            shares.append((self._clock.wall() * 1000 - behind.since_ms) / config.retention_ms)
        if config.retention_bytes:
            shares.append(behind.size / config.retention_bytes)
        if config.retention_messages:
            shares.append(behind.messages / config.retention_messages)
        share = max(*shares, 0.0) if shares else None
        return Lag(behind.messages, behind.size, behind.since_ms, share)


def _is_cut(config: PartitionConfig) -> bool:
    return any((config.retention_ms, config.retention_bytes, config.retention_messages))


def _noted(task: asyncio.Task[Snapshot]) -> None:
    """Marks the error of a snapshot as retrieved: its waiters get it, and without any the next snapshot may succeed."""
    if not task.cancelled():
        task.exception()
