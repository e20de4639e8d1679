"""The Queue Agent of a node: about once a second it looks at every queue and consumer, and trims what may go.

It reads counters that are in memory, so a pass is short and never in the way of a write; what other clusters have to be asked is
asked at once for all of them, with a deadline, and whoever does not answer counts as in error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.broker.consumers import Consumers, Position, Queue
from penstock.broker.namespace import MountState, Namespace, Node, consumer_name
from penstock.broker.namespace.namespace import remote_queue_id
from penstock.broker.queue_agent.exports import StaticExports
from penstock.broker.queue_agent.rates import Rate, summed
from penstock.broker.queue_agent.statuses import (
    GENERIC_CODE,
    PartitionState,
    Reading,
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
from penstock.broker.queue_agent.trimming import Holder, TrimConfig, decide
from penstock.broker.registrations import Ref, Registration, Registrations
from penstock.broker.topic import Topic
from penstock.broker.weights import Weights, batch_at, weight_before
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError, UnavailableError
from penstock.queue import Partition

log = logging.getLogger(__name__)

AGENT_INTERVAL_S = 1.0
REMOTE_TIMEOUT_S = 3.0
EXPORTS = "static_export_config"
AT_ONCE = 500  # partitions looked at before others are served

T = TypeVar("T")
Offsets = dict[int, int]
PartitionOf = Callable[[Topic, int], Partition]


class RemoteClusters(Protocol):
    """What the agent asks of other clusters."""

    async def consumer_offsets(self, consumer: Ref, queue: Ref) -> Offsets:
        """Where a consumer of another cluster stands in a queue, by partition. PenstockError if it cannot be known."""
        ...

    async def queue_partitions(self, queue: Ref) -> list[dict[str, Any]]:
        """The partitions of a queue of another cluster, as `@queue_partitions` gives them."""
        ...

    async def row_at(self, queue: Ref, partition: int, offset: int) -> tuple[int | None, int | None]:
        """When the row at an offset of such a queue was committed, in milliseconds, and the weight of all rows before it; None
        where it is not known."""
        ...


class _Watch(NamedTuple):
    """Rates of one partition: of its rows, and of their weight."""

    rows: Rate
    weight: Rate

    def shown(self) -> tuple[dict[str, float], dict[str, float]]:
        return self.rows.shown(), self.weight.shown()


class QueueAgent:
    """Make it, then `run` it as a task. `remote` is set by whoever can reach other clusters."""

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
        clock: Clock,
    ) -> None:
        self.cluster = cluster
        self.remote: RemoteClusters | None = None
        self._namespace = namespace
        self._registrations = registrations
        self._consumers = consumers
        self._partition_of = partition_of
        self._weights = weights
        self._exports = exports
        self._is_leader = is_leader
        self._clock = clock
        self._host = socket.gethostname()
        self._writes: dict[tuple[UUID, int], _Watch] = {}
        self._reads: dict[tuple[Ref, Ref, int], _Watch] = {}
        self._read_weights: dict[tuple[Ref, Ref, int], tuple[int, int | None]] = {}
        self._alerts: dict[UUID, dict[str, str]] = {}
        self._remote_offsets: dict[tuple[Ref, Ref], Offsets | PenstockError] = {}

    async def run(self) -> None:
        """Pass after pass, until cancelled."""
        while True:
            await asyncio.sleep(AGENT_INTERVAL_S)
            if not self._is_leader():
                continue
            try:
                await self.once()
            except PenstockError as error:
                log.warning("the pass of the queue agent was cut short: %s", error)

    async def once(self) -> None:
        """One pass over all queues."""
        self._weights.sweep()
        await self._ask_remote()
        now_s = self._clock.monotonic()
        looked_at = 0
        seen: set[tuple[UUID, int]] = set()
        exporting: list[Node] = []
        for node, topic in self._namespace.queues():
            vital = [one for one in self._registrations.of_queue(self.ref(node.path)) if one.vital]
            config = trim_config_of(node)
            alerts: dict[str, str] = {}
            if EXPORTS in node.attributes:
                exporting.append(node)
                self._exports.begin_due(node)
            for number in range(topic.partitions):
                try:
                    partition = self._partition_of(topic, number)
                except PenstockError:
                    continue
                seen.add((topic.id, number))
                self._note_writes(now_s, topic, partition)
                if config.trim.enable or config.ttl_ms is not None:
                    await self._trim(node, topic, partition, config, vital=vital, alerts=alerts)
                looked_at += 1
                if looked_at % AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._alerts[topic.id] = alerts
        for gone in self._writes.keys() - seen:
            del self._writes[gone]
        for registration in self._registrations:
            await self._note_reads(now_s, registration)
        self._exports.forget_others(exporting)
        await self._exports.sweep()

    # What is asked of it.

    def ref(self, path: str) -> Ref:
        """An object of this cluster."""
        return Ref(self.cluster, path)

    def alerts(self) -> dict[UUID, dict[str, str]]:
        """What an operator should look at, by topic and by kind, as of the last pass."""
        return {topic_id: alerts for topic_id, alerts in self._alerts.items() if alerts}

    def needed_from(self, topic: Topic, number: int) -> int | None:
        """The first row that a vital consumer or an export still needs; None if there is neither. One that cannot be asked needs
        everything."""
        path = self._namespace.path_of(topic)
        vital = [one for one in self._registrations.of_queue(self.ref(path)) if one.vital and one.covers(number)]
        holders = [self._vital_consumer(one, topic.id, number) for one in vital]
        node = self._namespace.find(path)
        if node is not None and EXPORTS in node.attributes:
            holders += self._exports.holders(node, number)
        return min((0 if holder.offset is None else holder.offset for holder in holders), default=None)

    def queue_status(self, node: Node, *, has_timestamp: bool, has_weight: bool) -> Status:
        """`@queue_status`."""
        topic = self._namespace.topic(node)
        shown = [self._rates(self._writes, (topic.id, number)) for number in range(topic.partitions)]
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
            rates = self._rates(self._writes, (topic.id, number))
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
            rates = [self._rates(self._reads, (own, registration.queue, number)) for number in range(count)]
            queues[str(registration.queue)] = {
                "read_row_count_rate": summed([rows for rows, _ in rates]),
                "read_data_weight_rate": summed([weight for _, weight in rates]),
                "partition_count": count,
            }
        return {"queues": queues, "registrations": registrations_shown(registrations)}

    async def consumer_partitions(self, node: Node) -> Status:
        """`@queue_consumer_partitions`."""
        own = self.ref(node.path)
        found: Status = {}
        for registration in self._registrations.of_consumer(own):
            try:
                self._check_mounted(node)
                found[str(registration.queue)] = await self._readings(node, registration)
            except UnreadableConsumerError as trouble:
                found[str(registration.queue)] = trouble.error.shown(self._now_ms(), self._host)
            except PenstockError as trouble:
                found[str(registration.queue)] = StatusError(GENERIC_CODE, str(trouble), {}).shown(self._now_ms(), self._host)
        return found

    # Trimming.

    async def _trim(
        self,
        node: Node,
        topic: Topic,
        partition: Partition,
        config: AgentConfig,
        *,
        vital: list[Registration],
        alerts: dict[str, str],
    ) -> None:
        if node.mount_state is not MountState.MOUNTED:
            return
        number = partition.number
        try:
            offset = await self._first_since(partition, config.ttl_ms) if config.ttl_ms is not None else None
            young_from = None
            if config.trim.enable and config.trim.retained_lifetime_ms is not None:
                young_from = await self._first_since(partition, config.trim.retained_lifetime_ms)
            known = [self._vital_consumer(one, topic.id, number) for one in vital if one.covers(number)]
            start, end = partition.start_offset, partition.stable_offset
            exports = self._exports.holders(node, number) if EXPORTS in node.attributes else []
            decision = decide(config.trim, start=start, end=end, vital=known, exports=exports, young_from=young_from)
            if decision.alert is not None:
                alerts["queue_agent_queue_controller_trim_failed"] = decision.alert
            offsets = [one for one in (offset, decision.offset) if one is not None]
            if offsets and max(offsets) > start:
                await partition.trim(min(max(offsets), end))
        except PenstockError as error:
            log.warning("trimming of %s, partition %d, will be tried again: %s", node.path, number, error)
            alerts["queue_agent_queue_controller_trim_failed"] = str(error)

    async def _first_since(self, partition: Partition, age_ms: int) -> int:
        """The first row that is not older than this; the end if all are."""
        found = await partition.find_time(self._now_ms() - age_ms)
        return partition.stable_offset if found is None else found[0]

    def _vital_consumer(self, registration: Registration, topic_id: UUID, number: int) -> Holder:
        consumer = registration.consumer
        if consumer.cluster != self.cluster:
            known = self._remote_offsets.get((consumer, registration.queue))
            if isinstance(known, dict):
                return Holder(str(consumer), known.get(number, 0))
            return Holder(str(consumer), None, "it was not asked yet" if known is None else str(known))
        node = self._namespace.consumer(consumer.path)
        if node is None:
            return Holder(str(consumer), None, "there is no such consumer")
        if node.mount_state is MountState.UNMOUNTED:
            return Holder(str(consumer), None, "its table is not mounted")
        position = self._consumers.position(consumer_name(node), Queue(topic_id, number))
        return Holder(str(consumer), 0 if position is None else position.offset)

    async def _ask_remote(self) -> None:
        """Ask for the offsets of all vital consumers on other clusters."""
        asked = [
            (one.consumer, one.queue)
            for one in self._registrations
            if one.vital and one.queue.cluster == self.cluster and one.consumer.cluster != self.cluster
        ]
        answers = await asyncio.gather(*(self._ask(*pair) for pair in asked))
        self._remote_offsets = dict(zip(asked, answers, strict=True))

    async def _ask(self, consumer: Ref, queue: Ref) -> Offsets | PenstockError:
        try:
            return await _in_time(self._remote(consumer).consumer_offsets(consumer, queue), consumer.cluster)
        except PenstockError as error:
            return error

    # What is known.

    def _note_writes(self, now_s: float, topic: Topic, partition: Partition) -> None:
        watch = self._writes.get((topic.id, partition.number))
        if watch is None:
            watch = self._writes[topic.id, partition.number] = _Watch(Rate(), Rate())
        watch.rows.update(now_s, partition.end_offset)
        weight = self._weights.known(partition)
        if weight is not None:
            watch.weight.update(now_s, weight)

    async def _note_reads(self, now_s: float, registration: Registration) -> None:
        consumer, queue = registration.consumer, registration.queue
        if consumer.cluster != self.cluster:
            return
        node = self._namespace.consumer(consumer.path)
        if node is None:
            return
        topic_id = self.queue_id(queue)
        for one, position in self._consumers.positions(consumer_name(node)).items():
            if one.topic_id == topic_id:
                key = (consumer, queue, one.partition)
                watch = self._reads.setdefault(key, _Watch(Rate(), Rate()))
                watch.rows.update(now_s, position.offset)
                weight = await self._read_weight(key, position.offset)
                if weight is not None:
                    watch.weight.update(now_s, weight)

    async def _read_weight(self, key: tuple[Ref, Ref, int], offset: int) -> int | None:
        """The weight of all rows before an offset, looked up when a consumer has moved."""
        known = self._read_weights.get(key)
        if known is None or known[0] != offset:
            try:
                reading = await self._reading(key[1], key[2], Position(offset))
            except PenstockError as error:
                log.debug("the weight of what %s has read of %s is not known: %s", key[0], key[1], error)
                return None
            known = self._read_weights[key] = (offset, reading.weight)
        return known[1]

    async def _reading(self, queue: Ref, number: int, position: Position) -> Reading:
        if queue.cluster != self.cluster:
            asked = self._remote(queue).row_at(queue, number, position.offset)
            commit_ms, weight = await _in_time(asked, queue.cluster)
            return Reading(position.offset, position.commit_time_ms, commit_ms, weight)
        topic = self._namespace.topic(self._namespace.node(queue.path))
        return await _reading(self._partition_of(topic, number), position)

    def queue_id(self, queue: Ref) -> UUID | None:
        """What a queue is called in the table of positions; None if it is of this cluster and not there."""
        if queue.cluster != self.cluster:
            return remote_queue_id(queue)
        node = self._namespace.find(queue.path)
        return None if node is None else node.topic_id

    def _rates(self, watches: dict[Any, _Watch], key: object) -> tuple[dict[str, float], dict[str, float]]:
        watch = watches.get(key) or _Watch(Rate(), Rate())
        return watch.shown()

    async def _state(self, partition: Partition) -> PartitionState:
        weight = await self._weights.load(partition) if partition.end_offset else None
        trimmed = None
        if weight is not None:
            trimmed = await weight_before(partition, partition.start_offset)
        return PartitionState(partition.start_offset, partition.end_offset, partition.max_timestamp, weight, trimmed)

    async def _partition_count(self, queue: Ref) -> int:
        if queue.cluster != self.cluster:
            return len(await self._remote_partitions(queue))
        return self._namespace.topic(self._namespace.node(queue.path)).partitions

    async def _remote_partitions(self, queue: Ref) -> list[dict[str, Any]]:
        return await _in_time(self._remote(queue).queue_partitions(queue), queue.cluster)

    def _remote(self, ref: Ref) -> RemoteClusters:
        if self.remote is None:
            raise UnavailableError(f"cluster {ref.cluster!r} cannot be reached: no --peer-cluster names it")
        return self.remote

    def _check_mounted(self, node: Node) -> None:
        if node.mount_state is MountState.UNMOUNTED:
            raise UnreadableConsumerError(cannot_read(tablet_id(node.id, 0), node.id, node.mount_state.value))

    async def _readings(self, node: Node, registration: Registration) -> list[Status]:
        own, queue = registration.consumer, registration.queue
        positions = self._consumers.positions(consumer_name(node))
        topic_id = self.queue_id(queue)
        states = await self._states(queue)
        shown: list[Status] = []
        for number, state in enumerate(states):
            if topic_id is None or not registration.covers(number):
                continue
            position = positions.get(Queue(topic_id, number), Position(0))
            reading = await self._reading(queue, number, position)
            rates = self._rates(self._reads, (own, queue, number))
            shown.append(reading_shown(reading, state, rates, now_ms=self._now_ms()))
        return shown

    async def _states(self, queue: Ref) -> list[PartitionState]:
        if queue.cluster != self.cluster:
            return [_remote_state(one) for one in await self._remote_partitions(queue)]
        topic = self._namespace.topic(self._namespace.node(queue.path))
        partitions = [self._partition_of(topic, number) for number in range(topic.partitions)]
        return [await self._state(partition) for partition in partitions]

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)


class UnreadableConsumerError(PenstockError):
    """A consumer cannot be told of."""

    code = "consumer_in_error"

    def __init__(self, error: StatusError) -> None:
        super().__init__(error.message)
        self.error = error


class AgentConfig(NamedTuple):
    """What the attributes of a queue ask of the agent."""

    trim: TrimConfig
    ttl_ms: int | None = None


def trim_config_of(node: Node) -> AgentConfig:
    """What a queue asks for; attributes are JSON, and were checked when they were set."""
    if not node.attributes:
        return AgentConfig(TrimConfig())
    raw = json.loads(node.attributes.get("auto_trim_config", b"null")) or {}
    trim = TrimConfig(bool(raw.get("enable")), raw.get("retained_rows"), raw.get("retained_lifetime_duration"))
    keeps_none = json.loads(node.attributes.get("min_data_versions", b"1")) == 0
    ttl_ms = json.loads(node.attributes.get("max_data_ttl", b"null")) if keeps_none else None
    return AgentConfig(trim, ttl_ms)


async def _in_time(asked: Awaitable[T], cluster: str) -> T:
    """What another cluster answers. UnavailableError if it takes too long."""
    try:
        async with asyncio.timeout(REMOTE_TIMEOUT_S):
            return await asked
    except TimeoutError as error:
        raise UnavailableError(f"cluster {cluster!r} did not answer in {REMOTE_TIMEOUT_S} s") from error


def _remote_state(shown: dict[str, Any]) -> PartitionState:
    if "error" in shown:
        raise UnavailableError(str(shown["error"].get("message", "the queue is in error")))
    lower, upper = int(shown["lower_row_index"]), int(shown["upper_row_index"])
    return PartitionState(lower, upper, 0, shown.get("cumulative_data_weight"), shown.get("trimmed_data_weight"))


async def _reading(partition: Partition, position: Position) -> Reading:
    weight = await weight_before(partition, position.offset)
    commit_ms = None
    if partition.start_offset <= position.offset < partition.stable_offset:
        batch = await batch_at(partition, position.offset)
        commit_ms = None if batch is None else int.from_bytes(batch[35:43], "big", signed=True)
    return Reading(position.offset, position.commit_time_ms, commit_ms, weight)
