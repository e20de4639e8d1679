"""DescribeTransactions and ListTransactions: which transactions there are, and how they stand."""

from __future__ import annotations

import re
from uuid import UUID

from penstock.broker import UnknownTopicError
from penstock.broker.transactions import Transaction, TransactionState
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    TopicData,
)

STATES = frozenset(state.value for state in TransactionState)


async def describe_transactions(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """The state of each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(call.node, transactional_id) for transactional_id in request.transactional_ids]
    )


async def list_transactions(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Every transactional id that all filters let pass."""
    response = ListTransactionsResponse(unknown_state_filters=[state for state in request.state_filters if state not in STATES])
    pattern: re.Pattern[str] | None = None
    try:
        if request.transactional_id_pattern:
            pattern = re.compile(request.transactional_id_pattern)
    except re.error:
        response.error_code = errors.INVALID_REGULAR_EXPRESSION
        return response
    now_ms = int(call.node.clock.wall() * 1000)
    for transaction in call.node.coordinator.transactions.transactions():
        if _passes(transaction, request, pattern, now_ms):
            listed = ListTransactionsTransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.value,
            )
            response.transaction_states.append(listed)
    return response


def _passes(transaction: Transaction, request: ListTransactionsRequest, pattern: re.Pattern[str] | None, now_ms: int) -> bool:
    if request.state_filters and transaction.state.value not in request.state_filters:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter >= 0 and (
        transaction.started_ms < 0 or now_ms - transaction.started_ms <= request.duration_filter
    ):
        return False
    return pattern is None or pattern.fullmatch(transaction.transactional_id) is not None


def _describe(node: Node, transactional_id: str) -> DescribeTransactionsTransactionState:
    response = DescribeTransactionsTransactionState(transactional_id=transactional_id)
    try:
        transaction = node.coordinator.transactions.transaction(transactional_id)
    except PenstockError:
        response.error_code = errors.TRANSACTIONAL_ID_NOT_FOUND
        return response
    response.transaction_state = transaction.state.value
    response.transaction_timeout_ms = transaction.timeout_ms
    response.transaction_start_time_ms = transaction.started_ms
    response.producer_id, response.producer_epoch = transaction.producer_id, transaction.epoch
    by_topic: dict[UUID, list[int]] = {}
    for queue in sorted(transaction.queues):
        by_topic.setdefault(queue.topic_id, []).append(queue.partition)
    for topic_id, numbers in by_topic.items():
        name = _topic_name(node, topic_id)
        if name is not None:
            response.topics.append(TopicData(topic=name, partitions=numbers))
    response.topics.sort(key=lambda topic: topic.topic)
    return response


def _topic_name(node: Node, topic_id: UUID) -> str | None:
    """The name of a topic; None if it was deleted while the transaction was running."""
    try:
        return node.broker.catalog.topic_by_id(topic_id).name
    except UnknownTopicError:
        return None
