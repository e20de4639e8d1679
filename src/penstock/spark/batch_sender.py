"""An idempotent producer for tasks: several requests in flight, each batch stored once however often it is sent.

Batches carry sequence numbers, so the broker detects duplicates. After a retriable error the responses of all later requests are
awaited, and what was not stored is sent again in order.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.kafka.client import (
    Address,
    BlockingClient,
    BlockingConnection,
    BrokerUnreachableError,
    RequestRefusedError,
    SentRequest,
    TopicInfo,
    TopicPartition,
)
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.spark.batch_building import ProduceBatch, with_sequence
from penstock.spark.errors import FencedTaskError
from penstock.spark.write_options import WriteOptions

IN_FLIGHT_MAX: Final = 5
REQUEST_BYTES: Final = 4 << 20
PRODUCE_VERSION_MAX: Final = 12  # newer ones name topics by id
PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0
ACKS_ALL: Final = -1

_FENCED: Final = frozenset(
    {errors.INVALID_PRODUCER_EPOCH, errors.PRODUCER_FENCED, errors.TRANSACTION_ABORTABLE, errors.INVALID_TXN_STATE}
)
_STORED: Final = frozenset({errors.NONE, errors.DUPLICATE_SEQUENCE_NUMBER})
# Consequences of an earlier batch that was not stored yet: retried.
_FOLLOW_UP_ERRORS: Final = frozenset({errors.OUT_OF_ORDER_SEQUENCE_NUMBER, errors.CONCURRENT_TRANSACTIONS})

_log = logging.getLogger(__name__)


class _InFlight(NamedTuple):
    """A request in flight."""

    connection: BlockingConnection
    sent: SentRequest
    batches: list[ProduceBatch]


class BatchSender:
    """Sends batches in order; `finish` waits until all are stored."""

    def __init__(self, client: BlockingClient, options: WriteOptions, transactional_id: str | None) -> None:
        self._client = client
        self._options = options
        self._transactional_id = transactional_id
        self._waiting: deque[ProduceBatch] = deque()
        self._waiting_bytes = 0
        self._in_flight: deque[_InFlight] = deque()
        self._sequences: dict[TopicPartition, int] = {}
        self._topics: dict[str, TopicInfo] = {}

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions of a topic, which the broker creates if it does so automatically."""
        if topic not in self._topics:
            self._topics[topic] = self._client.topic_to_write(topic)
        return len(self._topics[topic].leaders)

    def send(self, batches: Iterable[ProduceBatch]) -> None:
        """Queue batches for sending."""
        for batch in batches:
            sequence = self._sequences.get(batch.topic_partition, 0)
            self._sequences[batch.topic_partition] = (sequence + batch.rows) & 0x7FFFFFFF
            with_sequence(batch.data, sequence)
            self._waiting.append(batch)
            self._waiting_bytes += len(batch.data)
            while self._waiting_bytes >= REQUEST_BYTES:
                self._send_or_receive()

    def finish(self) -> None:
        """Wait until everything is stored."""
        while self._waiting or self._in_flight:
            self._send_or_receive()

    def _send_or_receive(self) -> None:
        """Send the next request or receive a response; retry with backoff until kafka.delivery.timeout.ms."""
        deadline = time.monotonic() + self._options.delivery_timeout_s
        pause = PAUSE_S
        while True:
            try:
                if self._waiting and len(self._in_flight) < IN_FLIGHT_MAX:
                    self._send_next()
                else:
                    self._receive_response()
                return
            except PenstockError as error:
                passing = _is_retriable(error.error_code) if isinstance(error, RequestRefusedError) else error.retriable
                self._requeue_in_flight(error)
                if not passing or time.monotonic() + pause >= deadline:
                    raise
                _log.info("retrying: %s", error)
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)
            self._topics = {name: self._client.topic_to_write(name) for name in self._topics}

    def _send_next(self) -> None:
        """Send one request to one leader, with at most one batch per partition, in queue order."""
        leader: Address | None = None
        chosen: dict[TopicPartition, ProduceBatch] = {}
        size = 0
        for batch in self._waiting:
            of_batch = self._leader(batch.topic_partition)
            leader = leader or of_batch
            if of_batch != leader or batch.topic_partition in chosen or (chosen and size + len(batch.data) > REQUEST_BYTES):
                break
            chosen[batch.topic_partition] = batch
            size += len(batch.data)
        assert leader is not None, "there is something to send"
        connection = self._client.connect(leader)
        sent = connection.send(
            keys.PRODUCE, self._request(chosen), version=connection.version_of(keys.PRODUCE, PRODUCE_VERSION_MAX)
        )
        for _ in chosen:
            self._waiting_bytes -= len(self._waiting.popleft().data)
        self._in_flight.append(_InFlight(connection, sent, list(chosen.values())))

    def _request(self, chosen: dict[TopicPartition, ProduceBatch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for topic_partition, batch in chosen.items():
            topic = topics.setdefault(topic_partition.topic, TopicProduceData(name=topic_partition.topic))
            topic.partition_data.append(PartitionProduceData(index=topic_partition.partition, records=memoryview(batch.data)))
        timeout_ms = int(self._options.client.request_timeout_s * 1000)
        return ProduceRequest(
            transactional_id=self._transactional_id, acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=list(topics.values())
        )

    def _receive_response(self) -> None:
        """Receive the response to the oldest request; RequestRefusedError if one of its batches was not stored."""
        connection, sent, batches = self._in_flight[0]
        answer = connection.receive(sent, ProduceResponse)
        codes = {
            TopicPartition(topic.name, response.index): (response.error_code, response.error_message)
            for topic in answer.responses
            for response in topic.partition_responses
        }
        self._in_flight.popleft()
        failed = [
            batch for batch in batches if codes.get(batch.topic_partition, (errors.UNKNOWN_SERVER_ERROR, ""))[0] not in _STORED
        ]
        if not failed:
            return
        self._in_flight.appendleft(_InFlight(connection, sent, failed))
        code, reason = codes.get(failed[0].topic_partition, (errors.UNKNOWN_SERVER_ERROR, "it is not in the answer"))
        if code in _FENCED and self._transactional_id is not None:
            raise FencedTaskError(
                f"the transaction of this task is over ({errors.error_name(code)}): another attempt has taken its place, or it "
                "took longer than transactionTimeoutMs"
            )
        raise RequestRefusedError(f"the rows for {failed[0].topic_partition} were not stored", code, reason or "")

    def _requeue_in_flight(self, error: PenstockError) -> None:
        """Put what is in flight and not acknowledged back into the queue, in order."""
        unsure: list[ProduceBatch] = []
        for number, (connection, sent, batches) in enumerate(self._in_flight):
            is_answered = number == 0 or isinstance(error, BrokerUnreachableError)  # or will never be
            unsure += batches if is_answered else self._unacknowledged(connection, sent, batches)
        self._in_flight.clear()
        self._waiting.extendleft(reversed(unsure))
        self._waiting_bytes += sum(len(batch.data) for batch in unsure)
        # Stale responses may be left on the connections.
        self._client.close()

    def _unacknowledged(
        self, connection: BlockingConnection, sent: SentRequest, batches: list[ProduceBatch]
    ) -> list[ProduceBatch]:
        """Return the batches of a later request that were not stored; all of them if its response is lost."""
        try:
            answer = connection.receive(sent, ProduceResponse)
        except PenstockError:
            return batches
        stored = {
            TopicPartition(topic.name, response.index)
            for topic in answer.responses
            for response in topic.partition_responses
            if response.error_code in _STORED
        }
        return [batch for batch in batches if batch.topic_partition not in stored]

    def _leader(self, topic_partition: TopicPartition) -> Address:
        leader = self._topics[topic_partition.topic].leaders.get(topic_partition.partition)
        if leader is None:
            raise RequestRefusedError(f"partition {topic_partition}", errors.LEADER_NOT_AVAILABLE)
        return leader


def _is_retriable(code: int) -> bool:
    return errors.is_retriable(code) or code in _FOLLOW_UP_ERRORS
