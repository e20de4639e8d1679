"""Metadata and DescribeTopicPartitions: brokers, topics and where their partitions are."""

from __future__ import annotations

import logging

from penstock.broker import INTERNAL_TOPICS, Topic, TopicExistsError, UnknownTopicError
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.authorized import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from penstock.gateway.kafka.apis.topic_lookup import find_topic, has_id, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.cluster_view import ForwardedRequest, Forwarder, NoForwardError
from penstock.gateway.kafka.described_topics import describe_partition
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import decode_response, encode_request, keys
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
    MetadataResponseTopic,
)

log = logging.getLogger(__name__)

PAGE_MAX = 2000
SIZE_BYTES = 4  # before a frame
ANSWER_S = 10.0


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Returns this broker and the requested topics; creates a missing topic if client and broker allow it."""
    node = call.node
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if not wants_all and node.view.forwarder is not None and not _knows_all(node, request.topics or []):
        answered = await _ask_leader(call, request, node.view.forwarder)
        if answered is not None:
            return answered
    if wants_all:
        topics = [node.described.describe(node, topic) for topic in node.broker.catalog.topics()]
    else:
        may_create = request.allow_auto_topic_creation and node.broker.options.auto_create_topics and node.view.forwarder is None
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
        controller_id=node.view.controller_id,
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


def _knows_all(node: Node, topics: list[MetadataRequestTopic]) -> bool:
    """Whether every topic is in this node's copy of the catalog."""
    try:
        for topic in topics:
            find_topic(node, topic.topic_id if has_id(topic.topic_id) else topic.name or "")
    except UnknownTopicError:
        return False
    return True


async def _ask_leader(call: Call, request: MetadataRequest, forwarder: Forwarder) -> MetadataResponse | None:
    """Has the leading node answer, which knows topics that were just created and may create more. None if it does not answer."""
    frame = b"".join(encode_request(keys.METADATA, call.version, 0, call.client_id, request)[0])[SIZE_BYTES:]
    wanted = ForwardedRequest(call.node.listener, call.peer.user, call.peer.host, frame)
    try:
        reply = await forwarder.forward(wanted, ANSWER_S)
    except NoForwardError as error:
        log.debug("the leading node was not asked for topics: %s", error)
        return None
    if not reply.frame:
        return None
    _, response = decode_response(keys.METADATA, call.version, reply.frame[SIZE_BYTES:])
    assert isinstance(response, MetadataResponse)
    return response


async def _find(node: Node, wanted: MetadataRequestTopic, *, may_create: bool) -> MetadataResponseTopic:
    try:
        if has_id(wanted.topic_id):
            return node.described.describe(node, find_topic(node, wanted.topic_id))
        try:
            return node.described.describe(node, find_topic(node, wanted.name or ""))
        except UnknownTopicError:
            if not may_create:
                raise
            return node.described.describe(node, await _create(node, wanted.name or ""))
    except PenstockError as error:
        return MetadataResponseTopic(
            name=wanted.name, topic_id=wanted.topic_id, error_code=topic_code(error), is_internal=wanted.name in INTERNAL_TOPICS
        )


async def _create(node: Node, name: str) -> Topic:
    if name in INTERNAL_TOPICS:
        return await node.coordinator.internal_topic(name)
    try:
        topic = await node.coordinator.create_topic(name)
    except TopicExistsError:
        # Another request was first; or the topic of that name is still being deleted, and then this raises.
        return find_topic(node, name)
    log.info("created topic %r with %d partitions for a client that asked for its metadata", name, topic.partitions)
    return topic


def _describe_page(node: Node, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    described = (describe_partition(node, topic, number) for number in numbers)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id.bytes,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=partition.error_code,
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replica_nodes,
                isr_nodes=partition.isr_nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=partition.offline_replicas,
            )
            for partition in described
        ],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )
