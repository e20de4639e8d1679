"""Metadata: brokers, topics and their partitions."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, boolean, int16, int32, string, struct, uuid


class MetadataRequestTopic(Message):
    """One item of `MetadataRequest.topics`."""

    topic_id: bytes = uuid("10+")
    name: str | None = string(nullable="10+")


class MetadataRequest(Message):
    """Asks who the brokers are and where the partitions of topics live."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Message):
    """One item of `MetadataResponse.brokers`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="0+", default=None)


class MetadataResponsePartition(Message):
    """One item of `MetadataResponseTopic.partitions`."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), "5+")


class MetadataResponseTopic(Message):
    """One item of `MetadataResponse.topics`."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Message):
    """The brokers, and the partitions of the topics asked for."""

    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="0+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    error_code: int = int16("13+")
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)


class TopicRequest(Message):
    """One item of `DescribeTopicPartitionsRequest.topics`."""

    name: str = string()


class DescribeTopicPartitionsRequestCursor(Message):
    """The `cursor` of `DescribeTopicPartitionsRequest`."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message):
    """Asks for the partitions of topics, page by page."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = struct(DescribeTopicPartitionsRequestCursor, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Message):
    """One item of `DescribeTopicPartitionsResponseTopic.partitions`."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    eligible_leader_replicas: list[int] | None = array(int32(), nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32(), nullable="0+", default=None)
    offline_replicas: list[int] = array(int32())


class DescribeTopicPartitionsResponseTopic(Message):
    """One item of `DescribeTopicPartitionsResponse.topics`."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponseCursor(Message):
    """The `next_cursor` of `DescribeTopicPartitionsResponse`."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsResponse(Message):
    """A page of partitions, and where the next one begins."""

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = struct(DescribeTopicPartitionsResponseCursor, nullable="0+")
