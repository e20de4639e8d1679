"""Topics: created, deleted, grown, their partitions moved."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Message):
    """One item of `CreatableTopic.assignments`."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32())


class CreatableTopicConfig(Message):
    """One item of `CreatableTopic.configs`."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Message):
    """One item of `CreateTopicsRequest.topics`."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message):
    """Creates topics."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Message):
    """One item of `CreatableTopicResult.configs`."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Message):
    """One item of `CreateTopicsResponse.topics`."""

    name: str = string()
    topic_id: bytes = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="0+")


class CreateTopicsResponse(Message):
    """What was created, or why not."""

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class DeleteTopicState(Message):
    """One item of `DeleteTopicsRequest.topics`."""

    name: str | None = string(nullable="0+", default=None)
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Message):
    """Deletes topics, by name or by id."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string(), "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Message):
    """One item of `DeleteTopicsResponse.responses`."""

    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="0+", default=None)


class DeleteTopicsResponse(Message):
    """Whether each topic was deleted."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class CreatePartitionsAssignment(Message):
    """One item of `CreatePartitionsTopic.assignments`."""

    broker_ids: list[int] = array(int32())


class CreatePartitionsTopic(Message):
    """One item of `CreatePartitionsRequest.topics`."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Message):
    """Adds partitions to topics."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Message):
    """One item of `CreatePartitionsResponse.results`."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Message):
    """Whether each topic has grown."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class TopicPartitions(Message):
    """One item of `ElectLeadersRequest.topic_partitions`."""

    topic: str = string()
    partitions: list[int] = array(int32())


class ElectLeadersRequest(Message):
    """Asks for an election of leaders."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Message):
    """One item of `ReplicaElectionResult.partition_result`."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Message):
    """One item of `ElectLeadersResponse.replica_election_results`."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


class ReassignablePartition(Message):
    """One item of `ReassignableTopic.partitions`."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32(), nullable="0+", default=None)


class ReassignableTopic(Message):
    """One item of `AlterPartitionReassignmentsRequest.topics`."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message):
    """Moves partitions to other replicas, or calls that off."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Message):
    """One item of `ReassignableTopicResponse.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Message):
    """One item of `AlterPartitionReassignmentsResponse.responses`."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message):
    """Whether each move was begun."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ListPartitionReassignmentsTopics(Message):
    """One item of `ListPartitionReassignmentsRequest.topics`."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


class ListPartitionReassignmentsRequest(Message):
    """Asks for partition reassignments in progress."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(ListPartitionReassignmentsTopics, nullable="0+")


class OngoingPartitionReassignment(Message):
    """One item of `OngoingTopicReassignment.partitions`."""

    partition_index: int = int32()
    replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())


class OngoingTopicReassignment(Message):
    """One item of `ListPartitionReassignmentsResponse.topics`."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message):
    """The reassignments in progress."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
