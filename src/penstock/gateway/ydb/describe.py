"""Topics, partitions and consumers as clients see them, with how far behind each consumer is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.broker import Broker, Operation, PartitionUnavailableError, Topic, TopicPartition
from penstock.core.record_format import BASE_MS
from penstock.gateway.ydb.call import Call
from penstock.gateway.ydb.protos import Status, scheme, timestamp, topic
from penstock.gateway.ydb.statuses import StatusError
from penstock.gateway.ydb.topic_settings import settings_of
from penstock.queue import Partition, joined

MIB: Final = 1 << 20
_Consumers = topic.DescribeConsumerResult


async def describe_topic(broker: Broker, call: Call, request: Any) -> Any:
    """DescribeTopic."""
    stored = _topic(broker, call, request)
    settings, config = settings_of(stored), stored.config
    result = topic.DescribeTopicResult(attributes=settings.attributes)
    result.self.CopyFrom(_entry(stored))
    result.partitioning_settings.min_active_partitions = stored.partitions
    result.supported_codecs.codecs.extend(settings.codecs)
    result.retention_period.FromMilliseconds(max(int(config["retention.ms"]), 0))
    result.retention_storage_mb = max(int(config["retention.bytes"]), 0) // MIB
    result.partition_write_speed_bytes_per_second = settings.write_bytes_per_s
    result.partition_write_burst_bytes = settings.write_burst_bytes
    stats = bool(request.include_stats)
    for number in range(stored.partitions):
        info = result.partitions.add(partition_id=number, active=True)
        _fill_partition(broker, call, stored, info, stats=stats, location=request.include_location)
        if stats:
            result.topic_stats.store_size_bytes += info.partition_stats.store_size_bytes
    for consumer in settings.consumers.values():
        shown = result.consumers.add()
        shown.CopyFrom(consumer.to_proto(important=consumer.name in config.important_consumers))
        if stats:
            await _fill_consumer(broker, stored, shown)
    return result


async def describe_partition(broker: Broker, call: Call, request: Any) -> Any:
    """DescribePartition."""
    stored = _topic(broker, call, request)
    broker.partition(stored, request.partition_id)
    result = topic.DescribePartitionResult()
    result.partition.partition_id = request.partition_id
    result.partition.active = True
    _fill_partition(broker, call, stored, result.partition, stats=request.include_stats, location=request.include_location)
    return result


async def describe_consumer(broker: Broker, call: Call, request: Any) -> Any:
    """DescribeConsumer."""
    stored = _topic(broker, call, request)
    consumer = settings_of(stored).consumers.get(request.consumer)
    if consumer is None:
        raise StatusError(Status.SCHEME_ERROR, f"topic {stored.name!r} has no consumer {request.consumer!r}")
    result = _Consumers()
    result.self.CopyFrom(_entry(stored))
    result.self.name = f"{stored.name}/{consumer.name}"
    result.consumer.CopyFrom(consumer.to_proto(important=consumer.name in stored.config.important_consumers))
    if request.include_stats:
        await _fill_consumer(broker, stored, result.consumer)
    for number in range(stored.partitions):
        info = result.partitions.add(partition_id=number, active=True)
        _fill_partition(broker, call, stored, info, stats=request.include_stats, location=request.include_location)
        if request.include_stats:
            await _fill_progress(broker, call, stored, info, consumer.name)
    return result


def _topic(broker: Broker, call: Call, request: Any) -> Topic:
    name = call.topic_name(request.path)
    call.caller.check_topic(Operation.DESCRIBE, name)
    return broker.catalog.topic(name)


def _entry(stored: Topic) -> Any:
    return scheme.Entry(name=stored.name, owner="root", type=scheme.Entry.TOPIC)


def _fill_partition(broker: Broker, call: Call, stored: Topic, info: Any, *, stats: bool, location: bool) -> None:
    try:
        partition = broker.partition(stored, info.partition_id)
    except PartitionUnavailableError:
        return  # it starts again; there is nothing to say of it
    if location:
        info.partition_location.node_id = call.node_id
        info.partition_location.generation = partition.epoch
    if stats:
        numbers = info.partition_stats
        numbers.partition_offsets.start, numbers.partition_offsets.end = partition.start_offset, partition.end_offset
        numbers.store_size_bytes = partition.size
        numbers.partition_node_id = call.node_id
        if partition.max_timestamp >= 0:
            numbers.last_write_time.CopyFrom(timestamp(partition.max_timestamp))


async def _fill_progress(broker: Broker, call: Call, stored: Topic, info: Any, consumer: str) -> None:
    queue = TopicPartition(stored.id, info.partition_id)
    partition = broker.partition(stored, info.partition_id)
    progress = info.partition_consumer_stats
    position = broker.consumers.position(consumer, queue)
    committed = max(partition.start_offset, 0 if position is None else position.offset)
    progress.committed_offset = progress.last_read_offset = committed
    progress.max_committed_time_lag.FromMilliseconds(await _lag_ms(broker, partition, committed))
    read_to = committed
    owner = call.readers.owner(consumer, queue)
    session = None if owner is None else owner.partition_session(queue)
    if owner is not None and session is not None:
        progress.read_session_id, progress.reader_name = owner.id, owner.name
        progress.connection_node_id = call.node_id
        progress.partition_read_session_create_time.CopyFrom(timestamp(session.began_ms))
        progress.last_read_offset = read_to = session.next_offset
        if session.last_read_ms:
            progress.last_read_time.CopyFrom(timestamp(session.last_read_ms))
    progress.max_read_time_lag.FromMilliseconds(await _lag_ms(broker, partition, read_to))


async def _fill_consumer(broker: Broker, stored: Topic, shown: Any) -> None:
    """How far the consumer is behind in the partition in which it is furthest behind."""
    lags = []
    for number in range(stored.partitions):
        try:
            partition = broker.partition(stored, number)
        except PartitionUnavailableError:
            continue
        position = broker.consumers.position(shown.name, TopicPartition(stored.id, number))
        lags.append(await _lag_ms(broker, partition, 0 if position is None else position.offset))
        await asyncio.sleep(0)
    shown.consumer_stats.max_committed_time_lag.FromMilliseconds(max(lags, default=0))


async def _lag_ms(broker: Broker, partition: Partition, offset: int) -> int:
    """How long ago the message at an offset was written; 0 if there is none yet."""
    if offset >= partition.end_offset:
        return 0
    result = await partition.read(offset, 1)
    if not result.batches:
        return 0
    base_ms = int.from_bytes(joined(result)[BASE_MS], "big", signed=True)
    return max(int(broker.clock.wall() * 1000) - base_ms, 0)
