"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from penstock.broker import InvalidPartitionsError, Topic, TopicConfig, check_not_internal
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.change_quota import ChangeQuota
from penstock.gateway.kafka.apis.configs import check_in_sync, describe_topic
from penstock.gateway.kafka.apis.topic_lookup import find_topic, has_id, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.kafka.protocol.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BY_DEFAULT = -1
TO_THE_END = -1
STATES_FROM = 6
CREATE_IS_STRICT_FROM, DELETE_IS_STRICT_FROM, GROW_IS_STRICT_FROM = 6, 5, 3


class InvalidReplicationError(InvalidRequestError):
    """More replicas than there are brokers to hold one each."""

    code = "invalid_replication_factor"


class InvalidAssignmentError(InvalidRequestError):
    """An assignment of partitions to brokers that cannot be had."""

    code = "invalid_replica_assignment"


async def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, each independently; with validate_only, only check that it would succeed."""
    names = [topic.name for topic in request.topics]
    quota = ChangeQuota(call, CREATE_IS_STRICT_FROM)
    results = []
    for topic in request.topics:
        if names.count(topic.name) > 1:
            result = CreatableTopicResult(
                name=topic.name, error_code=errors.INVALID_REQUEST, error_message="the topic is named more than once"
            )
        else:
            result = await _create(call.node, topic, quota, validate_only=request.validate_only)
        results.append(result)
    response = CreateTopicsResponse(topics=results)
    quota.settle(response)
    return response


async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics by name or by id."""
    topics = request.topics if call.version >= STATES_FROM else [DeleteTopicState(name=name) for name in request.topic_names]
    quota = ChangeQuota(call, DELETE_IS_STRICT_FROM)
    response = DeleteTopicsResponse(responses=[await _delete(call.node, topic, quota) for topic in topics])
    quota.settle(response)
    return response


async def create_partitions(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Give topics more partitions."""
    quota = ChangeQuota(call, GROW_IS_STRICT_FROM)
    results = [await _grow(call.node, topic, quota, validate_only=request.validate_only) for topic in request.topics]
    response = CreatePartitionsResponse(results=results)
    quota.settle(response)
    return response


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Deletes the records before an offset."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = [
            await _trim(call.node, topic.name, partition.partition_index, partition.offset) for partition in topic.partitions
        ]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return response


async def _create(node: Node, wanted: CreatableTopic, quota: ChangeQuota, *, validate_only: bool) -> CreatableTopicResult:
    result = CreatableTopicResult(name=wanted.name, error_message=None)
    try:
        partitions, replicas = _size(node, wanted)
        config = TopicConfig({setting.name: setting.value for setting in wanted.configs if setting.value is not None})
        check_in_sync(node, config)
        check_not_internal(wanted.name)
        node.broker.catalog.check_new(wanted.name, partitions)
        if not validate_only:
            quota.draw(partitions)
            topic = await node.coordinator.create_topic(wanted.name, partitions, config, replicas)
            result.topic_id = topic.id.bytes
    except InvalidReplicationError as error:
        result.error_code, result.error_message = errors.INVALID_REPLICATION_FACTOR, str(error)
        return result
    except InvalidAssignmentError as error:
        result.error_code, result.error_message = errors.INVALID_REPLICA_ASSIGNMENT, str(error)
        return result
    except PenstockError as error:
        result.error_code, result.error_message = topic_code(error), str(error)
        return result
    result.num_partitions, result.replication_factor = partitions, replicas
    result.configs = [
        CreatableTopicConfigs(name=described.name, value=described.value, config_source=described.config_source)
        for described in describe_topic(node, config.under(node.broker.dynamic.topic_defaults))
    ]
    return result


def _size(node: Node, wanted: CreatableTopic) -> tuple[int, int]:
    """How many partitions and replicas are asked for, in one way or the other."""
    if wanted.assignments:
        if wanted.num_partitions != BY_DEFAULT or wanted.replication_factor != BY_DEFAULT:
            raise InvalidRequestError("a topic is given either an assignment or numbers of partitions and replicas, not both")
        numbers = sorted(assignment.partition_index for assignment in wanted.assignments)
        if numbers != list(range(len(numbers))):
            raise InvalidAssignmentError(f"partitions are numbered through from 0, not {numbers}")
        for assignment in wanted.assignments:
            _check_replicas(node, assignment.broker_ids)
        return len(numbers), len(wanted.assignments[0].broker_ids)
    most = node.view.copies_max
    replicas = most if wanted.replication_factor == BY_DEFAULT else wanted.replication_factor
    if not 1 <= replicas <= most:
        raise InvalidReplicationError(
            f"the replication factor is {replicas}; the storage group keeps the copies, and offers 1 to {most} (-1: {most})"
            if most > 1
            else f"the replication factor is {replicas}, but there is 1 broker; the storage group keeps the copies"
        )
    partitions = node.broker.options.default_partitions if wanted.num_partitions == BY_DEFAULT else wanted.num_partitions
    return partitions, replicas


def _check_replicas(node: Node, broker_ids: list[int]) -> None:
    """An assignment is checked and its size kept; the node that leads is chosen by load all the same."""
    known = sorted(broker.node_id for broker in node.brokers())
    if len(known) == 1 and broker_ids != known:
        raise InvalidAssignmentError(f"replicas can be on broker {known[0]} alone, not on {broker_ids}")
    if not set(broker_ids) <= set(known) or len(set(broker_ids)) < len(broker_ids):
        raise InvalidAssignmentError(f"replicas can be on brokers {known}, each once, not on {broker_ids}")
    if not 1 <= len(broker_ids) <= node.view.copies_max:
        raise InvalidAssignmentError(f"a partition can have 1 to {node.view.copies_max} replicas, not {len(broker_ids)}")


async def _delete(node: Node, wanted: DeleteTopicState, quota: ChangeQuota) -> DeletableTopicResult:
    result = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id)
    try:
        if has_id(wanted.topic_id) and wanted.name is not None:
            raise InvalidRequestError("a topic is named either by its name or by its id, not both")
        topic = find_topic(node, wanted.topic_id if wanted.name is None else wanted.name)
        result.name, result.topic_id = topic.name, topic.id.bytes
        quota.draw(topic.partitions)
        await node.coordinator.delete_topic(topic.name)
    except PenstockError as error:
        result.error_code, result.error_message = topic_code(error), str(error)
    return result


async def _grow(
    node: Node, requested: CreatePartitionsTopic, quota: ChangeQuota, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    result = CreatePartitionsTopicResult(name=requested.name)
    try:
        topic = find_topic(node, requested.name)
        _check_growth(node, topic, requested)
        if not validate_only:
            quota.draw(requested.count - topic.partitions)
            await node.coordinator.add_partitions(requested.name, requested.count)
    except InvalidAssignmentError as error:
        result.error_code, result.error_message = errors.INVALID_REPLICA_ASSIGNMENT, str(error)
    except PenstockError as error:
        result.error_code, result.error_message = topic_code(error), str(error)
    return result


def _check_growth(node: Node, topic: Topic, wanted: CreatePartitionsTopic) -> None:
    added = wanted.count - topic.partitions
    if added <= 0:
        raise InvalidPartitionsError(f"topic {topic.name!r} has {topic.partitions} partitions already; {wanted.count} is no more")
    if wanted.assignments is not None:
        if len(wanted.assignments) != added:
            raise InvalidAssignmentError(f"{added} partitions are added, but {len(wanted.assignments)} are assigned")
        for assignment in wanted.assignments:
            _check_replicas(node, assignment.broker_ids)


async def _trim(node: Node, name: str, number: int, offset: int) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=number, low_watermark=-1)
    try:
        check_not_internal(name)
        partition = node.broker.partition(find_topic(node, name), number)
        if offset == TO_THE_END:
            offset = partition.end_offset
        if offset < 0:
            result.error_code = errors.OFFSET_OUT_OF_RANGE
        else:
            result.low_watermark = await partition.trim(offset)
    except PenstockError as error:
        result.error_code = topic_code(error)
    return result
