"""Produce: batches into partitions. It runs without a task: batches are queued at once, in order, and the last one that is stored
completes the response. Requests of the common shape do not come here: `plain_produce` serves them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from penstock.blob import Buffer
from penstock.broker import (
    Operation,
    PartitionUnavailableError,
    RefusedRecordsError,
    ResourceKind,
    TopicPartition,
    UnknownTopicError,
)
from penstock.broker.quotas import PRODUCE_QUOTA
from penstock.broker.transactions import NotInTransactionError, Producer
from penstock.core.errors import PenstockError
from penstock.core.record_compression import ZSTD
from penstock.core.record_format import CODEC_MASK, CONTROL, HEADER_SIZE, KIND_BYTE, ORIGIN_BYTE, PRODUCER_AT, TRANSACTIONAL
from penstock.gateway.kafka.apis.transaction_codes import produce_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.cluster_view import TransactionalWrite
from penstock.gateway.kafka.leader_hints import addresses_of, leader_hint
from penstock.gateway.kafka.security.authorization import may_topic
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.fields import Splice
from penstock.kafka.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.queue import InvalidBatchError, KeylessRecordError, Partition, TransactionGuard, UnsupportedCodecError, WriteResult

if TYPE_CHECKING:
    from penstock.gateway.kafka.node import Node

NO_ACKS = 0
ACKS = frozenset({-1, NO_ACKS, 1})
BY_ID_FROM = 13
ZSTD_FROM = 7

ADDS_PARTITIONS_FROM = 12  # producers of these versions leave it to the broker to make a partition part of a transaction

_PRODUCER = Struct(">qh")


class PendingWrite:
    """A batch in flight to a partition, and the response that gets its outcome."""

    __slots__ = ("_call", "_partition", "is_settled", "response")

    def __init__(self, call: ProduceCall, response: PartitionProduceResponse, partition: Partition) -> None:
        self._call = call
        self._partition = partition
        self.response = response
        self.is_settled = False

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.is_settled

    def set_result(self, result: WriteResult, /) -> None:
        """The batch is stored."""
        response = self.response
        response.base_offset = result.base_offset
        response.log_start_offset = self._partition.start_offset
        if result.base_offset < 0:
            # A duplicate of a batch whose offset is no longer known; clients treat it as stored.
            response.error_code = errors.DUPLICATE_SEQUENCE_NUMBER
        self.is_settled = True
        self._call.settled()

    def set_exception(self, exception: PenstockError, /) -> None:
        """The batch was refused, or may not be stored."""
        _set_error(self.response, exception, produce_code(exception, self._call.version))
        self._call.is_refused = True
        self.is_settled = True
        self._call.settled()


class ProduceCall(Call):
    """One Produce request."""

    __slots__ = ("_deadline", "_left", "_needs_reply", "_writes")

    def start(self) -> None:
        request = self.request.body
        assert isinstance(request, ProduceRequest)
        self.response = response = ProduceResponse()
        self._needs_reply = request.acks != NO_ACKS
        self._writes: list[PendingWrite] = []
        self._left = 1  # this method itself, so that nothing is answered before all is queued
        by_id = self.version >= BY_ID_FROM
        refusal = errors.NONE if request.acks in ACKS else errors.INVALID_REQUIRED_ACKS
        for topic in request.topic_data:
            answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(answered)
            ref = topic.topic_id if by_id else topic.name
            code = refusal if self.node.access is None else refusal or self._forbidden(request.transactional_id, ref)
            for data in topic.partition_data:
                outcome = PartitionProduceResponse(index=data.index, base_offset=-1)
                answered.partition_responses.append(outcome)
                if code:
                    outcome.error_code = code
                    self.is_refused = True
                else:
                    self._begin(ref, data, outcome)
        if self.node.broker.quotas.limits_produce:
            self._throttle(response)
        self._deadline = self.peer.active_at + request.timeout_ms / 1000
        self.settled()

    def settled(self) -> None:
        """The outcome of a batch is known; with that of the last, the answer is complete."""
        self._left -= 1
        if self._left:
            return
        if self.is_done:
            # It was answered when its time was up. Now its bytes are free as well.
            self.node.memory.give(self.cost)
            return
        self._writes.clear()
        if self.is_refused and isinstance(self.response, ProduceResponse):
            add_hints(self.node, self.response)
        self._finish()

    def give_up(self, now: float) -> None:
        """It takes longer than the client waits. What is queued will be stored all the same, if it can be."""
        if now < self._deadline:
            return
        self.node.memory.take(self.cost)
        self.is_refused = True
        for write in self._writes:
            if not write.is_settled:
                # From here on the outcome goes to a response that is never sent.
                late, write.response = write.response, PartitionProduceResponse()
                late.error_code = errors.REQUEST_TIMED_OUT
        self._finish()

    def _begin(self, ref: str | bytes, data: PartitionProduceData, outcome: PartitionProduceResponse) -> None:
        """Queue one batch."""
        broker = self.node.broker
        try:
            route = broker.route(ref, data.index)
            records = data.records
            if records is None or isinstance(records, Splice):
                raise InvalidBatchError("there is no batch for the partition")
            if len(records) > KIND_BYTE and records[ORIGIN_BYTE]:
                raise InvalidBatchError("the batch has attributes that Kafka does not define; send it without them")
            admit = None
            kind = records[KIND_BYTE] if len(records) > KIND_BYTE else 0
            if kind & CODEC_MASK == ZSTD and self.version < ZSTD_FROM:
                raise UnsupportedCodecError(f"zstd needs Produce version {ZSTD_FROM}, and this is version {self.version}")
            if kind & (CONTROL | TRANSACTIONAL):
                producer = _producer_of(records)
                if self.version >= ADDS_PARTITIONS_FROM or self.node.view.transaction_gate is not None:
                    self._begin_registered(ref, data.index, records, outcome, producer)
                    return
                admit = self._admission(producer, TopicPartition(route.topic.id, data.index))
                admit()
            write = PendingWrite(self, outcome, route.partition)
            append_time_ms = broker.begin_produce(route, records, write, from_client=True, admit=admit)
            if not outcome.error_code:
                outcome.log_append_time_ms = append_time_ms
        except PenstockError as error:
            self.is_refused = True
            is_unknown_id = isinstance(error, UnknownTopicError) and isinstance(ref, bytes)
            _set_error(outcome, error, errors.UNKNOWN_TOPIC_ID if is_unknown_id else produce_code(error, self.version))
            return
        self._left += 1
        self._writes.append(write)

    @property
    def _transactional_id(self) -> str | None:
        request = self.request.body
        assert isinstance(request, ProduceRequest)
        return request.transactional_id

    def _admission(self, producer: Producer, queue: TopicPartition) -> Callable[[], None]:
        """Returns a check that raises unless the producer may write to a partition in its transaction."""
        return partial(self.node.coordinator.transactions.check_write, self._transactional_id, producer, queue)

    def _begin_registered(
        self, ref: str | bytes, number: int, records: Buffer, outcome: PartitionProduceResponse, producer: Producer
    ) -> None:
        """Queues one batch once its partition is part of the transaction; most often it is already."""
        broker = self.node.broker
        route = broker.route(ref, number)
        write = PendingWrite(self, outcome, route.partition)
        self._left += 1
        self._writes.append(write)
        queue = TopicPartition(route.topic.id, number)
        gate = self.node.view.transaction_gate
        partition = route.partition
        # In a cluster the marker ends the guard, whichever node's coordinator sends it. A node that is alone asks its own again.
        guard = partition.ends.guard(producer.id)
        admit = self._admission(producer, queue) if gate is None else partial(_check_guard, guard)

        def registered(trouble: PenstockError | None) -> None:
            try:
                if trouble is not None:
                    raise trouble
                route = broker.route(ref, number)
                if route.partition is not partition:
                    raise PartitionUnavailableError("the partition was moved while the batch was on its way; send it again")
                if gate is not None:
                    admit()
                append_time_ms = broker.begin_produce(route, records, write, from_client=True, admit=admit)
                if not write.response.error_code:
                    write.response.log_append_time_ms = append_time_ms
            except PenstockError as error:
                write.set_exception(error)

        if gate is None:
            self.node.coordinator.transactions.register(self._transactional_id, producer, queue, registered)
        else:
            adds = self.version >= ADDS_PARTITIONS_FROM
            is_open = partition.open_transaction(producer.id) is not None and not partition.ends.is_ending(producer.id)
            gate.admit(TransactionalWrite(self._transactional_id, producer, queue, adds, is_open), registered)

    def _forbidden(self, transactional_id: str | None, topic: str | bytes) -> int:
        """Returns the error code of the access rules; NONE if the client may write to the topic."""
        if transactional_id is not None and not self.may(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id):
            return errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return errors.NONE if may_topic(self, Operation.WRITE, topic) else errors.TOPIC_AUTHORIZATION_FAILED

    def _throttle(self, response: ProduceResponse) -> None:
        delay_ms = self.node.broker.quotas.draw(PRODUCE_QUOTA, self.user, self.client_id, self.cost)
        if delay_ms:
            response.throttle_time_ms = delay_ms
            self.peer.mute(delay_ms / 1000)

    def _finish(self) -> None:
        response = self.response
        assert isinstance(response, ProduceResponse)
        if self._needs_reply:
            self.answer(response)
        elif any(partition.error_code for topic in response.responses for partition in topic.partition_responses):
            # With acks=0 closing the connection is the only way to report an error.
            self.hang_up()
        else:
            self.answer(None)


def add_hints(node: Node, response: ProduceResponse) -> None:
    """Tells a client where partitions are led that it should not have sent to this node."""
    hints = []
    for topic in response.responses:
        for partition in topic.partition_responses:
            hint = leader_hint(node, topic.name or topic.topic_id, partition.index, partition.error_code)
            if hint is not None:
                partition.current_leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.epoch)
                hints.append(hint)
    response.node_endpoints = [
        NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack or None)
        for broker in addresses_of(node, hints)
    ]


def _check_guard(guard: TransactionGuard) -> None:
    if guard.is_ended:
        raise NotInTransactionError("the transaction has ended while the batch was on its way")


def _producer_of(records: Buffer) -> Producer:
    """Returns the producer id and epoch of a transactional batch."""
    if records[KIND_BYTE] & CONTROL:
        raise InvalidBatchError("control batches are written by brokers, not by clients")
    if len(records) < HEADER_SIZE:
        raise InvalidBatchError(f"{len(records)} bytes are no record batch")
    return Producer(*_PRODUCER.unpack_from(records, PRODUCER_AT))


def _set_error(outcome: PartitionProduceResponse, error: PenstockError, code: int) -> None:
    outcome.error_code = code
    outcome.error_message = str(error)
    outcome.base_offset = outcome.log_append_time_ms = -1
    outcome.record_errors = record_errors_of(error)


def record_errors_of(error: PenstockError | None) -> list[BatchIndexAndErrorMessage]:
    """Returns which messages of a batch are at fault, so that clients tell them from those that were merely in the same batch."""
    if isinstance(error, RefusedRecordsError):
        return [BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why) for number, why in error.faults]
    if not isinstance(error, KeylessRecordError):
        return []
    why = "the message has no key, and the topic is compacted"
    return [BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why) for number in error.records]
