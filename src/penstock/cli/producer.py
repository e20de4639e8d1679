"""Writing messages to a topic: partitions chosen as Kafka's own clients do, each message stored once however often it is sent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.kafka_client import CommandClient
from penstock.cli.message_input import MessageDraft
from penstock.cli.record_batch import NO_SOURCE, Record, Source, encode_batch
from penstock.core.errors import PenstockError
from penstock.core.key_hash import partition_of_key
from penstock.kafka.client import BrokerUnreachableError, RequestRefusedError, is_retriable
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.kafka.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse

BATCH_BYTES: Final = 256 << 10
ALL_IN_SYNC: Final = -1
RETRY_PAUSE_S: Final = 0.1
SEQUENCE_MAX: Final = (1 << 31) - 1
_RECORD_OVERHEAD: Final = 32

Waiting = dict[int, deque[list[Record]]]


class Producer:
    """Writes to one topic. What was sent and not acknowledged is sent again under the same sequence number."""

    def __init__(self, client: CommandClient, name: str) -> None:
        self._client = client
        self._name = name
        self._topic = client.topic(name, create=True)
        self._source = self._introduce()
        self._sequences: dict[int, int] = {}
        self._sticky = 0
        self.written: dict[int, int] = {}
        "Acknowledged messages by partition."
        self.bytes = 0

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self._topic.partitions)

    def send(self, drafts: Iterable[MessageDraft]) -> None:
        """Write some messages; they are stored when this returns."""
        waiting = self._batches(drafts)
        deadline = time.monotonic() + self._client.timeout_s
        while waiting:
            failure = self._round(waiting)
            if failure is None:
                deadline = time.monotonic() + self._client.timeout_s
                continue
            if time.monotonic() + RETRY_PAUSE_S >= deadline:
                raise failure
            time.sleep(RETRY_PAUSE_S)
            self._topic = self._client.topic(self._name)

    def _batches(self, drafts: Iterable[MessageDraft]) -> Waiting:
        now_ms = int(time.time() * 1000)
        waiting: Waiting = {}
        sizes: dict[int, int] = {}
        for draft in drafts:
            number = self._partition(draft)
            size = len(draft.key or b"") + len(draft.value or b"") + _RECORD_OVERHEAD
            batches = waiting.setdefault(number, deque())
            if not batches or sizes[number] + size > BATCH_BYTES:
                batches.append([])
                sizes[number] = 0
            stamp = now_ms if draft.timestamp_ms is None else draft.timestamp_ms
            batches[-1].append(Record(0, stamp, draft.key, draft.value, draft.headers))
            sizes[number] += size
        # What has no key stays together for a while: fewer, larger batches.
        self._sticky = (self._sticky + 1) % self.partitions
        return waiting

    def _partition(self, draft: MessageDraft) -> int:
        if draft.partition is not None:
            if draft.partition >= self.partitions:
                raise usage(f"topic {self._name!r} has partitions 0..{self.partitions - 1}, not {draft.partition}")
            return draft.partition
        if draft.key is not None:
            return partition_of_key(draft.key, self.partitions)
        return self._sticky

    def _round(self, waiting: Waiting) -> PenstockError | None:
        """Send the first batch of every partition, to each leader at once. The failure, if one may pass."""
        leaders = {item.partition_index: item.leader_id for item in self._topic.partitions}
        failure: PenstockError | None = None
        for leader in sorted({leaders[number] for number in waiting}):
            numbers = [number for number in waiting if leaders[number] == leader]
            try:
                answers = self._produce(leader, {number: waiting[number][0] for number in numbers})
            except BrokerUnreachableError as error:
                if self._source is NO_SOURCE:
                    raise CommandError(
                        f"{error}; whether the last messages were written is not known", ExitCode.NO_CONNECTION
                    ) from error
                failure = error
                continue
            for answer in answers:
                failure = self._take(answer, waiting) or failure
        return failure

    def _produce(self, leader: int, batches: dict[int, list[Record]]) -> list[PartitionProduceResponse]:
        partitions = []
        for number, records in batches.items():
            sequence = -1 if self._source is NO_SOURCE else self._sequences.get(number, 0)
            partitions.append(PartitionProduceData(index=number, records=encode_batch(records, self._source, sequence)))
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=int(self._client.timeout_s * 1000),
            topic_data=[TopicProduceData(name=self._name, partition_data=partitions)],
        )
        answer = self._client.node_call(leader, keys.PRODUCE, request, ProduceResponse)
        return answer.responses[0].partition_responses

    def _take(self, answer: PartitionProduceResponse, waiting: Waiting) -> PenstockError | None:
        number = answer.index
        records = waiting[number][0]
        if answer.error_code in (errors.NONE, errors.DUPLICATE_SEQUENCE_NUMBER):
            waiting[number].popleft()
            if not waiting[number]:
                del waiting[number]
            self._sequences[number] = (self._sequences.get(number, 0) + len(records)) & SEQUENCE_MAX
            self.written[number] = self.written.get(number, 0) + len(records)
            self.bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            return None
        if answer.error_code == errors.MESSAGE_TOO_LARGE and len(records) > 1:
            half = len(records) // 2
            waiting[number][0] = records[half:]
            waiting[number].appendleft(records[:half])
            return None
        error = RequestRefusedError(f"partition {number} of {self._name!r}", answer.error_code, answer.error_message)
        if not is_retriable(error):
            raise error
        return error

    def _introduce(self) -> Source:
        """Get a producer id for deduplication. Returns NO_SOURCE if the broker does not support them."""

        def ask() -> Source:
            connection = self._client.any_node()
            if connection.version_of(keys.INIT_PRODUCER_ID) < 0:
                return NO_SOURCE
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = self._client.call(keys.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if answer.error_code:
                raise RequestRefusedError("asking for a producer id", answer.error_code)
            return Source(answer.producer_id, answer.producer_epoch)

        return self._client.retry(ask)
