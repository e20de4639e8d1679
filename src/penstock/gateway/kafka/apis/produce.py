"""Produce: batches into partitions. Runs without a task of its own: batches are queued at once, in order, and the last one that
is stored answers for all."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.protocol import errors
from penstock.gateway.kafka.protocol.fields import Splice
from penstock.gateway.kafka.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.gateway.kafka.reply import Call
from penstock.queue import InvalidBatchError, Partition, WriteResult

NO_ACKS = 0
ACKS = frozenset({-1, NO_ACKS, 1})
BY_ID_FROM = 13

_ATTRIBUTES = slice(21, 23)
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class TransactionsNotServedError(InvalidRequestError):
    """A batch of a transaction, which this version does not serve."""

    code = "transactions_not_served"


class _Write(NamedTuple):
    """A batch on its way: where its outcome goes."""

    response: PartitionProduceResponse
    partition: Partition
    stored: asyncio.Future[WriteResult]


def produce(call: Call) -> None:
    """Queue every batch of a request; it is answered when all are stored or refused."""
    request = call.request.body
    assert isinstance(request, ProduceRequest)
    _Produce(call, request).start()


class _Produce:
    """One request under way."""

    __slots__ = ("_call", "_left", "_request", "_response", "_writes")

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._request = request
        self._response = ProduceResponse()
        self._writes: list[_Write] = []
        self._left = 0

    def start(self) -> None:
        call, request = self._call, self._request
        by_id = call.version >= BY_ID_FROM
        for topic in request.topic_data:
            answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._response.responses.append(answered)
            ref = topic.topic_id if by_id else topic.name
            for data in topic.partition_data:
                answered.partition_responses.append(self._begin(ref, data))
        throttle_ms = call.node.broker.quotas.draw("produce", call.client_id, call.cost)
        if throttle_ms:
            self._response.throttle_time_ms = throttle_ms
            call.peer.mute(throttle_ms / 1000)
        self._left = len(self._writes)
        if not self._left:
            self._answer()
            return
        call.deadline = call.node.clock.monotonic() + max(request.timeout_ms, 1) / 1000
        call.expire = self._expire
        for write in self._writes:
            write.stored.add_done_callback(self._stored)

    def _begin(self, ref: str | bytes, data: PartitionProduceData) -> PartitionProduceResponse:
        """Queue one batch."""
        response = PartitionProduceResponse(index=data.index, base_offset=-1)
        broker = self._call.node.broker
        try:
            if self._request.acks not in ACKS:
                response.error_code = errors.INVALID_REQUIRED_ACKS
                return response
            topic = find_topic(self._call.node, ref)
            partition = broker.partition(topic, data.index)
            records = data.records
            if records is None or isinstance(records, Splice):
                raise InvalidBatchError("there is no batch for the partition")
            _check_kind(int.from_bytes(records[_ATTRIBUTES], "big"))
            stored, append_time_ms = broker.begin_produce(topic, partition, records)
        except PenstockError as error:
            _set_error(response, error)
        else:
            response.log_append_time_ms = append_time_ms
            self._writes.append(_Write(response, partition, stored))
        return response

    def _stored(self, stored: asyncio.Future[WriteResult]) -> None:
        self._left -= 1
        if not self._left:
            if self._call.buffers is None:
                self._answer()
            else:
                # It was answered when its time was up; now its bytes are free as well.
                self._call.node.memory.give(self._call.cost)

    def _expire(self) -> None:
        """It takes longer than the client waits. What was queued may yet be stored."""
        self._call.node.memory.take(self._call.cost)
        self._answer()

    def _answer(self) -> None:
        for response, partition, stored in self._writes:
            if not stored.done():
                response.error_code = errors.REQUEST_TIMED_OUT
                continue
            error = None if stored.cancelled() else stored.exception()
            if isinstance(error, PenstockError):
                _set_error(response, error)
            elif error is not None or stored.cancelled():
                response.error_code = errors.UNKNOWN_SERVER_ERROR
            else:
                _set_result(response, partition, stored.result())
        if self._request.acks != NO_ACKS:
            self._call.answer(self._response)
        elif any(one.error_code for topic in self._response.responses for one in topic.partition_responses):
            # Closing the connection is the only way to tell a client that does not listen.
            self._call.hang_up()
        else:
            self._call.answer_nothing()


def _check_kind(attributes: int) -> None:
    if attributes & _CONTROL:
        raise InvalidBatchError("control batches are written by brokers, not by clients")
    if attributes & _TRANSACTIONAL:
        raise TransactionsNotServedError("transactions are not served by this version; produce without a transactional id")


def _set_result(response: PartitionProduceResponse, partition: Partition, result: WriteResult) -> None:
    response.base_offset = result.base_offset
    response.log_start_offset = partition.start_offset
    if result.base_offset < 0:
        # Stored before, but too long ago to know where; clients take it as stored.
        response.error_code = errors.DUPLICATE_SEQUENCE_NUMBER


def _set_error(response: PartitionProduceResponse, error: PenstockError) -> None:
    response.error_code = errors.INVALID_TXN_STATE if isinstance(error, TransactionsNotServedError) else topic_code(error)
    response.error_message = str(error)
    response.base_offset = -1
    response.log_append_time_ms = -1
