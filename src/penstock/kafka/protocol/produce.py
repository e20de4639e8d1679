"""Produce: records into partitions."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, Records, array, int16, int32, int64, record_set, string, struct, uuid


class PartitionProduceData(Message):
    """One item of `TopicProduceData.partition_data`."""

    index: int = int32()
    records: Records | None = record_set(nullable="0+")


class TopicProduceData(Message):
    """One item of `ProduceRequest.topic_data`."""

    topic_id: bytes = uuid("13+")
    name: str = string("0-12")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message):
    """Appends record batches to partitions."""

    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Message):
    """One item of `PartitionProduceResponse.record_errors`."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


class LeaderIdAndEpoch(Message):
    """The `current_leader` of `PartitionProduceResponse`."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Message):
    """One item of `TopicProduceResponse.partition_responses`."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    """One item of `ProduceResponse.responses`."""

    topic_id: bytes = uuid("13+")
    name: str = string("0-12")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Message):
    """One item of `ProduceResponse.node_endpoints`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ProduceResponse(Message):
    """The offset each batch was given, or why it was refused."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
