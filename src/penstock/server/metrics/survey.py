"""The survey: a background pass over all partitions and committed offsets, in steps that yield to clients.

A scrape cannot do this itself on a node with many topics. A pass starts at most every `PAUSE_S` and takes at most a fiftieth of
the node's time; on a node with few partitions every scrape runs one, and so is never stale.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.blob import BlobId
from penstock.broker import (
    Broker,
    BrokerReading,
    GroupCount,
    PartitionDamagedError,
    PartitionElsewhereError,
    Position,
    Topic,
    TopicPartition,
)
from penstock.core.errors import PenstockError
from penstock.queue import Partition, backlog_of
from penstock.server.metrics.alerts import DamagedDisk
from penstock.server.metrics.disk_damage import DiskDamage

log = logging.getLogger(__name__)

PAUSE_S: Final = 5.0
SHARE_MAX: Final = 1 / 50  # of the time
AT_ONCE: Final = 250
SMALL: Final = 2_000  # partitions and positions that are looked at within a scrape
OVERDUE: Final = 1.1  # of what retention allows; below that, the next retention run may just be due

ReadPipelines = Callable[[], Awaitable[list[dict[str, Any]]]]
ReadDamage = Callable[[], Awaitable[DiskDamage]]


@dataclass(slots=True)
class Lag:
    """The lag of a consumer in a topic: summed over partitions; time and share of retention are the worst of them."""

    consumer: str
    topic: str
    messages: int = 0
    seconds: float = 0.0
    retention_share: float = 0.0
    used_ms: int = field(default=0, compare=False)  # when it last committed; now if it has members


@dataclass(slots=True)
class SurveyResult:
    """The result of a pass."""

    taken_s: float
    duration_s: float = 0.0
    topics: int = 0
    partitions: int = 0
    positions: int = 0
    head_bytes: int = 0
    head_pieces: int = 0
    body_bytes: int = 0
    bodies: int = 0
    topic_bytes: dict[str, int] = field(default_factory=dict)
    topic_messages: dict[str, int] = field(default_factory=dict)
    tablets: tuple[int, int] = (0, 0)  # all of topics, and those of them that serve
    consumers: int = 0
    lags: list[Lag] = field(default_factory=list)  # the largest first
    by_pair: dict[tuple[str, str], Lag] = field(default_factory=dict)  # the same, by consumer and topic
    groups: list[GroupCount] = field(default_factory=list)
    damaged_disks: list[DamagedDisk] = field(default_factory=list)
    damaged: dict[tuple[str, int], str] = field(default_factory=dict)  # damaged partitions, and what is lost
    blocked: dict[str, str] = field(default_factory=dict)  # topics that cannot be trimmed, and why
    pipelines: list[dict[str, Any]] = field(default_factory=list)  # as they report themselves


class Survey:
    """Runs passes and keeps the last result. Run `run` as a task."""

    def __init__(
        self,
        broker: Broker,
        reading: BrokerReading,
        read_pipelines: ReadPipelines | None = None,
        read_damage: ReadDamage | None = None,
    ) -> None:
        self._read_pipelines = read_pipelines
        self._read_damage = read_damage
        self._broker = broker
        self._reading = reading
        self._clock = broker.clock
        self._passing = asyncio.Lock()
        self.last = SurveyResult(float("-inf"))
        self.is_small = False

    async def run(self, done: Callable[[SurveyResult], None]) -> None:
        """Run passes until cancelled."""
        while True:
            try:
                await self.take()
                done(self.last)
            except Exception:
                # A failure of monitoring must not stop the node.
                log.exception("the survey failed")
            await asyncio.sleep(max(PAUSE_S, self.last.duration_s / SHARE_MAX))

    async def refresh(self, age_max_s: float) -> None:
        """Run a pass if the last one is older than this and a pass is cheap."""
        if self.is_small and self._clock.monotonic() - self.last.taken_s > age_max_s:
            await self.take()

    async def take(self) -> None:
        """One pass."""
        async with self._passing:
            result = SurveyResult(self._clock.monotonic())
            try:
                damage = DiskDamage() if self._read_damage is None else await self._read_damage()
                result.damaged_disks = damage.disks
                await self._take_partitions(result, damage.lost_blobs)
                await self._take_positions(result)
                result.groups = self._reading.groups()
                result.tablets = self._reading.tablets()
                if self._read_pipelines is not None:
                    result.pipelines = await self._read_pipelines()
            except PenstockError as error:
                # A system tablet is restarting: the last result stays.
                log.debug("the survey was cut short: %s", error)
                self.last.duration_s = self._clock.monotonic() - result.taken_s
                return
            result.duration_s = self._clock.monotonic() - result.taken_s
            self.is_small = result.partitions + result.positions <= SMALL
            self.last = result

    async def _take_partitions(self, made: SurveyResult, lost_blobs: Mapping[int, set[BlobId]]) -> None:
        now_ms = int(self._clock.wall() * 1000)
        alerts = self._reading.trim_alerts()
        for topic in self._broker.catalog.topics():
            made.topics += 1
            size = messages = 0
            why = alerts.get(topic.id)
            for number in range(topic.partitions):
                try:
                    partition = self._broker.partition(topic, number)
                except PenstockError as error:
                    if isinstance(error, PartitionDamagedError):
                        made.damaged[topic.name, number] = str(error)
                    elif isinstance(error, PartitionElsewhereError):
                        figures = self._figures_elsewhere(topic, number)
                        size += figures[0]
                        messages += figures[1]
                    made.partitions += 1
                    continue
                size += partition.size
                messages += partition.message_count
                self._add_partition(made, partition)
                if topic.tablets[number] in lost_blobs:
                    partition.note_lost(lost_blobs[topic.tablets[number]])
                if partition.damaged_bodies:
                    body = min(partition.damaged_bodies.values())
                    made.damaged[topic.name, number] = (
                        f"partition {number} of topic {topic.name!r} has {len(partition.damaged_bodies)} damaged stretches, the "
                        f"first from offset {body.first_offset} to {body.next_offset - 1}"
                    )
                why = why or self._held_up(topic, partition, now_ms)
                if made.partitions % AT_ONCE == 0:
                    await asyncio.sleep(0)
            made.topic_bytes[topic.name] = size
            made.topic_messages[topic.name] = messages
            if why is not None:
                made.blocked[topic.name] = why

    def _figures_elsewhere(self, topic: Topic, number: int) -> tuple[int, int]:
        """Bytes and messages of a partition on another node; none if they are not known."""
        try:
            status = self._broker.status(topic, number)
        except PenstockError:
            return 0, 0
        return status.size, status.message_count

    def _add_partition(self, made: SurveyResult, partition: Partition) -> None:
        head = partition.head_size
        made.partitions += 1
        made.head_bytes += head
        made.head_pieces += len(partition.head)
        made.body_bytes += partition.size - head
        made.bodies += len(partition.bodies)

    def _held_up(self, topic: Topic, partition: Partition, now_ms: int) -> str | None:
        """Why a partition keeps more than its retention allows. Returns None if it does not, or has no retention."""
        config = partition.config
        if partition.start_offset == partition.end_offset or (config.retention_ms is None and config.retention_bytes is None):
            return None
        needed_from = self._broker.needed_from(topic, partition.number)
        if needed_from is None:
            return None
        runs = partition.bodies or partition.head
        oldest_ms = runs[0].max_timestamp if runs else now_ms
        is_old = config.retention_ms is not None and now_ms - oldest_ms > config.retention_ms * OVERDUE
        is_large = config.retention_bytes is not None and partition.size - runs[0].size > config.retention_bytes * OVERDUE
        if not (is_old or is_large) or needed_from >= runs[0].next_offset:
            return None
        lease = self._broker.leases.holder(TopicPartition(topic.id, partition.number))
        if lease is not None and lease.positions[TopicPartition(topic.id, partition.number)] == needed_from:
            return f"{lease.owner} has a lease, and is to read from offset {needed_from} of partition {partition.number}"
        return f"a consumer that must see every message stands at offset {needed_from} of partition {partition.number}"

    async def _take_positions(self, made: SurveyResult) -> None:
        by_pair: dict[tuple[str, str], Lag] = {}
        names: set[str] = set()
        paths = self._reading.consumer_paths()
        now_ms = int(self._clock.wall() * 1000)
        after = b""
        while True:
            page, after = self._broker.consumers.page(after, AT_ONCE)
            for name, queue, position in page:
                shown = name if self._reading.is_group(name) else paths.get(name)
                if shown is not None:  # else it is of a producer
                    names.add(shown)
                    used_ms = now_ms if self._has_members(name) else position.commit_time_ms
                    self._add_position(by_pair, (shown, used_ms), queue, position, now_ms)
            made.positions += len(page)
            if not after:
                break
            await asyncio.sleep(0)
        made.consumers = len(names)
        made.by_pair = by_pair
        made.lags = sorted(by_pair.values(), key=lambda lag: (-lag.messages, lag.consumer, lag.topic))

    def _has_members(self, name: str) -> bool:
        groups = self._broker.groups
        return groups.kind(name) is not None and groups.empty_since_ms(name) is None

    def _add_position(
        self,
        lags: dict[tuple[str, str], Lag],
        consumer: tuple[str, int],
        queue: TopicPartition,
        position: Position,
        now_ms: int,
    ) -> None:
        name, used_ms = consumer
        try:
            topic = self._broker.catalog.topic_by_id(queue.topic_id)
            status = self._broker.status(topic, queue.partition)
            is_here = self._broker.tablets.hosts(status.tablet_id)
            partition = self._broker.partition(topic, queue.partition) if is_here else None
        except PenstockError:
            return
        lag = lags.get((name, topic.name))
        if lag is None:
            lag = lags[name, topic.name] = Lag(name, topic.name)
        lag.used_ms = max(lag.used_ms, used_ms)
        behind = status.backlog(position.offset) if partition is None else backlog_of(partition, position.offset)
        if not behind.messages:
            return
        age_ms = max(now_ms - (behind.since_ms or now_ms), 0)
        config = topic.config.for_partition() if partition is None else partition.config
        shares = [age_ms / max(config.retention_ms, 1)] if config.retention_ms is not None else []
        if config.retention_bytes is not None:
            shares.append(behind.size / max(config.retention_bytes, 1))
        lag.messages += behind.messages
        lag.seconds = max(lag.seconds, age_ms / 1000)
        lag.retention_share = max(lag.retention_share, *shares, 0.0)
