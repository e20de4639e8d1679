"""The Queue Agent of a node: about once a second it updates the rates of queues and consumers, and trims queues.

It reads counters that are in memory, so a pass is short and never in the way of a write; what other clusters have to be asked is
asked at once for all of them, with a deadline, and one that does not answer counts as in error.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from penstock.broker.consumers import Consumers, Position, TopicPartition
from penstock.broker.namespace import MountState, Namespace, Node, consumer_name
from penstock.broker.namespace.namespace import remote_queue_id
from penstock.broker.queue_agent.exporter import EXPORTS
from penstock.broker.queue_agent.exports import StaticExports
from penstock.broker.queue_agent.rates import Rate, summed
from penstock.broker.queue_agent.remotes import Remotes, RowPlace
from penstock.broker.queue_agent.statuses import (
    GENERIC_CODE,
    PartitionState,
    ReadProgress,
    Status,
    StatusError,
    cannot_read,
    cell_id,
    not_mounted,
    partition_shown,
    reading_shown,
    registrations_shown,
    tablet_id,
)
from penstock.broker.queue_agent.trimmer import Trimmer
from penstock.broker.queue_agent.write_rates import INTERVAL_S, PartitionOf, RowRates, WriteRates
from penstock.broker.registrations import Ref, Registration, Registrations
from penstock.broker.topic import Topic
from penstock.broker.weights import Weights, batch_at, weight_before
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError, UnavailableError
from penstock.core.periodic import repeat
from penstock.core.record_format import MAX_MS
from penstock.queue import Partition, count_messages, offset_of_last

log = logging.getLogger(__name__)


class _ReadAmount(NamedTuple):
    """What a consumer has read up to an offset of a partition: the weight of all rows before it, and rows since it is watched."""

    offset: int
    weight: int | None
    rows: int


class QueueAgent:
    """Make it, then `run` it as a task. Of several nodes one has an agent that works: the one that serves the tablet of the
    namespace, of which there is never more than one generation."""

    def __init__(
        self,
        cluster: str,
        *,
        namespace: Namespace,
        registrations: Registrations,
        consumers: Consumers,
        partition_of: PartitionOf,
        weights: Weights,
        exports: StaticExports,
        is_leader: Callable[[], bool],
        leased_from: Callable[[TopicPartition], int | None],
        changes: Callable[[], int],
        clock: Clock,
        ages: Clock,
    ) -> None:
        self.cluster = cluster
        self.remotes = Remotes()
        self._namespace = namespace
        self._registrations = registrations
        self._consumers = consumers
        self._partition_of = partition_of
        self._weights = weights
        self._exports = exports
        self._is_leader = is_leader
        self._clock = clock
        self._host = socket.gethostname()
        self._writes = WriteRates(namespace.topics, partition_of, weights, changes)
        self._reads: dict[tuple[Ref, Ref, int], RowRates] = {}
        self._read_amounts: dict[tuple[Ref, Ref, int], _ReadAmount] = {}
        self._alerts: dict[UUID, dict[str, str]] = {}
        self._trimmer = Trimmer(
            cluster,
            namespace=namespace,
            registrations=registrations,
            consumers=consumers,
            exports=exports,
            remotes=self.remotes,
            leased_from=leased_from,
            clock=ages,
        )

    async def run(self) -> None:
        """Run passes until cancelled."""
        await repeat("the queue agent", INTERVAL_S, self._lead_once)

    async def _lead_once(self) -> None:
        if not self._is_leader():
            return
        try:
            await self.once()
        except PenstockError as error:
            log.warning("the pass of the queue agent was cut short: %s", error)

    async def once(self) -> None:
        """One pass over all queues."""
        self._weights.sweep()
        await self._trimmer.ask_remote()
        now_s = self._clock.monotonic()
        await self._writes.update(now_s)
        exporting = await self._tend_queues()
        for registration in self._registrations:
            await self._note_reads(now_s, registration)
        self._exports.forget_others(exporting)
        await self._exports.sweep(serves=self._is_leader())

    # What is asked of it.

    def ref(self, path: str) -> Ref:
        """An object of this cluster."""
        return Ref(self.cluster, path)

    def alerts(self) -> dict[UUID, dict[str, str]]:
        """Alerts by topic and kind, as of the last pass."""
        return {topic_id: alerts for topic_id, alerts in self._alerts.items() if alerts}

    def needed_from(self, topic: Topic, number: int) -> int | None:
        """The first row that a vital consumer or an export still needs; None if there is neither."""
        return self._trimmer.needed_from(topic, number)

    def queue_status(self, node: Node, *, has_timestamp: bool, has_weight: bool) -> Status:
        """`@queue_status`."""
        topic = self._namespace.topic(node)
        now_s = self._clock.monotonic()
        shown = [self._writes.of(topic, number, now_s).shown() for number in range(topic.partitions)]
        status: Status = {
            "write_row_count_rate": summed([rows for rows, _ in shown]),
            "write_data_weight_rate": summed([weight for _, weight in shown]),
            "registrations": registrations_shown(self._registrations.of_queue(self.ref(node.path))),
            "family": "ordered_dynamic_table",
            "has_cumulative_data_weight_column": has_weight,
            "has_timestamp_column": has_timestamp,
            "partition_count": topic.partitions,
        }
        if EXPORTS in node.attributes:
            status["exports"] = self._exports.shown(node, self._host)
        alerts = dict(self._alerts.get(topic.id, {}))
        trouble = self._exports.alert(node)
        if trouble is not None:
            alerts["queue_agent_queue_controller_static_export_failed"] = trouble
        if alerts:
            status["alerts"] = {name: {"code": GENERIC_CODE, "message": text} for name, text in alerts.items()}
        return status

    async def queue_partitions(self, node: Node) -> list[Status]:
        """`@queue_partitions`."""
        topic = self._namespace.topic(node)
        now_ms = self._now_ms()
        shown: list[Status] = []
        for number in range(topic.partitions):
            if node.mount_state is MountState.UNMOUNTED:
                error = not_mounted(tablet_id(node.id, number), node.mount_state.value)
                shown.append(error.shown(now_ms, self._host))
                continue
            try:
                state = await self._state(self._partition_of(topic, number))
            except PenstockError as trouble:
                shown.append(StatusError(GENERIC_CODE, str(trouble), {}).shown(now_ms, self._host))
                continue
            rates = self._writes.of(topic, number, self._clock.monotonic()).shown()
            shown.append(partition_shown(state, rates, now_ms=now_ms, cell=cell_id(self.cluster), host=self._host))
        return shown

    async def consumer_status(self, node: Node) -> Status:
        """`@queue_consumer_status`."""
        own = self.ref(node.path)
        registrations = self._registrations.of_consumer(own)
        queues: Status = {}
        for registration in registrations:
            try:
                self._check_mounted(node)
                count = await self._partition_count(registration.queue)
            except UnreadableConsumerError as trouble:
                queues[str(registration.queue)] = trouble.error.shown(self._now_ms(), self._host)
                continue
            except PenstockError as trouble:
                queues[str(registration.queue)] = StatusError(GENERIC_CODE, str(trouble), {}).shown(self._now_ms(), self._host)
                continue
            rates = [self._read_rates((own, registration.queue, number)) for number in range(count)]
            queues[str(registration.queue)] = {
                "read_row_count_rate": summed([rows for rows, _ in rates]),
                "read_data_weight_rate": summed([weight for _, weight in rates]),
                "partition_count": count,
            }
        return {"queues": queues, "registrations": registrations_shown(registrations)}

    async def consumer_partitions(self, node: Node) -> Status:
        """`@queue_consumer_partitions`."""
        own = self.ref(node.path)
        partitions: Status = {}
        for registration in self._registrations.of_consumer(own):
            try:
                self._check_mounted(node)
                partitions[str(registration.queue)] = await self._partition_statuses(node, registration)
            except UnreadableConsumerError as trouble:
                partitions[str(registration.queue)] = trouble.error.shown(self._now_ms(), self._host)
            except PenstockError as trouble:
                partitions[str(registration.queue)] = StatusError(GENERIC_CODE, str(trouble), {}).shown(
                    self._now_ms(), self._host
                )
        return partitions

    # What is done in a pass.

    async def _tend_queues(self) -> list[Node]:
        """Trim and export the queues with such attributes. Returns those with exports."""
        exporting: list[Node] = []
        alerts: dict[UUID, dict[str, str]] = {}
        for node, topic in self._namespace.queues_with_attributes():
            trimming = self._trimmer.asked_by(node)
            if EXPORTS in node.attributes:
                exporting.append(node)
                self._exports.begin_due(node)
            if not trimming.is_asked_for:
                continue
            partition_alerts = alerts[topic.id] = {}
            for number in range(topic.partitions):
                try:
                    partition = self._partition_of(topic, number)
                except PenstockError:
                    continue
                partition_alerts |= await self._trimmer.trim(node, topic, partition, trimming)
        self._alerts = alerts
        return exporting

    # What is known.

    async def _note_reads(self, now_s: float, registration: Registration) -> None:
        consumer, queue = registration.consumer, registration.queue
        if consumer.cluster != self.cluster:
            return
        node = self._namespace.consumer(consumer.path)
        if node is None:
            return
        topic_id = self.queue_id(queue)
        for partition, position in self._consumers.positions(consumer_name(node)).items():
            if partition.topic_id == topic_id:
                key = (consumer, queue, partition.partition)
                watch = self._reads.setdefault(key, RowRates(Rate(), Rate()))
                amount = await self._read_amount(key, position.offset)
                if amount is not None:
                    watch.rows.update(now_s, amount.rows)
                    if amount.weight is not None:
                        watch.weight.update(now_s, amount.weight)

    async def _read_amount(self, key: tuple[Ref, Ref, int], offset: int) -> _ReadAmount | None:
        """How much a consumer has read up to an offset; looked up when it has advanced. None if it is unavailable."""
        known = self._read_amounts.get(key)
        if known is None or known.offset != offset:
            try:
                weight = (await self._read_progress(key[1], key[2], Position(offset))).weight
                rows = await self._rows_between(key[1], key[2], known.offset, offset) if known is not None else 0
            except PenstockError as error:
                log.debug("what %s has read of %s is not known: %s", key[0], key[1], error)
                return None
            known = self._read_amounts[key] = _ReadAmount(offset, weight, rows if known is None else known.rows + rows)
        return known

    async def _rows_between(self, queue: Ref, number: int, begin: int, end: int) -> int:
        """Rows between two offsets; of another cluster's queue, and where they are trimmed, all offsets are taken for rows."""
        if queue.cluster != self.cluster or end <= begin:
            return max(end - begin, 0)
        partition = self._partition_of(self._namespace.topic(self._namespace.node(queue.path)), number)
        trimmed = min(max(partition.start_offset - begin, 0), end - begin)
        return trimmed + await count_messages(partition, begin + trimmed, end)

    async def _read_progress(self, queue: Ref, number: int, position: Position) -> ReadProgress:
        if queue.cluster != self.cluster:
            return ReadProgress(
                position.offset, position.commit_time_ms, *await self.remotes.row_at(queue, number, position.offset)
            )
        topic = self._namespace.topic(self._namespace.node(queue.path))
        return await _read_progress(self._partition_of(topic, number), position)

    async def row_place(self, queue: Ref, number: int, offset: int) -> RowPlace:
        """The place of an offset in a queue of this cluster."""
        progress = await self._read_progress(queue, number, Position(offset))
        return RowPlace(progress.next_row_commit_ms, progress.weight, progress.unread)

    def queue_id(self, queue: Ref) -> UUID | None:
        """What a queue is called in the table of positions; None if it is of this cluster and not there."""
        if queue.cluster != self.cluster:
            return remote_queue_id(queue)
        node = self._namespace.find(queue.path)
        return None if node is None else node.topic_id

    def _read_rates(self, key: tuple[Ref, Ref, int]) -> tuple[dict[str, float], dict[str, float]]:
        return (self._reads.get(key) or RowRates(Rate(), Rate())).shown()

    async def _state(self, partition: Partition) -> PartitionState:
        weight = await self._weights.load(partition) if partition.end_offset else None
        trimmed = None
        if weight is not None:
            trimmed = await weight_before(partition, partition.start_offset)
        start, end = partition.start_offset, partition.end_offset
        rows = await count_messages(partition, start, partition.stable_offset)
        return PartitionState(start, end, partition.max_timestamp, weight, trimmed, rows)

    async def _partition_count(self, queue: Ref) -> int:
        if queue.cluster != self.cluster:
            return len(await self.remotes.queue_partitions(queue))
        return self._namespace.topic(self._namespace.node(queue.path)).partitions

    def _check_mounted(self, node: Node) -> None:
        if node.mount_state is MountState.UNMOUNTED:
            raise UnreadableConsumerError(cannot_read(tablet_id(node.id, 0), node.id, node.mount_state.value))

    async def _partition_statuses(self, node: Node, registration: Registration) -> list[Status]:
        own, queue = registration.consumer, registration.queue
        positions = self._consumers.positions(consumer_name(node))
        topic_id = self.queue_id(queue)
        states = await self._states(queue)
        shown: list[Status] = []
        for number, state in enumerate(states):
            if topic_id is None or not registration.covers(number):
                continue
            position = positions.get(TopicPartition(topic_id, number), Position(0))
            progress = await self._read_progress(queue, number, position)
            rates = self._read_rates((own, queue, number))
            shown.append(reading_shown(progress, state, rates, now_ms=self._now_ms()))
        return shown

    async def _states(self, queue: Ref) -> list[PartitionState]:
        if queue.cluster != self.cluster:
            return [_remote_state(state) for state in await self.remotes.queue_partitions(queue)]
        topic = self._namespace.topic(self._namespace.node(queue.path))
        partitions = [self._partition_of(topic, number) for number in range(topic.partitions)]
        return [await self._state(partition) for partition in partitions]

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)


class UnreadableConsumerError(PenstockError):
    """The status of a consumer is not available."""

    code = "consumer_in_error"

    def __init__(self, error: StatusError) -> None:
        super().__init__(error.message)
        self.error = error


def _remote_state(shown: dict[str, Any]) -> PartitionState:
    if "error" in shown:
        raise UnavailableError(str(shown["error"].get("message", "the queue is in error")))
    lower, upper = int(shown["lower_row_index"]), int(shown["upper_row_index"])
    weights = (shown.get("cumulative_data_weight"), shown.get("trimmed_data_weight"))
    return PartitionState(lower, upper, 0, *weights, int(shown["available_row_count"]))


async def _read_progress(partition: Partition, position: Position) -> ReadProgress:
    offset = position.offset
    weight = await weight_before(partition, offset)
    unread = await unread_rows(partition, offset)
    commit_ms = None
    if unread > 0 and offset >= partition.start_offset:
        first = await offset_of_last(partition, unread, partition.stable_offset)  # a marker may be at the offset itself
        batch = await batch_at(partition, first)
        commit_ms = None if batch is None else int.from_bytes(batch[MAX_MS], "big", signed=True)
    return ReadProgress(offset, position.commit_time_ms, commit_ms, weight, unread)


async def unread_rows(partition: Partition, offset: int) -> int:
    """How many rows there are from an offset on, of those that are committed; below zero if it is beyond the end."""
    if offset > partition.end_offset:
        return partition.end_offset - offset
    return await count_messages(partition, offset, partition.stable_offset)
