"""OffsetCommit and OffsetFetch: committed offsets of groups and of consumers that assign partitions to themselves."""

from __future__ import annotations

from penstock.broker import Position, Topic, TopicPartition, UnknownTopicError
from penstock.broker.groups import CONSUMER, check_group_name
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, has_id, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import coordinator_code
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

METADATA_MAX = 4096
BY_ID_FROM = 10
GROUPS_FROM = 8
EPOCHS_FROM = 9


async def commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commits the offsets of all valid partitions durably, in one write."""
    node = call.node
    refused = _group_error(call, request)
    response = OffsetCommitResponse()
    accepted: list[tuple[TopicPartition, Position, OffsetCommitResponsePartition]] = []
    for topic in request.topics:
        topic_response = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(topic_response)
        for wanted in topic.partitions:
            outcome = OffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=refused)
            topic_response.partitions.append(outcome)
            if refused:
                continue
            if len((wanted.committed_metadata or "").encode()) > METADATA_MAX:
                outcome.error_code = errors.OFFSET_METADATA_TOO_LARGE
                continue
            try:
                known_topic = find_topic(node, topic.topic_id if call.version >= BY_ID_FROM else topic.name)
                accepted.append((_queue(known_topic, wanted.partition_index), _position(wanted), outcome))
            except PenstockError as error:
                outcome.error_code = topic_code(error)
    try:
        name = node.coordinator.namespace.offsets_name(request.group_id)
        await node.coordinator.consumers.commit(name, [(queue, position) for queue, position, _ in accepted])
    except PenstockError as error:
        for _, _, outcome in accepted:
            outcome.error_code = coordinator_code(error)
    return response


async def fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Returns the committed offsets of groups; without topics, all of them."""
    if call.version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=[_group(call, group, request.require_stable) for group in request.groups])
    topics = request.topics
    wanted = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics]
    )
    group = _group(call, OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted), request.require_stable)
    response = OffsetFetchResponse(error_code=group.error_code)
    for group_topic in group.topics:
        topic_response = OffsetFetchResponseTopic(name=group_topic.name)
        response.topics.append(topic_response)
        for partition in group_topic.partitions:
            topic_response.partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
            )
    return response


def _group_error(call: Call, request: OffsetCommitRequest) -> int:
    """Returns the error code if the group refuses commits of this member; NONE otherwise."""
    groups = call.node.coordinator.groups
    member_id, generation = request.member_id, request.generation_id_or_member_epoch
    try:
        check_group_name(request.group_id)
        groups.check_commit(request.group_id, member_id, generation, request.group_instance_id)
    except PenstockError as error:
        return coordinator_code(error)
    if call.version < EPOCHS_FROM and member_id and groups.kind(request.group_id) == CONSUMER:
        return errors.UNSUPPORTED_VERSION  # it cannot be told that its epoch is behind
    return errors.NONE


def _queue(topic: Topic, number: int) -> TopicPartition:
    if not 0 <= number < topic.partitions:
        raise UnknownTopicError(f"topic {topic.name!r} has no partition {number}")
    return TopicPartition(topic.id, number)


def _position(requested: OffsetCommitRequestPartition) -> Position:
    if requested.committed_offset < 0:
        raise InvalidRequestError(f"a position is an offset, not {requested.committed_offset}")
    return Position(requested.committed_offset, requested.committed_leader_epoch, requested.committed_metadata or "")


def _group(call: Call, requested: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=requested.group_id)
    broker = call.node.coordinator
    try:
        broker.groups.check_fetch(requested.group_id, requested.member_id or "", requested.member_epoch)
        name = broker.namespace.offsets_name(requested.group_id)
        positions = broker.consumers.positions(name) if name else {}
    except PenstockError as error:
        code = coordinator_code(error)
        response.error_code = errors.INVALID_GROUP_ID if code == errors.INVALID_REQUEST else code
        return response
    if requested.topics is None:
        response.topics = _all_positions(call.node, positions)
    else:
        response.topics = [_topic(call, topic, positions) for topic in requested.topics]
    if require_stable:
        _mark_unstable(call.node, requested.group_id, response.topics)
    return response


def _all_positions(node: Node, positions: dict[TopicPartition, Position]) -> list[OffsetFetchResponseTopics]:
    topics = {
        topic.id: OffsetFetchResponseTopics(name=topic.name, topic_id=topic.id.bytes) for topic in node.broker.catalog.topics()
    }
    for queue, position in positions.items():
        if queue.topic_id in topics:
            topics[queue.topic_id].partitions.append(_answer(queue.partition, position))
    return [topic for topic in topics.values() if topic.partitions]


def _topic(
    call: Call, requested: OffsetFetchRequestTopics, positions: dict[TopicPartition, Position]
) -> OffsetFetchResponseTopics:
    response = OffsetFetchResponseTopics(name=requested.name, topic_id=requested.topic_id)
    code = errors.NONE
    topic: Topic | None = None
    try:
        topic = find_topic(call.node, requested.topic_id if call.version >= BY_ID_FROM else requested.name)
    except PenstockError as error:
        # A group may ask for a topic that does not exist yet; only an unknown topic id is an error.
        code = topic_code(error) if has_id(requested.topic_id) else errors.NONE
    for number in requested.partition_indexes:
        position = None if topic is None else positions.get(TopicPartition(topic.id, number))
        answer = _answer(number, position)
        answer.error_code = code
        response.partitions.append(answer)
    return response


def _mark_unstable(node: Node, group: str, topics: list[OffsetFetchResponseTopics]) -> None:
    """Returns UNSTABLE_OFFSET_COMMIT if an open transaction is about to change the committed offset."""
    consumers = node.coordinator.consumers
    for answered in topics:
        try:
            topic = find_topic(node, answered.topic_id if has_id(answered.topic_id) else answered.name)
        except PenstockError:
            continue
        for answer in answered.partitions:
            if consumers.is_unstable(group, TopicPartition(topic.id, answer.partition_index)):
                answer.committed_offset, answer.committed_leader_epoch, answer.metadata = -1, -1, ""
                answer.error_code = errors.UNSTABLE_OFFSET_COMMIT


def _answer(number: int, position: Position | None) -> OffsetFetchResponsePartitions:
    if position is None:
        return OffsetFetchResponsePartitions(partition_index=number, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        metadata=position.metadata,
    )
