"""Share groups: several members read one partition, record by record."""

from __future__ import annotations

from penstock.kafka.protocol.fields import (
    Message,
    Records,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_set,
    string,
    struct,
    uuid,
)


class ShareGroupHeartbeatRequest(Message):
    """A member of a share group reports that it is alive and what it subscribes to."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string(), nullable="0+", default=None)


class ShareGroupHeartbeatTopicPartitions(Message):
    """One item of `ShareGroupHeartbeatAssignment.topic_partitions`."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ShareGroupHeartbeatAssignment(Message):
    """The `assignment` of `ShareGroupHeartbeatResponse`."""

    topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = array(ShareGroupHeartbeatTopicPartitions)


class ShareGroupHeartbeatResponse(Message):
    """The member's epoch and assignment."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ShareGroupHeartbeatAssignment | None = struct(ShareGroupHeartbeatAssignment, nullable="0+")


class ShareGroupDescribeRequest(Message):
    """Asks for the state and members of share groups."""

    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class ShareGroupDescribeTopicPartitions(Message):
    """One item of `ShareGroupDescribeAssignment.topic_partitions`."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class ShareGroupDescribeAssignment(Message):
    """The `assignment` of `Member`."""

    topic_partitions: list[ShareGroupDescribeTopicPartitions] = array(ShareGroupDescribeTopicPartitions)


class Member(Message):
    """One item of `DescribedGroup.members`."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    assignment: ShareGroupDescribeAssignment = struct(ShareGroupDescribeAssignment)


class DescribedGroup(Message):
    """One item of `ShareGroupDescribeResponse.groups`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class ShareGroupDescribeResponse(Message):
    """The state and members of each group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)


class ShareFetchAcknowledgementBatch(Message):
    """One item of `FetchPartition.acknowledgement_batches`."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8())


class FetchPartition(Message):
    """One item of `FetchTopic.partitions`."""

    partition_index: int = int32()
    acknowledgement_batches: list[ShareFetchAcknowledgementBatch] = array(ShareFetchAcknowledgementBatch)


class FetchTopic(Message):
    """One item of `ShareFetchRequest.topics`."""

    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Message):
    """One item of `ShareFetchRequest.forgotten_topics_data`."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ShareFetchRequest(Message):
    """Acquires records for a member of a share group, and acknowledges earlier ones."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class ShareFetchLeaderIdAndEpoch(Message):
    """The `current_leader` of `ShareFetchPartitionData`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class AcquiredRecords(Message):
    """One item of `ShareFetchPartitionData.acquired_records`."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class ShareFetchPartitionData(Message):
    """One item of `ShareFetchableTopicResponse.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: ShareFetchLeaderIdAndEpoch = struct(ShareFetchLeaderIdAndEpoch)
    records: Records | None = record_set()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Message):
    """One item of `ShareFetchResponse.responses`."""

    topic_id: bytes = uuid()
    partitions: list[ShareFetchPartitionData] = array(ShareFetchPartitionData)


class ShareFetchNodeEndpoint(Message):
    """One item of `ShareFetchResponse.node_endpoints`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ShareFetchResponse(Message):
    """The records acquired, by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[ShareFetchNodeEndpoint] = array(ShareFetchNodeEndpoint)


class ShareAcknowledgementBatch(Message):
    """One item of `AcknowledgePartition.acknowledgement_batches`."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8())


class AcknowledgePartition(Message):
    """One item of `AcknowledgeTopic.partitions`."""

    partition_index: int = int32()
    acknowledgement_batches: list[ShareAcknowledgementBatch] = array(ShareAcknowledgementBatch)


class AcknowledgeTopic(Message):
    """One item of `ShareAcknowledgeRequest.topics`."""

    topic_id: bytes = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Message):
    """Acknowledges records acquired by a member of a share group."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class ShareAcknowledgeLeaderIdAndEpoch(Message):
    """The `current_leader` of `ShareAcknowledgePartitionData`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class ShareAcknowledgePartitionData(Message):
    """One item of `ShareAcknowledgeTopicResponse.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: ShareAcknowledgeLeaderIdAndEpoch = struct(ShareAcknowledgeLeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Message):
    """One item of `ShareAcknowledgeResponse.responses`."""

    topic_id: bytes = uuid()
    partitions: list[ShareAcknowledgePartitionData] = array(ShareAcknowledgePartitionData)


class ShareAcknowledgeNodeEndpoint(Message):
    """One item of `ShareAcknowledgeResponse.node_endpoints`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ShareAcknowledgeResponse(Message):
    """Whether each acknowledgement was taken."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[ShareAcknowledgeNodeEndpoint] = array(ShareAcknowledgeNodeEndpoint)


class DescribeShareGroupOffsetsRequestTopic(Message):
    """One item of `DescribeShareGroupOffsetsRequestGroup.topics`."""

    topic_name: str = string()
    partitions: list[int] = array(int32())


class DescribeShareGroupOffsetsRequestGroup(Message):
    """One item of `DescribeShareGroupOffsetsRequest.groups`."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(DescribeShareGroupOffsetsRequestTopic, nullable="0+")


class DescribeShareGroupOffsetsRequest(Message):
    """Asks where share groups begin to read."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponsePartition(Message):
    """One item of `DescribeShareGroupOffsetsResponseTopic.partitions`."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Message):
    """One item of `DescribeShareGroupOffsetsResponseGroup.topics`."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


class DescribeShareGroupOffsetsResponseGroup(Message):
    """One item of `DescribeShareGroupOffsetsResponse.groups`."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Message):
    """The start of each partition for each group."""

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)


class AlterShareGroupOffsetsRequestPartition(Message):
    """One item of `AlterShareGroupOffsetsRequestTopic.partitions`."""

    partition_index: int = int32()
    start_offset: int = int64()


class AlterShareGroupOffsetsRequestTopic(Message):
    """One item of `AlterShareGroupOffsetsRequest.topics`."""

    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


class AlterShareGroupOffsetsRequest(Message):
    """Sets where a share group begins to read."""

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponsePartition(Message):
    """One item of `AlterShareGroupOffsetsResponseTopic.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Message):
    """One item of `AlterShareGroupOffsetsResponse.responses`."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


class AlterShareGroupOffsetsResponse(Message):
    """Whether each start was set."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)


class DeleteShareGroupOffsetsRequestTopic(Message):
    """One item of `DeleteShareGroupOffsetsRequest.topics`."""

    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Message):
    """Forgets where a share group begins to read."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Message):
    """One item of `DeleteShareGroupOffsetsResponse.responses`."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Message):
    """Whether each topic was forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
