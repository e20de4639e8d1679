"""Fetch: records out of partitions."""

from __future__ import annotations

from penstock.kafka.protocol.fields import (
    Message,
    Records,
    array,
    int8,
    int16,
    int32,
    int64,
    record_set,
    string,
    struct,
    uuid,
)


class ReplicaState(Message):
    """The `replica_state` of `FetchRequest`."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Message):
    """One item of `FetchTopic.partitions`."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", tag=1, default=9223372036854775807)


class FetchTopic(Message):
    """One item of `FetchRequest.topics`."""

    topic_id: bytes = uuid("13+")
    topic: str = string("0-12")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Message):
    """One item of `FetchRequest.forgotten_topics_data`."""

    topic_id: bytes = uuid("13+")
    topic: str = string("0-12")
    partitions: list[int] = array(int32())


class FetchRequest(Message):
    """Reads record batches from offsets of partitions, waiting for enough of them."""

    cluster_id: str | None = string("12+", nullable="0+", tag=0, default=None)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    replica_id: int = int32("0-14", default=-1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class EpochEndOffset(Message):
    """The `diverging_epoch` of `PartitionData`."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Message):
    """The `current_leader` of `PartitionData`."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Message):
    """The `snapshot_id` of `PartitionData`."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Message):
    """One item of `PartitionData.aborted_transactions`."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Message):
    """One item of `FetchableTopicResponse.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = record_set(nullable="0+")


class FetchableTopicResponse(Message):
    """One item of `FetchResponse.responses`."""

    topic_id: bytes = uuid("13+")
    topic: str = string("0-12")
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Message):
    """One item of `FetchResponse.node_endpoints`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class FetchResponse(Message):
    """Record batches by partition, with the marks of each log."""

    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
