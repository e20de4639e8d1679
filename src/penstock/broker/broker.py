"""The broker: topics with their partitions, and consumers with their positions, for every gateway alike."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

from penstock.blob import BlobStorage, Buffer
from penstock.broker.catalog import Catalog
from penstock.broker.consumers import Consumers
from penstock.broker.errors import UnknownTopicError
from penstock.broker.quotas import Quotas
from penstock.broker.tablets import Tablets, tablet_info
from penstock.broker.topic import Topic
from penstock.broker.topic_config import TopicConfig
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.queue import (
    BlobCache,
    Partition,
    SourceWrite,
    WriteOutcome,
    WriteResult,
    check_batch,
    with_append_time,
)
from penstock.tablet import KvTablet

log = logging.getLogger(__name__)

SYSTEM_TABLET = 2
CONSUMERS_TABLET = 3
STARTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a broker behaves; None is without limit."""

    group: int = 0  # the storage group of all tablets
    auto_create_topics: bool = True
    default_partitions: int = 1
    cache_bytes: int = 256 << 20
    retention_interval_s: float = 30.0
    produce_bytes_per_s: float | None = None  # by client
    fetch_bytes_per_s: float | None = None  # likewise


class Produced(NamedTuple):
    """Where a batch was stored. `append_time_ms` is -1 unless the topic stamps messages itself."""

    base_offset: int
    append_time_ms: int
    start_offset: int
    duplicate: bool


class Route(NamedTuple):
    """A partition that is served now, and its topic."""

    topic: Topic
    partition: Partition
    uses_append_time: bool


class Broker:
    """One node's broker. Make it with `start`."""

    def __init__(self, storage: BlobStorage, options: BrokerOptions, *, clock: Clock, random: Random) -> None:
        self.options = options
        self.clock = clock
        self._storage = storage
        self._random = random
        self.quotas = Quotas(options.produce_bytes_per_s, options.fetch_bytes_per_s, clock)
        cache = BlobCache(options.cache_bytes)
        self._routes: dict[tuple[str | bytes, int], Route] = {}
        self._tablets = Tablets(storage, options.group, cache=cache, clock=clock, random=random, changed=self._routes.clear)
        self._system: list[KvTablet] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.catalog: Catalog
        self.consumers: Consumers

    @classmethod
    async def start(cls, storage: BlobStorage, options: BrokerOptions, *, clock: Clock, random: Random) -> Broker:
        """Start the system tablets, then those of every topic."""
        broker = cls(storage, options, clock=clock, random=random)
        try:
            system, consumers = await asyncio.gather(broker._boot(SYSTEM_TABLET), broker._boot(CONSUMERS_TABLET))
            broker.catalog = Catalog(system, random)
            broker.consumers = Consumers(consumers, clock)
            for topic in broker.catalog.deleting():
                await broker._finish_deleting(topic)
            await broker._host(broker.catalog.topics())
        except BaseException:
            await broker.stop()
            raise
        broker._tasks.append(asyncio.create_task(broker._retain(), name="retention"))
        return broker

    async def create_topic(self, name: str, partitions: int | None = None, config: TopicConfig | None = None) -> Topic:
        """A new topic; it can be written to when this returns."""
        count = self.options.default_partitions if partitions is None else partitions
        topic = await self.catalog.create(name, count, config or TopicConfig())
        await self._host([topic])
        return topic

    async def add_partitions(self, name: str, partitions: int) -> Topic:
        """Give a topic more partitions, so that it has this many."""
        topic = await self.catalog.add_partitions(name, partitions)
        await self._host([topic])
        return topic

    async def configure_topic(self, name: str, config: TopicConfig) -> Topic:
        """Give a topic another configuration."""
        topic = await self.catalog.configure(name, config)
        self._routes.clear()
        for tablet_id in set(topic.tablets):
            self._tablets.configure(tablet_id, config.for_partition())
        return topic

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its data and the positions of consumers in it."""
        topic = await self.catalog.mark_deleting(name)
        self._routes.clear()
        await self._finish_deleting(topic)

    def partition(self, topic: Topic, number: int) -> Partition:
        """A partition of a topic, to read from or to ask. UnknownTopicError if it has no such partition,
        PartitionUnavailableError while its tablet starts."""
        if not 0 <= number < topic.partitions:
            raise UnknownTopicError(f"topic {topic.name!r} has partitions 0..{topic.partitions - 1}, not {number}")
        return self._tablets.partition(topic.tablets[number], number)

    def route(self, topic: str | bytes, number: int) -> Route:
        """A partition by the name or the id of its topic. Raises what `partition` and the catalog raise."""
        found = self._routes.get((topic, number))
        if found is None:
            catalog = self.catalog
            named = catalog.topic(topic) if isinstance(topic, str) else catalog.topic_by_id(UUID(bytes=topic))
            found = Route(named, self.partition(named, number), named.config.uses_append_time)
            self._routes[topic, number] = found
        return found

    def data_directories(self) -> list[Path]:
        """Where the storage group of the topics keeps its data: one directory a disk."""
        groups = [group for group in self._storage.groups() if group.id == self.options.group]
        return [group.vdisk_directory(order) for group in groups for order in range(len(group.disks))]

    async def produce(self, topic: Topic, number: int, raw: Buffer) -> Produced:
        """Store one batch in a partition; durable when this returns. An idempotent producer's batch is stored once."""
        partition = self.partition(topic, number)
        stored: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        append_time_ms = self.begin_produce(Route(topic, partition, topic.config.uses_append_time), raw, stored)
        result = await stored
        return Produced(result.base_offset, append_time_ms, partition.start_offset, result.duplicate)

    def begin_produce(self, route: Route, raw: Buffer, outcome: WriteOutcome) -> int:
        """Check one batch and queue it behind those before it; `outcome` is told when it is durable. The time it was stamped
        with, -1 if it was not. The bytes must not change until then."""
        partition = route.partition
        batch = check_batch(raw, partition.config.batch_bytes_max)
        append_time_ms = -1
        if route.uses_append_time:
            append_time_ms = int(self.clock.wall() * 1000)
            batch = check_batch(with_append_time(raw, append_time_ms), partition.config.batch_bytes_max)
        source = None
        if batch.producer_id >= 0:
            name = b"k" + batch.producer_id.to_bytes(8, "big")
            source = SourceWrite(name, batch.base_sequence, batch.producer_epoch, contiguous=True)
        partition.enqueue(batch, source, outcome)
        return append_time_ms

    async def new_producer(self) -> tuple[int, int]:
        """An id and epoch for an idempotent producer."""
        return await self.catalog.new_producer_id(), 0

    async def stop(self) -> None:
        """Finish what is under way and stop every tablet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._tablets.stop()
        for tablet in self._system:
            await tablet.stop()

    async def _boot(self, tablet_id: int) -> KvTablet:
        storage = self._storage.tablet(tablet_info(tablet_id, self.options.group))
        tablet = await KvTablet.boot(storage, await storage.next_generation(), random=self._random)
        self._system.append(tablet)
        return tablet

    async def _host(self, topics: list[Topic]) -> None:
        """Bring up the tablets of some topics, not too many at a time."""
        wanted: list[tuple[int, set[int], TopicConfig]] = []
        for topic in topics:
            by_tablet: dict[int, set[int]] = {}
            for number, tablet_id in enumerate(topic.tablets):
                by_tablet.setdefault(tablet_id, set()).add(number)
            wanted += ((tablet_id, numbers, topic.config) for tablet_id, numbers in by_tablet.items())
        for begin in range(0, len(wanted), STARTS_AT_ONCE):
            batch = wanted[begin : begin + STARTS_AT_ONCE]
            await asyncio.gather(
                *(self._tablets.host(tablet, numbers, config.for_partition()) for tablet, numbers, config in batch)
            )

    async def _finish_deleting(self, topic: Topic) -> None:
        for tablet_id in sorted(set(topic.tablets)):
            await self._tablets.erase(tablet_id)
        await self.consumers.forget_topic(topic.id)
        await self.catalog.forget(topic)

    async def _retain(self) -> None:
        """Now and then, let go of what retention does not ask for."""
        while True:
            await asyncio.sleep(self.options.retention_interval_s)
            for partition in self._tablets.partitions():
                try:
                    await partition.retain()
                except PenstockError as error:
                    log.warning("retention of partition %d will be tried again: %s", partition.number, error)
