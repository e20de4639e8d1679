"""Guards of the apis about groups, positions, producers and transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker import Operation, ResourceKind
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.security.authorization import (
    NOT_ASKED,
    Guard,
    Handler,
    allowed_operations,
    both,
    each,
    each_topic,
    may_cluster,
    may_topic,
    only,
    take_out,
    topic_ref,
    whole,
)
from penstock.kafka.protocol import Message, errors, keys, private_keys
from penstock.kafka.protocol import cluster as cluster_messages
from penstock.kafka.protocol import consumer_groups as consumer_group_messages
from penstock.kafka.protocol import groups as group_messages
from penstock.kafka.protocol import offsets as offset_messages
from penstock.kafka.protocol import private as private_messages
from penstock.kafka.protocol import transactions as transaction_messages

COORDINATED_GROUP, COORDINATED_TRANSACTION = 0, 1
MANY_KEYS_FROM = 4
MANY_GROUPS_FROM = 8
MANY_TRANSACTIONS_FROM = 4

NOT_TOPIC: Final = errors.TOPIC_AUTHORIZATION_FAILED
NOT_GROUP: Final = errors.GROUP_AUTHORIZATION_FAILED
NOT_TRANSACTIONAL_ID: Final = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NOT_CLUSTER: Final = errors.CLUSTER_AUTHORIZATION_FAILED
DENIED: Final = "access is denied"


def may_group(call: Call, operation: Operation, group: str) -> bool:
    """Whether something may be done with a group."""
    return call.may(operation, ResourceKind.GROUP, group)


def may_transaction(call: Call, operation: Operation, transactional_id: str) -> bool:
    """Whether something may be done with the transactions of an id."""
    return call.may(operation, ResourceKind.TRANSACTIONAL_ID, transactional_id)


def _on_group(operation: Operation, refuse: Callable[[Any], Message]) -> Guard:
    return whole(lambda call, request: may_group(call, operation, request.group_id), refuse)


def _on_transaction(refuse: Callable[[Any], Message]) -> Guard:
    return whole(lambda call, request: may_transaction(call, Operation.WRITE, request.transactional_id), refuse)


async def _find_coordinator(call: Call, request: cluster_messages.FindCoordinatorRequest, handler: Handler) -> Any:
    may = {COORDINATED_GROUP: may_group, COORDINATED_TRANSACTION: may_transaction}.get(request.key_type)
    if may is None:
        return await handler(call, request)
    code = NOT_GROUP if request.key_type == COORDINATED_GROUP else NOT_TRANSACTIONAL_ID
    if call.version < MANY_KEYS_FROM:
        if may(call, Operation.DESCRIBE, request.key):
            return await handler(call, request)
        return cluster_messages.FindCoordinatorResponse(error_code=code, error_message=DENIED, node_id=-1, port=-1)
    denied = take_out(request, "coordinator_keys", lambda key: may(call, Operation.DESCRIBE, key))
    response = await handler(call, request)
    for key in denied:
        response.coordinators.append(
            cluster_messages.Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=DENIED)
        )
    return response


def _commit_refusal(code: int) -> Any:
    def refuse(topic: offset_messages.OffsetCommitRequestTopic) -> offset_messages.OffsetCommitResponseTopic:
        result = offset_messages.OffsetCommitResponsePartition
        partitions = [result(partition_index=requested.partition_index, error_code=code) for requested in topic.partitions]
        return offset_messages.OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=partitions)

    return refuse


def _commit_refused(request: offset_messages.OffsetCommitRequest) -> offset_messages.OffsetCommitResponse:
    return offset_messages.OffsetCommitResponse(topics=[_commit_refusal(NOT_GROUP)(topic) for topic in request.topics])


async def _offset_fetch(call: Call, request: offset_messages.OffsetFetchRequest, handler: Handler) -> Any:
    if call.version < MANY_GROUPS_FROM:
        return await _offset_fetch_one(call, request, handler)
    denied = take_out(request, "groups", lambda group: may_group(call, Operation.DESCRIBE, group.group_id))
    topics: dict[str, list[Any]] = {}
    for group in request.groups:
        if group.topics is not None:
            topics[group.group_id] = take_out(
                group, "topics", lambda topic: may_topic(call, Operation.DESCRIBE, topic_ref(topic))
            )
    response = await handler(call, request)
    for answered in response.groups:
        answered.topics = [topic for topic in answered.topics if may_topic(call, Operation.DESCRIBE, topic_ref(topic))]
        answered.topics += (_positions_refusal(topic) for topic in topics.get(answered.group_id, ()))
    response.groups += (
        offset_messages.OffsetFetchResponseGroup(group_id=group.group_id, error_code=NOT_GROUP) for group in denied
    )
    return response


async def _offset_fetch_one(call: Call, request: offset_messages.OffsetFetchRequest, handler: Handler) -> Any:
    if not may_group(call, Operation.DESCRIBE, request.group_id):
        return offset_messages.OffsetFetchResponse(error_code=NOT_GROUP)
    denied: list[Any] = []
    if request.topics is not None:
        denied = take_out(request, "topics", lambda topic: may_topic(call, Operation.DESCRIBE, topic.name))
    response = await handler(call, request)
    response.topics = [topic for topic in response.topics if may_topic(call, Operation.DESCRIBE, topic.name)]
    for topic in denied:
        result = offset_messages.OffsetFetchResponsePartition
        partitions = [
            result(partition_index=number, committed_offset=-1, error_code=NOT_TOPIC) for number in topic.partition_indexes
        ]
        response.topics.append(offset_messages.OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response


def _positions_refusal(topic: offset_messages.OffsetFetchRequestTopics) -> offset_messages.OffsetFetchResponseTopics:
    result = offset_messages.OffsetFetchResponsePartitions
    partitions = [result(partition_index=number, committed_offset=-1, error_code=NOT_TOPIC) for number in topic.partition_indexes]
    return offset_messages.OffsetFetchResponseTopics(topic_id=topic.topic_id, name=topic.name, partitions=partitions)


def _offset_delete_refusal(topic: offset_messages.OffsetDeleteRequestTopic) -> offset_messages.OffsetDeleteResponseTopic:
    result = offset_messages.OffsetDeleteResponsePartition
    partitions = [result(partition_index=requested.partition_index, error_code=NOT_TOPIC) for requested in topic.partitions]
    return offset_messages.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


def _with_operations(inner: Guard) -> Guard:
    """What may be done with the groups that are described, as far as the client wants to know."""

    async def guard(call: Call, request: Any, handler: Handler) -> Any:
        response = await inner(call, request, handler)
        for group in response.groups:
            if group.authorized_operations != NOT_ASKED:
                group.authorized_operations = allowed_operations(call, ResourceKind.GROUP, group.group_id)
        return response

    return guard


async def _consumer_group_heartbeat(
    call: Call, request: consumer_group_messages.ConsumerGroupHeartbeatRequest, handler: Handler
) -> Any:
    refusal = consumer_group_messages.ConsumerGroupHeartbeatResponse
    if not may_group(call, Operation.READ, request.group_id):
        return refusal(error_code=NOT_GROUP, error_message=DENIED)
    names = request.subscribed_topic_names or []
    if not all(may_topic(call, Operation.DESCRIBE, name) for name in names):
        return refusal(error_code=NOT_TOPIC, error_message=DENIED)
    return await handler(call, request)


async def _init_producer_id(call: Call, request: transaction_messages.InitProducerIdRequest, handler: Handler) -> Any:
    """An id without a transaction needs WRITE on any topic."""
    access = call.node.access
    refusal = transaction_messages.InitProducerIdResponse
    if request.transactional_id is not None:
        if not may_transaction(call, Operation.WRITE, request.transactional_id):
            return refusal(error_code=NOT_TRANSACTIONAL_ID, producer_epoch=-1)
    elif not may_cluster(call, Operation.IDEMPOTENT_WRITE) and not (
        access is None or access.allows_some(call.principal, call.peer.host, Operation.WRITE, ResourceKind.TOPIC)
    ):
        return refusal(error_code=NOT_CLUSTER, producer_epoch=-1)
    return await handler(call, request)


async def _add_partitions(call: Call, request: transaction_messages.AddPartitionsToTxnRequest, handler: Handler) -> Any:
    """All partitions of a transaction, or none."""
    response = transaction_messages.AddPartitionsToTxnResponse
    if call.version < MANY_TRANSACTIONS_FROM:
        topics = request.v3_and_below_topics
        results = _addition_refusal(call, request.v3_and_below_transactional_id, topics)
        return await handler(call, request) if results is None else response(results_by_topic_v3_and_below=results)
    refused = {
        transaction.transactional_id: results
        for transaction in request.transactions
        if (results := _addition_refusal(call, transaction.transactional_id, transaction.topics)) is not None
    }
    take_out(request, "transactions", lambda transaction: transaction.transactional_id not in refused)
    answer = await handler(call, request) if request.transactions else response()
    for transactional_id, results in refused.items():
        answer.results_by_transaction.append(
            transaction_messages.AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results)
        )
    return answer


def _addition_refusal(
    call: Call, transactional_id: str, topics: list[transaction_messages.AddPartitionsToTxnTopic]
) -> list[transaction_messages.AddPartitionsToTxnTopicResult] | None:
    """Why partitions cannot be added; None if they can be."""
    is_allowed = may_transaction(call, Operation.WRITE, transactional_id)
    may_write = {topic.name: may_topic(call, Operation.WRITE, topic.name) for topic in topics}
    if is_allowed and all(may_write.values()):
        return None
    results = []
    for topic in topics:
        code = errors.OPERATION_NOT_ATTEMPTED if may_write[topic.name] else NOT_TOPIC
        result = transaction_messages.AddPartitionsToTxnPartitionResult
        partitions = [
            result(partition_index=number, partition_error_code=code if is_allowed else NOT_TRANSACTIONAL_ID)
            for number in topic.partitions
        ]
        results.append(transaction_messages.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
    return results


def _txn_commit_refusal(code: int) -> Any:
    def refuse(topic: transaction_messages.TxnOffsetCommitRequestTopic) -> transaction_messages.TxnOffsetCommitResponseTopic:
        result = transaction_messages.TxnOffsetCommitResponsePartition
        partitions = [result(partition_index=requested.partition_index, error_code=code) for requested in topic.partitions]
        return transaction_messages.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)

    return refuse


def _txn_commit_refused(code: int) -> Any:
    def refuse(request: transaction_messages.TxnOffsetCommitRequest) -> transaction_messages.TxnOffsetCommitResponse:
        topics = [_txn_commit_refusal(code)(topic) for topic in request.topics]
        return transaction_messages.TxnOffsetCommitResponse(topics=topics)

    return refuse


def _may_commit_together(call: Call, request: private_messages.CommitTogetherRequest) -> bool:
    """Needs WRITE on the transactional id of each producer and of the application whose record is set."""
    names = [request.record_key, *(transaction.transactional_id for transaction in request.transactions)]
    return all(may_transaction(call, Operation.WRITE, name) for name in names)


GROUP_GUARDS: Final[dict[int, Guard]] = {
    keys.FIND_COORDINATOR: _find_coordinator,
    keys.OFFSET_COMMIT: both(_on_group(Operation.READ, _commit_refused), each_topic(Operation.READ, _commit_refusal(NOT_TOPIC))),
    keys.OFFSET_FETCH: _offset_fetch,
    keys.OFFSET_DELETE: both(
        _on_group(Operation.DELETE, lambda _: offset_messages.OffsetDeleteResponse(error_code=NOT_GROUP)),
        each_topic(Operation.READ, _offset_delete_refusal),
    ),
    keys.JOIN_GROUP: _on_group(Operation.READ, lambda _: group_messages.JoinGroupResponse(error_code=NOT_GROUP)),
    keys.SYNC_GROUP: _on_group(Operation.READ, lambda _: group_messages.SyncGroupResponse(error_code=NOT_GROUP)),
    keys.HEARTBEAT: _on_group(Operation.READ, lambda _: group_messages.HeartbeatResponse(error_code=NOT_GROUP)),
    keys.LEAVE_GROUP: _on_group(Operation.READ, lambda _: group_messages.LeaveGroupResponse(error_code=NOT_GROUP)),
    keys.DESCRIBE_GROUPS: _with_operations(
        each(
            "groups",
            "groups",
            lambda call, group: may_group(call, Operation.DESCRIBE, group),
            lambda group: group_messages.DescribedGroup(group_id=group, error_code=NOT_GROUP, error_message=DENIED),
        )
    ),
    keys.CONSUMER_GROUP_DESCRIBE: _with_operations(
        each(
            "group_ids",
            "groups",
            lambda call, group: may_group(call, Operation.DESCRIBE, group),
            lambda group: consumer_group_messages.DescribedGroup(group_id=group, error_code=NOT_GROUP, error_message=DENIED),
        )
    ),
    keys.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    keys.LIST_GROUPS: only(
        "groups",
        lambda call, group: may_cluster(call, Operation.DESCRIBE) or may_group(call, Operation.DESCRIBE, group.group_id),
    ),
    keys.DELETE_GROUPS: each(
        "groups_names",
        "results",
        lambda call, group: may_group(call, Operation.DELETE, group),
        lambda group: group_messages.DeletableGroupResult(group_id=group, error_code=NOT_GROUP),
    ),
    keys.INIT_PRODUCER_ID: _init_producer_id,
    keys.ADD_PARTITIONS_TO_TXN: _add_partitions,
    keys.ADD_OFFSETS_TO_TXN: both(
        _on_transaction(lambda _: transaction_messages.AddOffsetsToTxnResponse(error_code=NOT_TRANSACTIONAL_ID)),
        _on_group(Operation.READ, lambda _: transaction_messages.AddOffsetsToTxnResponse(error_code=NOT_GROUP)),
    ),
    keys.END_TXN: _on_transaction(lambda _: transaction_messages.EndTxnResponse(error_code=NOT_TRANSACTIONAL_ID)),
    keys.TXN_OFFSET_COMMIT: both(
        both(
            _on_transaction(_txn_commit_refused(NOT_TRANSACTIONAL_ID)),
            _on_group(Operation.READ, _txn_commit_refused(NOT_GROUP)),
        ),
        each_topic(Operation.READ, _txn_commit_refusal(NOT_TOPIC)),
    ),
    private_keys.COMMIT_TOGETHER: whole(
        _may_commit_together,
        lambda _: private_messages.CommitTogetherResponse(error_code=NOT_TRANSACTIONAL_ID, error_message=DENIED),
    ),
    private_keys.APPLICATION_RECORD: whole(
        lambda call, request: may_transaction(call, Operation.DESCRIBE, request.record_key),
        lambda _: private_messages.ApplicationRecordResponse(error_code=NOT_TRANSACTIONAL_ID, error_message=DENIED),
    ),
    keys.DESCRIBE_TRANSACTIONS: each(
        "transactional_ids",
        "transaction_states",
        lambda call, one: may_transaction(call, Operation.DESCRIBE, one),
        lambda one: transaction_messages.DescribeTransactionsTransactionState(
            transactional_id=one, error_code=NOT_TRANSACTIONAL_ID
        ),
    ),
    keys.LIST_TRANSACTIONS: only(
        "transaction_states", lambda call, one: may_transaction(call, Operation.DESCRIBE, one.transactional_id)
    ),
}
