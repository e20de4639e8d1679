"""Error responses for clients when the cluster's leader does not answer: they refresh metadata and retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.kafka.protocol import APIS, PRIVATE_APIS, Message, Request, errors, keys, private_keys
from penstock.kafka.protocol import cluster as cluster_messages
from penstock.kafka.protocol import configs as config_messages
from penstock.kafka.protocol import consumer_groups as consumer_group_messages
from penstock.kafka.protocol import groups as group_messages
from penstock.kafka.protocol import offsets as offset_messages
from penstock.kafka.protocol import topics as topic_messages
from penstock.kafka.protocol import transactions as transaction_messages

MANY_KEYS_FROM = 4
MANY_GROUPS_FROM = 8
MANY_TRANSACTIONS_FROM = 4
GROUP_CODE_FROM = 2
DELETE_STATES_FROM = 6

COORDINATED: Final = frozenset(
    {
        keys.OFFSET_COMMIT,
        keys.OFFSET_FETCH,
        keys.FIND_COORDINATOR,
        keys.JOIN_GROUP,
        keys.HEARTBEAT,
        keys.LEAVE_GROUP,
        keys.SYNC_GROUP,
        keys.DESCRIBE_GROUPS,
        keys.LIST_GROUPS,
        keys.DELETE_GROUPS,
        keys.OFFSET_DELETE,
        keys.CONSUMER_GROUP_HEARTBEAT,
        keys.CONSUMER_GROUP_DESCRIBE,
        keys.INIT_PRODUCER_ID,
        keys.ADD_PARTITIONS_TO_TXN,
        keys.ADD_OFFSETS_TO_TXN,
        keys.END_TXN,
        keys.TXN_OFFSET_COMMIT,
        keys.DESCRIBE_TRANSACTIONS,
        keys.LIST_TRANSACTIONS,
        private_keys.COMMIT_TOGETHER,
        private_keys.APPLICATION_RECORD,
    }
)
"""What clients ask a coordinator; all else they ask the controller."""


def unanswered(request: Request, *, is_open: bool) -> Message | None:
    """Returns a response by which the client tries again; if `is_open`, what it asked for may have been done. None if no response
    can say so: then the connection is closed, which says it too."""
    key = request.api_key
    if key in COORDINATED:
        code = errors.COORDINATOR_NOT_AVAILABLE
    else:
        code = errors.REQUEST_TIMED_OUT if is_open else errors.NOT_CONTROLLER
    of_parts = _OF_PARTS.get(key)
    if of_parts is not None:
        return of_parts(request.body, request.api_version, code)
    response: Any = (APIS.get(key) or PRIVATE_APIS[key]).response_class()
    if not hasattr(response, "error_code"):
        return None
    response.error_code = code
    built: Message = response
    return built


def _find_coordinator(body: cluster_messages.FindCoordinatorRequest, version: int, code: int) -> Message:
    if version < MANY_KEYS_FROM:
        return cluster_messages.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    coordinator = cluster_messages.Coordinator
    return cluster_messages.FindCoordinatorResponse(
        coordinators=[coordinator(key=key, node_id=-1, port=-1, error_code=code) for key in body.coordinator_keys]
    )


def _join_group(body: group_messages.JoinGroupRequest, _version: int, code: int) -> Message:
    return group_messages.JoinGroupResponse(error_code=code, member_id=body.member_id)


def _offset_commit(body: offset_messages.OffsetCommitRequest, _version: int, code: int) -> Message:
    result = offset_messages.OffsetCommitResponsePartition
    return offset_messages.OffsetCommitResponse(
        topics=[
            offset_messages.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[result(partition_index=part.partition_index, error_code=code) for part in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _offset_fetch(body: offset_messages.OffsetFetchRequest, version: int, code: int) -> Message:
    if version >= MANY_GROUPS_FROM:
        group = offset_messages.OffsetFetchResponseGroup
        return offset_messages.OffsetFetchResponse(
            groups=[group(group_id=asked.group_id, error_code=code) for asked in body.groups]
        )
    response = offset_messages.OffsetFetchResponse(error_code=code)
    if version < GROUP_CODE_FROM:
        result = offset_messages.OffsetFetchResponsePartition
        for topic in body.topics or []:
            results = [result(partition_index=number, committed_offset=-1, error_code=code) for number in topic.partition_indexes]
            response.topics.append(offset_messages.OffsetFetchResponseTopic(name=topic.name, partitions=results))
    return response


def _txn_offset_commit(body: transaction_messages.TxnOffsetCommitRequest, _version: int, code: int) -> Message:
    result = transaction_messages.TxnOffsetCommitResponsePartition
    return transaction_messages.TxnOffsetCommitResponse(
        topics=[
            transaction_messages.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[result(partition_index=part.partition_index, error_code=code) for part in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _add_partitions(body: transaction_messages.AddPartitionsToTxnRequest, version: int, code: int) -> Message:
    if version >= MANY_TRANSACTIONS_FROM:
        return transaction_messages.AddPartitionsToTxnResponse(error_code=code)
    result = transaction_messages.AddPartitionsToTxnPartitionResult
    return transaction_messages.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            transaction_messages.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[result(partition_index=number, partition_error_code=code) for number in topic.partitions],
            )
            for topic in body.v3_and_below_topics
        ]
    )


def _delete_topics(body: topic_messages.DeleteTopicsRequest, version: int, code: int) -> Message:
    result = topic_messages.DeletableTopicResult
    if version < DELETE_STATES_FROM:
        return topic_messages.DeleteTopicsResponse(responses=[result(name=name, error_code=code) for name in body.topic_names])
    return topic_messages.DeleteTopicsResponse(
        responses=[result(name=topic.name, topic_id=topic.topic_id, error_code=code) for topic in body.topics]
    )


def _of_each(response: Any, answers: str, result: Any, items: str, name: str) -> Callable[[Any, int, int], Message]:
    """For an api whose response says of each item by name how it went."""

    def build(body: Any, _version: int, code: int) -> Message:
        asked = (item if isinstance(item, str) else item.name for item in getattr(body, items))
        built: Message = response(**{answers: [result(**{name: item}, error_code=code) for item in asked]})
        return built

    return build


def _of_resources(response: Any, answers: str, result: Any) -> Callable[[Any, int, int], Message]:
    """For an api about settings."""

    def build(body: Any, _version: int, code: int) -> Message:
        results = [
            result(error_code=code, resource_type=resource.resource_type, resource_name=resource.resource_name)
            for resource in body.resources
        ]
        built: Message = response(**{answers: results})
        return built

    return build


_OF_PARTS: Final[dict[int, Callable[[Any, int, int], Message]]] = {
    keys.FIND_COORDINATOR: _find_coordinator,
    keys.JOIN_GROUP: _join_group,
    keys.OFFSET_COMMIT: _offset_commit,
    keys.OFFSET_FETCH: _offset_fetch,
    keys.TXN_OFFSET_COMMIT: _txn_offset_commit,
    keys.ADD_PARTITIONS_TO_TXN: _add_partitions,
    keys.DELETE_TOPICS: _delete_topics,
    keys.DESCRIBE_GROUPS: _of_each(
        group_messages.DescribeGroupsResponse, "groups", group_messages.DescribedGroup, "groups", "group_id"
    ),
    keys.CONSUMER_GROUP_DESCRIBE: _of_each(
        consumer_group_messages.ConsumerGroupDescribeResponse,
        "groups",
        consumer_group_messages.DescribedGroup,
        "group_ids",
        "group_id",
    ),
    keys.DELETE_GROUPS: _of_each(
        group_messages.DeleteGroupsResponse, "results", group_messages.DeletableGroupResult, "groups_names", "group_id"
    ),
    keys.DESCRIBE_TRANSACTIONS: _of_each(
        transaction_messages.DescribeTransactionsResponse,
        "transaction_states",
        transaction_messages.DescribeTransactionsTransactionState,
        "transactional_ids",
        "transactional_id",
    ),
    keys.CREATE_TOPICS: _of_each(
        topic_messages.CreateTopicsResponse, "topics", topic_messages.CreatableTopicResult, "topics", "name"
    ),
    keys.CREATE_PARTITIONS: _of_each(
        topic_messages.CreatePartitionsResponse, "results", topic_messages.CreatePartitionsTopicResult, "topics", "name"
    ),
    keys.DESCRIBE_CONFIGS: _of_resources(
        config_messages.DescribeConfigsResponse, "results", config_messages.DescribeConfigsResult
    ),
    keys.ALTER_CONFIGS: _of_resources(
        config_messages.AlterConfigsResponse, "responses", config_messages.AlterConfigsResourceResponse
    ),
    keys.INCREMENTAL_ALTER_CONFIGS: _of_resources(
        config_messages.IncrementalAlterConfigsResponse, "responses", config_messages.IncrementalAlterConfigsResourceResponse
    ),
}
