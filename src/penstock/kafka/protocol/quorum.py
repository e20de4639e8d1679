"""Where the cluster keeps what it knows of itself, and moving replicas between the directories of a broker."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, int16, int32, int64, string, uint16, uuid


class DescribedQuorumPartition(Message):
    """One item of `DescribedQuorumTopic.partitions`."""

    partition_index: int = int32()


class DescribedQuorumTopic(Message):
    """One item of `DescribeQuorumRequest.topics`."""

    topic_name: str = string()
    partitions: list[DescribedQuorumPartition] = array(DescribedQuorumPartition)


class DescribeQuorumRequest(Message):
    """Asks who leads and who follows the log of the cluster's metadata."""

    topics: list[DescribedQuorumTopic] = array(DescribedQuorumTopic)


class ReplicaState(Message):
    """One replica of the log, and how far it has come."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class QuorumPartition(Message):
    """One item of `QuorumTopic.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class QuorumTopic(Message):
    """One item of `DescribeQuorumResponse.topics`."""

    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


class QuorumListener(Message):
    """One item of `QuorumNode.listeners`."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class QuorumNode(Message):
    """One item of `DescribeQuorumResponse.nodes`."""

    node_id: int = int32()
    listeners: list[QuorumListener] = array(QuorumListener)


class DescribeQuorumResponse(Message):
    """The voters and observers of the log of the cluster's metadata."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[QuorumTopic] = array(QuorumTopic)
    nodes: list[QuorumNode] = array(QuorumNode, "2+")


class AlterReplicaLogDirTopic(Message):
    """One item of `AlterReplicaLogDir.topics`."""

    name: str = string()
    partitions: list[int] = array(int32())


class AlterReplicaLogDir(Message):
    """One item of `AlterReplicaLogDirsRequest.dirs`."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message):
    """Asks that replicas be kept in other directories."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Message):
    """One item of `AlterReplicaLogDirTopicResult.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Message):
    """One item of `AlterReplicaLogDirsResponse.results`."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message):
    """Which of the replicas are kept where it was asked."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
