"""Metadata and DescribeTopicPartitions: brokers, topics and where their partitions are."""

from __future__ import annotations

import logging

from penstock.broker import INTERNAL_TOPICS, PartitionDamagedError, Topic, TopicExistsError, UnknownTopicError
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.authorized import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from penstock.gateway.kafka.apis.topic_lookup import find_topic, has_id, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

log = logging.getLogger(__name__)

NO_LEADER = -1
PAGE_MAX = 2000


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Returns this broker and the requested topics; creates a missing topic if client and broker allow it."""
    node = call.node
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        topics = [_describe(node, topic) for topic in node.broker.catalog.topics()]
    else:
        may_create = request.allow_auto_topic_creation and node.broker.options.auto_create_topics
        topics = [await _find(node, wanted, may_create=may_create) for wanted in request.topics or []]
    if request.include_topic_authorized_operations:
        # Of a topic that is not there as well: the older kafka-python chokes on an answer that says nothing.
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack or None)
            for broker in node.brokers()
        ],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


async def describe_topic_partitions(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """A page of the partitions of topics, in the order of their names, and where the next page begins."""
    node = call.node
    names = sorted({topic.name for topic in request.topics}) or [topic.name for topic in node.broker.catalog.topics()]
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = max(request.cursor.partition_index, 0)
    left = min(request.response_partition_limit, PAGE_MAX) if request.response_partition_limit > 0 else PAGE_MAX
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        try:
            topic = find_topic(node, name)
        except PenstockError as error:
            unknown = DescribeTopicPartitionsResponseTopic(name=name, error_code=topic_code(error))
            response.topics.append(unknown)
            continue
        numbers = range(first, min(topic.partitions, first + left))
        response.topics.append(_describe_page(node, topic, numbers))
        left -= len(numbers)
        first = 0
        if numbers.stop < topic.partitions:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=numbers.stop)
            break
    return response


async def _find(node: Node, wanted: MetadataRequestTopic, *, may_create: bool) -> MetadataResponseTopic:
    try:
        if has_id(wanted.topic_id):
            return _describe(node, find_topic(node, wanted.topic_id))
        try:
            return _describe(node, find_topic(node, wanted.name or ""))
        except UnknownTopicError:
            if not may_create:
                raise
            return _describe(node, await _create(node, wanted.name or ""))
    except PenstockError as error:
        return MetadataResponseTopic(
            name=wanted.name, topic_id=wanted.topic_id, error_code=topic_code(error), is_internal=wanted.name in INTERNAL_TOPICS
        )


async def _create(node: Node, name: str) -> Topic:
    if name in INTERNAL_TOPICS:
        return await node.broker.internal_topic(name)
    try:
        topic = await node.broker.create_topic(name)
    except TopicExistsError:
        # Another request was first; or the topic of that name is still being deleted, and then this raises.
        return find_topic(node, name)
    log.info("created topic %r with %d partitions for a client that asked for its metadata", name, topic.partitions)
    return topic


def _leader(node: Node, topic: Topic, number: int) -> tuple[int, int, int]:
    """An error code, the leader of a partition, and its epoch."""
    try:
        return errors.NONE, node.node_id, node.broker.partition(topic, number).epoch
    except PartitionDamagedError:
        # The partition has a leader, which reports the damage; without a leader clients would wait silently.
        return errors.NONE, node.node_id, -1
    except PenstockError:
        return errors.LEADER_NOT_AVAILABLE, NO_LEADER, -1


def _describe(node: Node, topic: Topic) -> MetadataResponseTopic:
    partitions = []
    own = [node.node_id]
    for number in range(topic.partitions):
        code, leader, epoch = _leader(node, topic, number)
        partitions.append(
            MetadataResponsePartition(
                error_code=code,
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=own,
                isr_nodes=own if code == errors.NONE else [],
                offline_replicas=[] if code == errors.NONE else own,
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.id.bytes, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )


def _describe_page(node: Node, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    own = [node.node_id]
    for number in numbers:
        code, leader, epoch = _leader(node, topic, number)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=own,
                isr_nodes=own if code == errors.NONE else [],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[] if code == errors.NONE else own,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id.bytes,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )
