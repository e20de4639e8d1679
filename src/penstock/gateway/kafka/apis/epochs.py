"""OffsetForLeaderEpoch: where a leader epoch ended. An epoch is a generation of the partition's tablet."""

from __future__ import annotations

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.topic_lookup import epoch_error, find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """For each partition, where the epoch asked for ended."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        results = [_find(call.node, topic.topic, requested) for requested in topic.partitions]
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
    return response


def _find(node: Node, name: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    response = EpochEndOffset(partition=requested.partition)
    try:
        partition = node.broker.partition(find_topic(node, name), requested.partition)
    except PenstockError as error:
        response.error_code = topic_code(error)
        return response
    response.error_code = epoch_error(partition, requested.current_leader_epoch)
    if not response.error_code:
        response.leader_epoch, response.end_offset = partition.epoch_end(requested.leader_epoch)
    return response
