"""OffsetCommit and OffsetFetch: where consumers stand. So far for consumers that assign partitions to themselves."""

from __future__ import annotations

from penstock.broker import Position, Queue, Topic
from penstock.core.errors import InvalidRequestError, PenstockError, UnavailableError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, has_id, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import code_of
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.protocol import errors
from penstock.gateway.kafka.protocol.offsets import (
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
NO_MEMBER = -1


async def commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Store positions, durably, all of those that can be."""
    node = call.node
    refused = _group_error(request)
    response = OffsetCommitResponse()
    accepted: list[tuple[Queue, Position, OffsetCommitResponsePartition]] = []
    for topic in request.topics:
        answered = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answered)
        for asked in topic.partitions:
            outcome = OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=refused)
            answered.partitions.append(outcome)
            if refused:
                continue
            try:
                found = find_topic(node, topic.topic_id if call.version >= BY_ID_FROM else topic.name)
                accepted.append((_queue(found, asked.partition_index), _position(asked), outcome))
            except PenstockError as error:
                outcome.error_code = topic_code(error)
            if len((asked.committed_metadata or "").encode()) > METADATA_MAX:
                accepted = [one for one in accepted if one[2] is not outcome]
                outcome.error_code = errors.OFFSET_METADATA_TOO_LARGE
    try:
        await node.broker.consumers.commit(request.group_id, [(queue, position) for queue, position, _ in accepted])
    except PenstockError as error:
        code = errors.COORDINATOR_NOT_AVAILABLE if error.retriable else _group_code(error)
        for _, _, outcome in accepted:
            outcome.error_code = code
    return response


async def fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The positions of groups; without topics, all of them."""
    if call.version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=[_group(call, group) for group in request.groups])
    topics = request.topics
    asked = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics]
    )
    group = _group(call, OffsetFetchRequestGroup(group_id=request.group_id, topics=asked))
    response = OffsetFetchResponse(error_code=group.error_code)
    for found in group.topics:
        answered = OffsetFetchResponseTopic(name=found.name)
        response.topics.append(answered)
        for one in found.partitions:
            answered.partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
            )
    return response


def _group_error(request: OffsetCommitRequest) -> int:
    """Whether the group takes positions from whoever asks: so far every group is without members."""
    if not request.group_id:
        return errors.INVALID_GROUP_ID
    if request.generation_id_or_member_epoch >= 0:
        return errors.ILLEGAL_GENERATION
    if request.member_id or request.group_instance_id is not None:
        return errors.UNKNOWN_MEMBER_ID
    return errors.NONE


def _group_code(error: PenstockError) -> int:
    return errors.INVALID_GROUP_ID if isinstance(error, InvalidRequestError) else code_of(error)


def _queue(topic: Topic, number: int) -> Queue:
    if not 0 <= number < topic.partitions:
        raise _no_partition(topic, number)
    return Queue(topic.id, number)


def _no_partition(topic: Topic, number: int) -> PenstockError:
    from penstock.broker import UnknownTopicError

    return UnknownTopicError(f"topic {topic.name!r} has no partition {number}")


def _position(asked: OffsetCommitRequestPartition) -> Position:
    if asked.committed_offset < 0:
        raise InvalidRequestError(f"a position is an offset, not {asked.committed_offset}")
    return Position(asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or "")


def _group(call: Call, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=asked.group_id)
    try:
        positions = call.node.broker.consumers.positions(asked.group_id) if asked.group_id else {}
    except UnavailableError:
        response.error_code = errors.COORDINATOR_NOT_AVAILABLE
        return response
    except PenstockError as error:
        response.error_code = _group_code(error)
        return response
    if asked.topics is None:
        response.topics = _all_positions(call.node, positions)
    else:
        response.topics = [_topic(call, topic, positions) for topic in asked.topics]
    return response


def _all_positions(node: Node, positions: dict[Queue, Position]) -> list[OffsetFetchResponseTopics]:
    topics = {
        topic.id: OffsetFetchResponseTopics(name=topic.name, topic_id=topic.id.bytes) for topic in node.broker.catalog.topics()
    }
    for queue, position in positions.items():
        if queue.topic_id in topics:
            topics[queue.topic_id].partitions.append(_answer(queue.partition, position))
    return [topic for topic in topics.values() if topic.partitions]


def _topic(call: Call, asked: OffsetFetchRequestTopics, positions: dict[Queue, Position]) -> OffsetFetchResponseTopics:
    response = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
    code = errors.NONE
    topic: Topic | None = None
    try:
        topic = find_topic(call.node, asked.topic_id if call.version >= BY_ID_FROM else asked.name)
    except PenstockError as error:
        # A group may well ask for what nobody has made yet; only an id that means nothing is an error.
        code = topic_code(error) if has_id(asked.topic_id) else errors.NONE
    for number in asked.partition_indexes:
        position = None if topic is None else positions.get(Queue(topic.id, number))
        answer = _answer(number, position)
        answer.error_code = code
        response.partitions.append(answer)
    return response


def _answer(number: int, position: Position | None) -> OffsetFetchResponsePartitions:
    if position is None:
        return OffsetFetchResponsePartitions(partition_index=number, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        metadata=position.metadata,
    )
