"""Sending batches from a task: several requests on their way at a time, each batch stored once however often it is sent.

Batches of a partition are numbered, so the broker takes what is sent again for what it is. Whenever something fails that may
pass, all that was sent after it is awaited, and then sent again in order.
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
# These follow from a batch before that was not stored, and go away when it is.
_PASSING: Final = frozenset({errors.OUT_OF_ORDER_SEQUENCE_NUMBER, errors.CONCURRENT_TRANSACTIONS})

_log = logging.getLogger(__name__)


class _InFlight(NamedTuple):
    """A request on its way."""

    connection: BlockingConnection
    sent: SentRequest
    batches: list[ProduceBatch]


class BatchSender:
    """Sends batches in the order in which they are given; `finish` waits until all are stored."""

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
        """How many partitions a topic has; one that is not there is made if the broker does so."""
        if topic not in self._topics:
            self._topics[topic] = self._client.topic_to_write(topic)
        return len(self._topics[topic].leaders)

    def send(self, batches: Iterable[ProduceBatch]) -> None:
        """Send some batches, sooner or later."""
        for batch in batches:
            sequence = self._sequences.get(batch.topic_partition, 0)
            self._sequences[batch.topic_partition] = (sequence + batch.rows) & 0x7FFFFFFF
            with_sequence(batch.data, sequence)
            self._waiting.append(batch)
            self._waiting_bytes += len(batch.data)
            while self._waiting_bytes >= REQUEST_BYTES:
                self._go_on()

    def finish(self) -> None:
        """Until everything is stored."""
        while self._waiting or self._in_flight:
            self._go_on()

    def _go_on(self) -> None:
        """Send what can be sent, or wait for an answer; after a failure, try again while there is time."""
        deadline = time.monotonic() + self._options.delivery_timeout_s
        pause = PAUSE_S
        while True:
            try:
                if self._waiting and len(self._in_flight) < IN_FLIGHT_MAX:
                    self._send_next()
                else:
                    self._take_answer()
                return
            except PenstockError as error:
                passing = _may_pass(error.error_code) if isinstance(error, RequestRefusedError) else error.retriable
                self._take_back(error)
                if not passing or time.monotonic() + pause >= deadline:
                    raise
                _log.info("sending again: %s", error)
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)
            self._topics = {name: self._client.topic_to_write(name) for name in self._topics}

    def _send_next(self) -> None:
        """One request to one leader: a batch a partition at most, in the order of the queue."""
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

    def _take_answer(self) -> None:
        """The answer to the oldest request; RequestRefusedError if a batch of it is not stored."""
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

    def _take_back(self, error: PenstockError) -> None:
        """Everything that is on its way and not known to be stored is to be sent again, in order."""
        unsure: list[ProduceBatch] = []
        for number, (connection, sent, batches) in enumerate(self._in_flight):
            is_answered = number == 0 or isinstance(error, BrokerUnreachableError)  # or will never be
            unsure += batches if is_answered else self._unstored(connection, sent, batches)
        self._in_flight.clear()
        self._waiting.extendleft(reversed(unsure))
        self._waiting_bytes += sum(len(batch.data) for batch in unsure)
        # Answers may be left on them that belong to nobody now.
        self._client.close()

    def _unstored(self, connection: BlockingConnection, sent: SentRequest, batches: list[ProduceBatch]) -> list[ProduceBatch]:
        """What of a later request is not stored; if that cannot be told any more, all of it."""
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


def _may_pass(code: int) -> bool:
    return errors.is_retriable(code) or code in _PASSING
