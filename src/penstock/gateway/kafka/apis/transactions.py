"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit: what a transactional producer asks of its coordinator."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker import Position, TopicPartition, UnknownTopicError
from penstock.broker.transactions import V1 as TRANSACTIONS_V1
from penstock.broker.transactions import V2 as TRANSACTIONS_V2
from penstock.broker.transactions import ConcurrentTransactionsError, Producer
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic
from penstock.gateway.kafka.apis.transaction_codes import COMMIT_ABORTABLE_FROM, coordinator_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import code_of
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FENCED_FROM = 2
MANY_FROM = 4
VERIFY_ABORTABLE_FROM = 5
NEXT_EPOCH_FROM = 5
ADDS_GROUP_FROM = 5
METADATA_MAX = 4096

Place = tuple[str, int]
"""A partition by the name of its topic."""


async def add_partitions_to_txn(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Make partitions part of a transaction, all of them or none; or, from version 4 on, only say whether they are."""
    response = AddPartitionsToTxnResponse()
    if call.version < MANY_FROM:
        requested = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        response.results_by_topic_v3_and_below = _results(await _add_partitions(call, requested))
        return response
    for requested in request.transactions:
        codes = _verify(call, requested) if requested.verify_only else await _add_partitions(call, requested)
        result = AddPartitionsToTxnResult(transactional_id=requested.transactional_id, topic_results=_results(codes))
        response.results_by_transaction.append(result)
    return response


async def add_offsets_to_txn(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Make positions of a group part of a transaction."""
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        if not request.group_id:
            return AddOffsetsToTxnResponse(error_code=errors.INVALID_GROUP_ID)
        await call.node.coordinator.transactions.add(request.transactional_id, producer, groups=frozenset({request.group_id}))
    except PenstockError as error:
        return AddOffsetsToTxnResponse(error_code=coordinator_code(error, tells_fenced=call.version >= FENCED_FROM))
    return AddOffsetsToTxnResponse()


async def end_txn(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort."""
    producer = Producer(request.producer_id, request.producer_epoch)
    version = TRANSACTIONS_V2 if call.version >= NEXT_EPOCH_FROM else TRANSACTIONS_V1
    try:
        owner = await call.node.coordinator.transactions.end(
            request.transactional_id, producer, commit=request.committed, version=version
        )
    except PenstockError as error:
        return EndTxnResponse(error_code=coordinator_code(error, tells_fenced=call.version >= FENCED_FROM))
    return EndTxnResponse(producer_id=owner.id, producer_epoch=owner.epoch)


async def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Set positions of a group as part of a transaction: all that can be set."""
    accepted: list[tuple[TopicPartition, Position]] = []
    waiting: list[TxnOffsetCommitResponsePartition] = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        answered = TxnOffsetCommitResponseTopic(name=topic.name)
        response.topics.append(answered)
        for requested in topic.partitions:
            outcome = TxnOffsetCommitResponsePartition(partition_index=requested.partition_index)
            answered.partitions.append(outcome)
            try:
                accepted.append((_queue(call.node, (topic.name, requested.partition_index)), _position(requested)))
                waiting.append(outcome)
            except PenstockError as error:
                is_too_long = isinstance(error, _MetadataTooLongError)
                outcome.error_code = errors.OFFSET_METADATA_TOO_LARGE if is_too_long else code_of(error)
    code = await _set_positions(call, request, accepted)
    for outcome in waiting:
        outcome.error_code = code
    return response


async def _set_positions(call: Call, request: TxnOffsetCommitRequest, positions: list[tuple[TopicPartition, Position]]) -> int:
    broker = call.node.coordinator
    producer = Producer(request.producer_id, request.producer_epoch)
    if not request.group_id:
        return errors.INVALID_GROUP_ID
    try:
        broker.groups.check_commit(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id, in_transaction=True
        )
    except PenstockError as error:
        return code_of(error)
    try:
        await broker.transactions.set_positions(
            request.transactional_id,
            producer,
            request.group_id,
            positions,
            adds_group=call.version >= ADDS_GROUP_FROM,
        )
    except ConcurrentTransactionsError:
        return errors.CONCURRENT_TRANSACTIONS if call.version >= ADDS_GROUP_FROM else errors.COORDINATOR_LOAD_IN_PROGRESS
    except PenstockError as error:
        return coordinator_code(error, tells_fenced=False, tells_abortable=call.version >= COMMIT_ABORTABLE_FROM)
    return errors.NONE


class _MetadataTooLongError(InvalidRequestError):
    """More is to be kept with a position than can be."""

    code = "metadata_too_long"


def _position(requested: TxnOffsetCommitRequestPartition) -> Position:
    if requested.committed_offset < 0:
        raise InvalidRequestError(f"a position is an offset, not {requested.committed_offset}")
    metadata = requested.committed_metadata or ""
    if len(metadata.encode()) > METADATA_MAX:
        raise _MetadataTooLongError(f"the metadata of a position has at most {METADATA_MAX} bytes")
    return Position(requested.committed_offset, requested.committed_leader_epoch, metadata)


async def _add_partitions(call: Call, requested: AddPartitionsToTxnTransaction) -> dict[Place, int]:
    """The outcome for each partition."""
    places = _places(requested.topics)
    queues: list[TopicPartition] = []
    codes: dict[Place, int] = {}
    for place in places:
        try:
            queues.append(_queue(call.node, place))
        except PenstockError as error:
            codes[place] = code_of(error)
    if codes:
        # Of partitions that belong together, none is added where some cannot be.
        return {place: codes.get(place, errors.OPERATION_NOT_ATTEMPTED) for place in places}
    producer = Producer(requested.producer_id, requested.producer_epoch)
    try:
        await call.node.coordinator.transactions.add(requested.transactional_id, producer, queues=frozenset(queues))
    except PenstockError as error:
        return dict.fromkeys(places, coordinator_code(error, tells_fenced=call.version >= FENCED_FROM))
    return dict.fromkeys(places, errors.NONE)


def _verify(call: Call, requested: AddPartitionsToTxnTransaction) -> dict[Place, int]:
    producer = Producer(requested.producer_id, requested.producer_epoch)
    codes: dict[Place, int] = {}
    for place in _places(requested.topics):
        try:
            call.node.coordinator.transactions.check_write(requested.transactional_id, producer, _queue(call.node, place))
            codes[place] = errors.NONE
        except UnknownTopicError:
            codes[place] = errors.INVALID_TXN_STATE
        except PenstockError as error:
            codes[place] = coordinator_code(error, tells_abortable=call.version >= VERIFY_ABORTABLE_FROM)
    return codes


def _queue(node: Node, place: Place) -> TopicPartition:
    name, number = place
    topic = find_topic(node, name)
    if not 0 <= number < topic.partitions:
        raise UnknownTopicError(f"topic {name!r} has no partition {number}")
    return TopicPartition(topic.id, number)


def _places(topics: Iterable[AddPartitionsToTxnTopic]) -> list[Place]:
    return [(topic.name, number) for topic in topics for number in topic.partitions]


def _results(codes: dict[Place, int]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, number), code in codes.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code))
    return list(topics.values())
