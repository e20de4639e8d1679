"""Writing messages to a topic: partitions chosen as Kafka's own clients do, each message stored once however often it is sent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from penstock.client.messages import MessageDraft, encoded
from penstock.client.record_batch import NO_SOURCE, Record, Source, encode_batch
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.core.key_hash import partition_of_key
from penstock.kafka.client import (
    Address,
    BrokerUnreachableError,
    ProducerClient,
    RequestRefusedError,
    TopicInfo,
    is_retriable,
)
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_BYTES: Final = 256 << 10
ALL_IN_SYNC: Final = -1
RETRY_PAUSE_S: Final = 0.1
SEQUENCE_MAX: Final = (1 << 31) - 1
TRANSACTION_TIMEOUT_MS: Final = 60_000
METADATA_AGE_S: Final = 60.0  # so long it may take to see that a topic has more partitions
_RECORD_OVERHEAD: Final = 32

WaitingBatches = dict[int, deque[list[Record]]]


class UnknownOutcomeError(BrokerUnreachableError):
    """The connection broke while messages were sent to a broker that does not detect duplicates."""

    code = "unknown_outcome"


class TopicWriter:
    """Writes to one topic. What was sent and not acknowledged is sent again under the same sequence number."""

    def __init__(self, client: ProducerClient, topic: TopicInfo, source: Source) -> None:
        self._client = client
        self._topic = topic
        self._source = source
        self._sequences: dict[int, int] = {}
        self._sticky = 0
        self._last_offsets: dict[int, int] = {}
        self._sending = client.network.lock()
        self._known_at = client.network.monotonic()
        self.written: dict[int, int] = {}
        "Acknowledged messages by partition."
        self.bytes = 0

    @classmethod
    async def open(cls, client: ProducerClient, name: str) -> TopicWriter:
        """Look the topic up, create it if the broker creates topics by itself, and get a producer id."""
        topic = await client.topic_to_write(name)
        if (await client.retry(client.any_node)).version_of(keys.INIT_PRODUCER_ID) < 0:
            return cls(client, topic, NO_SOURCE)
        identity = await client.initialise(None, TRANSACTION_TIMEOUT_MS)
        return cls(client, topic, Source(identity.id, identity.epoch))

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self._topic.leaders)

    async def send(self, drafts: Iterable[MessageDraft]) -> dict[int, int]:
        """Write some messages, which are stored when this returns. Returns the offset of the last one in each partition."""
        async with self._sending:
            if self._client.network.monotonic() - self._known_at > METADATA_AGE_S:
                await self._look_up()
            waiting = self._batches(drafts)
            partitions = list(waiting)
            deadline = self._client.network.monotonic() + self._client.options.api_timeout_s
            while waiting:
                failure = await self._round(waiting)
                now = self._client.network.monotonic()
                if failure is None:
                    deadline = now + self._client.options.api_timeout_s
                    continue
                if now + RETRY_PAUSE_S >= deadline:
                    raise failure
                await self._client.network.sleep(RETRY_PAUSE_S)
                await self._look_up()
            return {number: self._last_offsets[number] for number in partitions}

    async def _look_up(self) -> None:
        self._topic = (await self._client.topics([self._topic.name]))[self._topic.name]
        self._known_at = self._client.network.monotonic()

    def _batches(self, drafts: Iterable[MessageDraft]) -> WaitingBatches:
        now_ms = int(time.time() * 1000)
        waiting: WaitingBatches = {}
        sizes: dict[int, int] = {}
        for draft in drafts:
            key, value = encoded(draft.key), encoded(draft.value)
            number = self._partition(draft.partition, key)
            size = len(key or b"") + len(value or b"") + _RECORD_OVERHEAD
            batches = waiting.setdefault(number, deque())
            if not batches or sizes[number] + size > BATCH_BYTES:
                batches.append([])
                sizes[number] = 0
            stamp = now_ms if draft.timestamp_ms is None else draft.timestamp_ms
            batches[-1].append(Record(0, stamp, key, value, draft.headers))
            sizes[number] += size
        # What has no key stays together for a while: fewer, larger batches.
        self._sticky = (self._sticky + 1) % self.partitions
        return waiting

    def _partition(self, chosen: int | None, key: bytes | None) -> int:
        if chosen is not None:
            if not 0 <= chosen < self.partitions:
                raise InvalidRequestError(f"topic {self._topic.name!r} has partitions 0..{self.partitions - 1}, not {chosen}")
            return chosen
        return self._sticky if key is None else partition_of_key(key, self.partitions)

    async def _round(self, waiting: WaitingBatches) -> PenstockError | None:
        """Send the first batch of every partition, to each leader at once. Returns the failure, if one may pass."""
        leaders = self._topic.leaders
        failure: PenstockError | None = None
        for leader in sorted({leaders[number] for number in waiting}):
            numbers = [number for number in waiting if leaders[number] == leader]
            try:
                answers = await self._produce(leader, {number: waiting[number][0] for number in numbers})
            except BrokerUnreachableError as error:
                if self._source is NO_SOURCE:
                    raise UnknownOutcomeError(f"{error}; whether the last messages were written is not known") from error
                failure = error
                continue
            for answer in answers:
                failure = self._take(answer, waiting) or failure
        return failure

    async def _produce(self, leader: Address, batches: dict[int, list[Record]]) -> list[PartitionProduceResponse]:
        partitions = []
        for number, records in batches.items():
            sequence = -1 if self._source is NO_SOURCE else self._sequences.get(number, 0)
            partitions.append(PartitionProduceData(index=number, records=encode_batch(records, self._source, sequence)))
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=int(self._client.options.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=self._topic.name, partition_data=partitions)],
        )
        answer = await self._client.call_on(await self._client.connect(leader), keys.PRODUCE, request, ProduceResponse)
        return answer.responses[0].partition_responses

    def _take(self, answer: PartitionProduceResponse, waiting: WaitingBatches) -> PenstockError | None:
        number = answer.index
        records = waiting[number][0]
        if answer.error_code in (errors.NONE, errors.DUPLICATE_SEQUENCE_NUMBER):
            waiting[number].popleft()
            if not waiting[number]:
                del waiting[number]
            self._sequences[number] = (self._sequences.get(number, 0) + len(records)) & SEQUENCE_MAX
            self.written[number] = self.written.get(number, 0) + len(records)
            self._last_offsets[number] = answer.base_offset + len(records) - 1 if answer.base_offset >= 0 else -1
            self.bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            return None
        if answer.error_code == errors.MESSAGE_TOO_LARGE and len(records) > 1:
            half = len(records) // 2
            waiting[number][0] = records[half:]
            waiting[number].appendleft(records[:half])
            return None
        error = RequestRefusedError(f"partition {number} of {self._topic.name!r}", answer.error_code, answer.error_message)
        if not is_retriable(error):
            raise error
        return error
