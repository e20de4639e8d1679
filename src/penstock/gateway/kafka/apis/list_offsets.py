"""ListOffsets: offsets by time, and the special ones."""

from __future__ import annotations

import asyncio

from penstock.core.errors import CorruptionError, PenstockError
from penstock.core.record_format import LAST_DELTA
from penstock.gateway.kafka.apis.topic_lookup import epoch_error, find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.record_times import RecordTime, first_record_since
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.queue import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
# All data is local: nothing was tiered, and nothing waits to be.
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1


async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Returns, for each partition, the first offset at or after a time, or a special one."""
    response = ListOffsetsResponse()
    for topic in request.topics:
        answered = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answered)
        seen: set[int] = set()
        for wanted in topic.partitions:
            if wanted.partition_index in seen:
                result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=errors.INVALID_REQUEST)
            else:
                result = await _find(call.node, topic.name, wanted, is_committed=request.isolation_level == READ_COMMITTED)
            seen.add(wanted.partition_index)
            answered.partitions.append(result)
    return response


async def _find(node: Node, name: str, wanted: ListOffsetsPartition, *, is_committed: bool) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        partition = node.broker.partition(find_topic(node, name), wanted.partition_index)
        response.error_code = epoch_error(partition, wanted.current_leader_epoch)
        if response.error_code:
            return response
        end = partition.stable_offset if is_committed else partition.end_offset
        record = await _locate(partition, wanted.timestamp, end)
    except PenstockError as error:
        response.error_code = topic_code(error)
        return response
    if record is not None:
        response.offset, response.timestamp, response.leader_epoch = record
    return response


async def _locate(partition: Partition, timestamp: int, end: int) -> RecordTime | None:
    if timestamp == LATEST:
        return RecordTime(end, -1, partition.epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return RecordTime(partition.start_offset, -1, partition.epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    if timestamp == MAX_TIMESTAMP:
        timestamp = partition.max_timestamp
    record = await _since(partition, timestamp) if timestamp >= 0 else None
    return None if record is None or record.offset >= end else record


async def _since(partition: Partition, timestamp: int) -> RecordTime | None:
    """The first record with this timestamp or a later one."""
    offset = partition.start_offset
    while (batch := await partition.find_time(timestamp, offset)) is not None:
        base_offset, data = batch
        try:
            record = await asyncio.to_thread(first_record_since, data, timestamp, offset)
        except CorruptionError:
            # A batch that cannot be decompressed is still found as a whole.
            return RecordTime(max(base_offset, offset), timestamp, partition.epoch)
        if record is not None:
            return record
        # Only records before the start of the partition are that late: look behind this batch.
        offset = base_offset + int.from_bytes(data[LAST_DELTA], "big") + 1
    return None
