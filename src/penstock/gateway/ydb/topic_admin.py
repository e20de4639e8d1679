"""Calls that create, alter and drop topics, and that commit offsets outside of a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from penstock.broker import Broker, Operation, Position, Topic, TopicConfig, TopicPartition
from penstock.gateway.ydb.call import Call
from penstock.gateway.ydb.protos import Status, topic
from penstock.gateway.ydb.statuses import StatusError, bad_request, unsupported
from penstock.gateway.ydb.topic_settings import (
    TopicSettings,
    alter_attributes,
    alter_consumers,
    check_codecs,
    check_speed,
    parse_consumer,
    settings_of,
    with_consumers,
)

MESSAGE_BYTES_MAX: Final = "67108864"  # YDB's writers do not know of a limit in the topic; this is what a request may have
MIB: Final = 1 << 20
SPEED: Final = "partition_write_speed_bytes_per_second"
BURST: Final = "partition_write_burst_bytes"
_NO_SCALING = (topic.AUTO_PARTITIONING_STRATEGY_UNSPECIFIED, topic.AUTO_PARTITIONING_STRATEGY_DISABLED)


async def create_topic(broker: Broker, call: Call, request: Any) -> Any:
    """CreateTopic."""
    name = call.topic_name(request.path)
    call.caller.check_create(name)
    _refuse_unknown(request, "")
    partitioning = request.partitioning_settings
    if partitioning.auto_partitioning_settings.strategy not in _NO_SCALING:
        raise unsupported("automatic partitioning is not supported; create the topic without auto partitioning")
    partitions = _partition_count(partitioning.min_active_partitions)
    _check_limits(partitioning, "", partitions)
    consumers = {}
    for requested in request.consumers:
        if requested.name in consumers:
            raise bad_request(f"consumer {requested.name!r} is named twice")
        consumers[requested.name] = parse_consumer(requested)
    settings = TopicSettings(
        check_codecs(request.supported_codecs.codecs),
        dict(request.attributes),
        consumers,
        check_speed(SPEED, request.partition_write_speed_bytes_per_second),
        check_speed(BURST, request.partition_write_burst_bytes),
    )
    sets = {"max.message.bytes": MESSAGE_BYTES_MAX}
    if request.HasField("retention_period"):
        sets["retention.ms"] = _retention_ms(request.retention_period)
    if request.retention_storage_mb:
        sets["retention.bytes"] = _retention_bytes(request.retention_storage_mb)
    important = {requested.name for requested in request.consumers if requested.important}
    config = with_consumers(TopicConfig(sets), settings, important)
    await broker.create_topic(name, partitions, config)
    return topic.CreateTopicResult()


async def alter_topic(broker: Broker, call: Call, request: Any) -> Any:
    """AlterTopic."""
    name = call.topic_name(request.path)
    call.caller.check_topic(Operation.ALTER, name)
    _refuse_unknown(request, "set_")
    stored = broker.catalog.topic(name)
    partitioning = request.alter_partitioning_settings
    scaling = partitioning.alter_auto_partitioning_settings
    if scaling.HasField("set_strategy") and scaling.set_strategy not in _NO_SCALING:
        raise unsupported("automatic partitioning is not supported")
    config = _alter_config(stored, request)
    count = partitioning.set_min_active_partitions
    _check_limits(partitioning, "set_", max(count, stored.partitions))
    if partitioning.HasField("set_min_active_partitions") and count > stored.partitions:
        await broker.add_partitions(name, count)
    elif partitioning.HasField("set_min_active_partitions") and count < stored.partitions:
        raise bad_request(f"topic {name!r} has {stored.partitions} partitions; partitions can be added, not removed")
    if config.own != stored.config.own:
        await broker.configure_topic(name, config)
    for consumer in request.drop_consumers:
        queues = [TopicPartition(stored.id, number) for number in range(stored.partitions)]
        await broker.consumers.forget(consumer, queues)
    return topic.AlterTopicResult()


async def drop_topic(broker: Broker, call: Call, request: Any) -> Any:
    """DropTopic."""
    name = call.topic_name(request.path)
    call.caller.check_topic(Operation.DELETE, name)
    await broker.delete_topic(name)
    return topic.DropTopicResult()


async def commit_offset(broker: Broker, call: Call, request: Any) -> Any:
    """CommitOffset."""
    name = call.topic_name(request.path)
    call.caller.check_topic(Operation.READ, name)
    call.caller.check_consumer(Operation.READ, request.consumer)
    stored = broker.catalog.topic(name)
    _check_declared(stored, request.consumer)
    partition = broker.partition(stored, request.partition_id)
    if not 0 <= request.offset <= partition.end_offset:
        raise bad_request(
            f"offset {request.offset} is not within partition {partition.number}: it ends at {partition.end_offset}"
        )
    if request.read_session_id:
        owner = call.readers.owner(request.consumer, TopicPartition(stored.id, request.partition_id))
        if owner is None or owner.id != request.read_session_id:
            raise StatusError(
                Status.BAD_SESSION, f"read session {request.read_session_id!r} does not read the partition any more"
            )
    queue = TopicPartition(stored.id, request.partition_id)
    await broker.consumers.commit(request.consumer, [(queue, Position(request.offset))])
    call.readers.committed(request.consumer, queue, request.offset)
    return topic.CommitOffsetResult()


async def update_offsets_in_transaction(broker: Broker, call: Call, request: Any) -> Any:
    """UpdateOffsetsInTransaction: offsets that are committed with a transaction."""
    transaction = call.transactions.find(request.tx.session, request.tx.id)
    call.caller.check_consumer(Operation.READ, request.consumer)
    for requested in request.topics:
        name = call.topic_name(requested.path)
        call.caller.check_topic(Operation.READ, name)
        stored = broker.catalog.topic(name)
        _check_declared(stored, request.consumer)
        for moved in requested.partitions:
            end_offset = broker.partition(stored, moved.partition_id).end_offset
            ranges = [(offsets.start, offsets.end) for offsets in moved.partition_offsets]
            if any(not 0 <= start <= end <= end_offset for start, end in ranges):
                raise bad_request(f"a range is not within partition {moved.partition_id}, which ends at {end_offset}")
            call.transactions.move(transaction, request.consumer, TopicPartition(stored.id, moved.partition_id), ranges)
    return topic.UpdateOffsetsInTransactionResult()


def _check_declared(stored: Topic, consumer: str) -> None:
    if consumer not in settings_of(stored).consumers:
        raise StatusError(Status.SCHEME_ERROR, f"topic {stored.name!r} has no consumer {consumer!r}")


def _alter_config(stored: Topic, request: Any) -> TopicConfig:
    consumers, important = alter_consumers(stored, request)
    settings = replace(settings_of(stored), consumers=consumers)
    settings = replace(settings, attributes=alter_attributes(settings.attributes, request.alter_attributes))
    if request.HasField("set_supported_codecs"):
        settings = replace(settings, codecs=check_codecs(request.set_supported_codecs.codecs))
    if request.HasField("set_" + SPEED):
        settings = replace(settings, write_bytes_per_s=check_speed(SPEED, request.set_partition_write_speed_bytes_per_second))
    if request.HasField("set_" + BURST):
        settings = replace(settings, write_burst_bytes=check_speed(BURST, request.set_partition_write_burst_bytes))
    sets: dict[str, str] = {}
    if request.HasField("set_retention_period"):
        sets["retention.ms"] = _retention_ms(request.set_retention_period)
    if request.HasField("set_retention_storage_mb"):
        sets["retention.bytes"] = _retention_bytes(request.set_retention_storage_mb)
    if settings == settings_of(stored) and important == set(stored.config.important_consumers):
        return stored.config.changed(sets)
    return with_consumers(stored.config.changed(sets), settings, important)


def _refuse_unknown(request: Any, prefix: str) -> None:
    """Refuse settings that would have no effect."""
    if getattr(request, prefix + "content_based_deduplication"):
        raise unsupported("messages are not compared by their content; write them with a producer id")
    if getattr(request, prefix + "metering_mode"):
        raise unsupported("metering_mode is for serverless databases, and this is none; leave it out")
    if getattr(request, prefix + "metrics_level"):
        raise unsupported("metrics_level cannot be chosen; leave it out")


def _check_limits(partitioning: Any, prefix: str, partitions: int) -> None:
    """Without automatic partitioning there are never more partitions than are asked for, so a limit need only agree with that."""
    for name in ("max_active_partitions", "partition_count_limit"):
        limit = getattr(partitioning, prefix + name)
        if limit < 0 or 0 < limit < partitions:
            raise bad_request(f"{name} is {limit}, and the topic is to have {partitions} partitions")


def _partition_count(requested: int) -> int:
    if requested < 0:
        raise bad_request(f"a topic cannot have {requested} partitions")
    return requested or 1


def _retention_ms(period: Any) -> str:
    retention_ms: int = period.ToMilliseconds()
    if retention_ms < 0:
        raise bad_request("retention_period is negative")
    return str(retention_ms)


def _retention_bytes(mebibytes: int) -> str:
    if mebibytes < 0:
        raise bad_request("retention_storage_mb is negative")
    return str(mebibytes * MIB) if mebibytes else "-1"
