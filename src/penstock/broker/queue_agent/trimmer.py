"""Automatic trimming of queues: finds what consumers still need of each partition, and deletes the rest."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from penstock.broker.consumers import Consumers, TopicPartition
from penstock.broker.namespace import MountState, Namespace, Node, consumer_name
from penstock.broker.queue_agent.exporter import EXPORTS
from penstock.broker.queue_agent.exports import StaticExports
from penstock.broker.queue_agent.remotes import Offsets, Remotes
from penstock.broker.queue_agent.trimming import Holder, TrimConfig, decide
from penstock.broker.registrations import Ref, Registration, Registrations
from penstock.broker.topic import Topic
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.queue import Partition, offset_of_last

log = logging.getLogger(__name__)

TRIM_FAILED = "queue_agent_queue_controller_trim_failed"


class QueueTrimming(NamedTuple):
    """The trimming settings of a queue, and its vital consumers."""

    config: TrimConfig
    ttl_ms: int | None
    vital: list[Registration]
    rows_kept: int = 0  # whatever their age

    @property
    def is_asked_for(self) -> bool:
        """Whether trimming is configured."""
        return self.config.enable or self.ttl_ms is not None


class Trimmer:
    """Trims the queues of one cluster."""

    def __init__(
        self,
        cluster: str,
        *,
        namespace: Namespace,
        registrations: Registrations,
        consumers: Consumers,
        exports: StaticExports,
        remotes: Remotes,
        leased_from: Callable[[TopicPartition], int | None],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._registrations = registrations
        self._consumers = consumers
        self._exports = exports
        self._remotes = remotes
        self._leased_from = leased_from
        self._clock = clock
        self._remote_offsets: dict[tuple[Ref, Ref], Offsets | PenstockError] = {}

    async def ask_remote(self) -> None:
        """Request the offsets of all vital consumers on other clusters."""
        pairs = [
            (registration.consumer, registration.queue)
            for registration in self._registrations
            if registration.vital
            and registration.queue.cluster == self._cluster
            and registration.consumer.cluster != self._cluster
        ]
        answers = await asyncio.gather(*(self._ask(*pair) for pair in pairs))
        self._remote_offsets = dict(zip(pairs, answers, strict=True))

    def asked_by(self, node: Node) -> QueueTrimming:
        """The trimming settings in a queue's attributes, which were validated when they were set."""
        vital = [
            registration for registration in self._registrations.of_queue(Ref(self._cluster, node.path)) if registration.vital
        ]
        if not node.attributes:
            return QueueTrimming(TrimConfig(), None, vital)
        raw = json.loads(node.attributes.get("auto_trim_config", b"null")) or {}
        trim = TrimConfig(bool(raw.get("enable")), raw.get("retained_rows"), raw.get("retained_lifetime_duration"))
        keeps_none = json.loads(node.attributes.get("min_data_versions", b"1")) == 0
        ttl_ms = json.loads(node.attributes.get("max_data_ttl", b"null")) if keeps_none else None
        if ttl_ms is not None:
            ttl_ms = max(ttl_ms, json.loads(node.attributes.get("min_data_ttl", b"0")))
        return QueueTrimming(trim, ttl_ms, vital, json.loads(node.attributes.get("row_count_to_keep", b"0")))

    def needed_from(self, topic: Topic, number: int) -> int | None:
        """The first row that a vital consumer or an export still needs; None if there is neither. One that cannot be asked needs
        everything."""
        path = self._namespace.path_of(topic)
        vital = [
            registration
            for registration in self._registrations.of_queue(Ref(self._cluster, path))
            if registration.vital and registration.covers(number)
        ]
        holders = [self._vital_consumer(registration, topic.id, number) for registration in vital]
        node = self._namespace.find(path)
        if node is not None:
            holders += self._exports.holders(node, number)
        return min((0 if holder.offset is None else holder.offset for holder in holders), default=None)

    async def trim(self, node: Node, topic: Topic, partition: Partition, trimming: QueueTrimming) -> dict[str, str]:
        """Trim a partition as far as possible. Returns alerts."""
        if node.mount_state is not MountState.MOUNTED:
            return {}
        config, number = trimming.config, partition.number
        try:
            outlived = await self._outlived(partition, trimming)
            young_from = None
            if config.enable and config.retained_lifetime_ms is not None:
                young_from = await self._first_since(partition, config.retained_lifetime_ms)
            vital = [
                self._vital_consumer(registration, topic.id, number)
                for registration in trimming.vital
                if registration.covers(number)
            ]
            vital += (self._important_consumer(name, topic, number) for name in topic.config.important_consumers)
            exports = self._exports.holders(node, number) if EXPORTS in node.attributes else []
            start, end = partition.start_offset, partition.stable_offset
            retained_from = None
            if config.enable and config.retained_rows is not None:
                retained_from = await offset_of_last(partition, config.retained_rows, end)
            decision = decide(
                config, start=start, end=end, vital=vital, exports=exports, young_from=young_from, retained_from=retained_from
            )
            offsets = [candidate for candidate in (outlived, decision.offset) if candidate is not None]
            leased_from = self._leased_from(TopicPartition(topic.id, number))
            limit = end if leased_from is None else min(end, leased_from)
            if offsets and min(max(offsets), limit) > start:
                await partition.trim(min(max(offsets), limit))
        except PenstockError as error:
            log.warning("trimming of %s, partition %d, will be tried again: %s", node.path, number, error)
            return {TRIM_FAILED: str(error)}
        return {} if decision.alert is None else {TRIM_FAILED: decision.alert}

    async def _outlived(self, partition: Partition, trimming: QueueTrimming) -> int | None:
        """The first row that is not expired by age; None without a limit of age."""
        if trimming.ttl_ms is None:
            return None
        young_from = await self._first_since(partition, trimming.ttl_ms)
        if not trimming.rows_kept:
            return young_from
        return min(young_from, await offset_of_last(partition, trimming.rows_kept, partition.stable_offset))

    async def _first_since(self, partition: Partition, age_ms: int) -> int:
        """The first row that is not older than a time; the end if there is none."""
        batch = await partition.find_time(int(self._clock.wall() * 1000) - age_ms)
        return partition.stable_offset if batch is None else batch[0]

    def _vital_consumer(self, registration: Registration, topic_id: UUID, number: int) -> Holder:
        consumer = registration.consumer
        if consumer.cluster != self._cluster:
            known = self._remote_offsets.get((consumer, registration.queue))
            if isinstance(known, dict):
                return Holder(str(consumer), known.get(number, 0))
            return Holder(str(consumer), None, "it was not asked yet" if known is None else str(known))
        node = self._namespace.consumer(consumer.path)
        if node is None:
            return Holder(str(consumer), None, "there is no such consumer")
        if node.mount_state is MountState.UNMOUNTED:
            return Holder(str(consumer), None, "its table is not mounted")
        return self._holder(str(consumer), consumer_name(node), TopicPartition(topic_id, number))

    def _important_consumer(self, name: str, topic: Topic, number: int) -> Holder:
        """An important consumer of the topic, as set by YDB and Kafka clients, which is treated as vital."""
        return self._holder(name, name, TopicPartition(topic.id, number))

    def _holder(self, shown: str, name: str, queue: TopicPartition) -> Holder:
        position = self._consumers.position(name, queue)
        return Holder(shown, 0 if position is None else position.offset)

    async def _ask(self, consumer: Ref, queue: Ref) -> Offsets | PenstockError:
        try:
            return await self._remotes.consumer_offsets(consumer, queue)
        except PenstockError as error:
            return error
