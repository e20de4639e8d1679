"""Consumer groups of the newer protocol, where the coordinator assigns partitions."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, boolean, int8, int16, int32, string, struct, uuid


class ConsumerGroupHeartbeatRequestTopicPartitions(Message):
    """One item of `ConsumerGroupHeartbeatRequest.topic_partitions`."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ConsumerGroupHeartbeatRequest(Message):
    """A member of a consumer group reports what it has, and asks what it should have."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string(), nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="0+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = array(
        ConsumerGroupHeartbeatRequestTopicPartitions, nullable="0+"
    )


class ConsumerGroupHeartbeatResponseTopicPartitions(Message):
    """One item of `ConsumerGroupHeartbeatAssignment.topic_partitions`."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ConsumerGroupHeartbeatAssignment(Message):
    """The `assignment` of `ConsumerGroupHeartbeatResponse`."""

    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = array(ConsumerGroupHeartbeatResponseTopicPartitions)


class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch and target assignment."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ConsumerGroupHeartbeatAssignment | None = struct(ConsumerGroupHeartbeatAssignment, nullable="0+")


class ConsumerGroupDescribeRequest(Message):
    """Asks for the state and members of consumer groups."""

    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class ConsumerGroupDescribeTopicPartitions(Message):
    """One item of `ConsumerGroupDescribeAssignment.topic_partitions`."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class ConsumerGroupDescribeAssignment(Message):
    """The `assignment` of `Member`."""

    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = array(ConsumerGroupDescribeTopicPartitions)


class Member(Message):
    """One item of `DescribedGroup.members`."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    member_type: int = int8("1+", default=-1)


class DescribedGroup(Message):
    """One item of `ConsumerGroupDescribeResponse.groups`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class ConsumerGroupDescribeResponse(Message):
    """The state and members of each group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
