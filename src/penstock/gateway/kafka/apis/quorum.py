"""DescribeQuorum: the replicas of the cluster metadata, which is a tablet of the leader here, replicated by its storage group.

The tablet's generation is the leader epoch, and its number of changes the end of the log.
"""

from __future__ import annotations

from penstock.gateway.kafka.call import Call
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0


async def describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """This node alone for the metadata log; any other log is an error."""
    node = call.node
    topics = [
        QuorumTopic(topic_name=topic.topic_name, partitions=[_partition(call, topic.topic_name, partition.partition_index)])
        for topic in request.topics
        for partition in topic.partitions
    ]
    nodes = [
        QuorumNode(
            node_id=broker.node_id,
            listeners=[QuorumListener(name=node.security_protocol, host=broker.host, port=broker.port)],
        )
        for broker in node.brokers()
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes)


def _partition(call: Call, topic: str, number: int) -> QuorumPartition:
    node = call.node
    if (topic, number) != (METADATA_TOPIC, METADATA_PARTITION):
        return QuorumPartition(
            partition_index=number,
            error_code=errors.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only partition {METADATA_PARTITION} of {METADATA_TOPIC} has a quorum",
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
        )
    catalog = node.broker.catalog
    now_ms = int(node.clock.wall() * 1000)
    voter = ReplicaState(
        replica_id=node.node_id,
        log_end_offset=catalog.version,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return QuorumPartition(
        partition_index=number,
        error_message=None,
        leader_id=node.node_id,
        leader_epoch=catalog.generation,
        high_watermark=catalog.version,
        current_voters=[voter],
    )
