"""Copies a topic into another one, of the same cluster or of another, each message once.

What is copied and how far it was read are committed together in the target's cluster, so that an interrupted copy goes on where
it stopped. The target has to be a Penstock; the source can be any Kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.client.batch_copy import BatchCopier, CopiedBatch
from penstock.client.reader import TopicReader
from penstock.core.errors import ConfigError, InvalidRequestError, PenstockError
from penstock.core.record_format import Writer
from penstock.kafka.client import (
    EARLIEST,
    LATEST,
    Address,
    BrokerUnreachableError,
    KafkaClient,
    OpenTransaction,
    ProducerClient,
    ProducerIdentity,
    RequestRefusedError,
    TopicInfo,
    TopicPartition,
)
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

ROUND_BYTES: Final = 8 << 20  # of one transaction
TRANSACTION_TIMEOUT_MS: Final = 60_000
RETRY_PAUSE_S: Final = 0.1
PRODUCE_VERSION_MAX: Final = 12  # newer ones name topics by id
ALL_IN_SYNC: Final = -1
SEQUENCE_MAX: Final = (1 << 31) - 1

_STORED: Final = frozenset({errors.NONE, errors.DUPLICATE_SEQUENCE_NUMBER})
_FENCED: Final = frozenset({errors.INVALID_PRODUCER_EPOCH, errors.PRODUCER_FENCED, errors.TRANSACTION_ABORTABLE})


class CopiedRound(NamedTuple):
    """What one transaction has copied."""

    messages: int
    bytes: int


class TopicCopy:
    """A copy in progress. Call `copy_round` until `is_done`; a copy that follows never is."""

    def __init__(
        self,
        source: KafkaClient,
        target: ProducerClient,
        topics: tuple[TopicInfo, TopicInfo],
        positions: tuple[dict[int, int], dict[int, int]],
        record: bytes,
    ) -> None:
        self._target = target
        self._from, self._to = topics
        starts, ends = positions
        self._reader = TopicReader(source, self._from, starts, ends)
        self._copiers = {number: BatchCopier(start, ends.get(number)) for number, start in starts.items()}
        self._record = record
        self._follows = not ends

    @classmethod
    async def open(cls, source: KafkaClient, target: ProducerClient, names: tuple[str, str], *, follows: bool) -> TopicCopy:
        """Look both topics up, and where an earlier copy has stopped. The target has to exist; if it holds messages that are not
        of such a copy, it is refused."""
        from_topic = (await source.topics([names[0]]))[names[0]]
        to_topic = (await target.topics([names[1]]))[names[1]]
        if from_topic.id == to_topic.id and any(to_topic.id):
            raise InvalidRequestError(f"topic {names[0]!r} cannot be copied into itself")
        if len(to_topic.leaders) < len(from_topic.leaders):
            raise InvalidRequestError(
                f"topic {names[1]!r} has {len(to_topic.leaders)} partitions, fewer than the {len(from_topic.leaders)} of "
                f"{names[0]!r}; run: penstock topic add-partitions {names[1]} --total {len(from_topic.leaders)}"
            )
        if not await target.commits_together():
            raise ConfigError("the target is no Penstock; copy into another Kafka with its own MirrorMaker")
        record = await target.record(_key(from_topic, to_topic))
        if record is None:
            await _check_empty(target, to_topic)
            # From now on the target is known to be that of this copy, whatever a transaction leaves in it that is aborted.
            record = msgspec.json.encode({})
            await target.commit_together([], (_key(from_topic, to_topic), record), None)
        copied = msgspec.json.decode(record, type=dict[int, int])
        begins = await _offsets(source, from_topic, EARLIEST)
        starts = {number: max(begin, copied.get(number, 0)) for number, begin in begins.items()}
        ends = {} if follows else await _offsets(source, from_topic, LATEST)
        return cls(source, target, (from_topic, to_topic), (starts, ends), record)

    @property
    def is_done(self) -> bool:
        """Whether everything is copied that was there in the beginning."""
        return self._reader.is_at_end

    async def copy_round(self) -> CopiedRound:
        """Copy about 8 MiB, or less if there is no more, in one transaction."""
        name = _key(self._from, self._to)
        identity: ProducerIdentity | None = None
        transaction: _CopyTransaction | None = None
        while not self.is_done and (transaction is None or transaction.bytes < ROUND_BYTES):
            batches = await self._fetch()
            if not batches and self._follows:
                break  # there is no more for now
            if batches and transaction is None:
                identity = await self._target.initialise(name, TRANSACTION_TIMEOUT_MS)
                transaction = _CopyTransaction(self._target, self._to, name, identity)
            if transaction is not None:
                await transaction.send(batches)
        if transaction is None or identity is None:
            return CopiedRound(0, 0)
        record = msgspec.json.encode({number: copier.position for number, copier in self._copiers.items()})
        opened = OpenTransaction(name, identity.id, identity.epoch)
        await self._target.commit_together([opened], (name, record), self._record)
        self._record = record
        return CopiedRound(transaction.messages, transaction.bytes)

    async def _fetch(self) -> dict[int, deque[CopiedBatch]]:
        """The next batches of partitions that have some."""
        fetched: dict[int, deque[CopiedBatch]] = {}
        for item in await self._reader.fetch_once():
            number = item.partition_index
            copier = self._copiers[number]
            copier.position = max(copier.position, self._reader.position(number))  # the oldest messages may be gone
            if item.records and not item.error_code:
                assert isinstance(item.records, memoryview)
                aborted = [(aborted.producer_id, aborted.first_offset) for aborted in item.aborted_transactions or ()]
                if batches := copier.take(item.records, aborted):
                    fetched[number] = deque(batches)
            self._reader.seek(number, copier.position)
        return fetched


class _CopyTransaction:
    """Sends batches in order, one of each partition at a time, until they are stored."""

    def __init__(self, client: ProducerClient, topic: TopicInfo, name: str, identity: ProducerIdentity) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self._identity = identity
        self._sequences: dict[int, int] = {}
        self.messages = 0
        self.bytes = 0

    async def send(self, waiting: dict[int, deque[CopiedBatch]]) -> None:
        network, timeout_s = self._client.network, self._client.options.api_timeout_s
        deadline = network.monotonic() + timeout_s
        while waiting:
            failure = await self._round(waiting)
            if failure is None:
                deadline = network.monotonic() + timeout_s
                continue
            if network.monotonic() > deadline:
                raise failure
            await network.sleep(RETRY_PAUSE_S)
            self._topic = (await self._client.topics([self._topic.name]))[self._topic.name]

    async def _round(self, waiting: dict[int, deque[CopiedBatch]]) -> PenstockError | None:
        """Send the first batch of every partition. Returns the failure, if one may pass."""
        failure: PenstockError | None = None
        leaders = {number: self._topic.leaders[number] for number in waiting}
        for leader in sorted(set(leaders.values())):
            try:
                codes = await self._produce(leader, {n: waiting[n][0] for n, led_by in leaders.items() if led_by == leader})
            except BrokerUnreachableError as error:
                failure = error
                continue
            for number, (code, reason) in codes.items():
                failure = self._take(number, code, reason, waiting) or failure
        return failure

    async def _produce(self, leader: Address, batches: Mapping[int, CopiedBatch]) -> dict[int, tuple[int, str | None]]:
        partitions = [
            PartitionProduceData(index=number, records=batch.stamp(self._writer(number))) for number, batch in batches.items()
        ]
        request = ProduceRequest(
            transactional_id=self._name,
            acks=ALL_IN_SYNC,
            timeout_ms=int(self._client.options.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=self._topic.name, partition_data=partitions)],
        )
        connection = await self._client.connect(leader)
        version = connection.version_of(keys.PRODUCE, PRODUCE_VERSION_MAX)
        answer = await self._client.call_on(connection, keys.PRODUCE, request, ProduceResponse, version=version)
        return {item.index: (item.error_code, item.error_message) for item in answer.responses[0].partition_responses}

    def _writer(self, number: int) -> Writer:
        return Writer(self._identity.id, self._identity.epoch, self._sequences.get(number, 0))

    def _take(
        self, number: int, code: int, reason: str | None, waiting: dict[int, deque[CopiedBatch]]
    ) -> RequestRefusedError | None:
        if code in _STORED:
            batch = waiting[number].popleft()
            if not waiting[number]:
                del waiting[number]
            self._sequences[number] = (self._sequences.get(number, 0) + batch.messages) & SEQUENCE_MAX
            self.messages += batch.messages
            self.bytes += len(batch.data)
            return None
        if code in _FENCED:
            reason = "another copy of the same topics has begun; what it has not copied can be copied by running this again"
        error = RequestRefusedError(f"partition {number} of {self._topic.name!r}", code, reason)
        if not errors.is_retriable(code) and code != errors.CONCURRENT_TRANSACTIONS:
            raise error
        return error


def _key(source: TopicInfo, target: TopicInfo) -> str:
    """Names the copy of one topic into another: its record, and its transactional id. Topics that are created again differ."""
    return f"penstock.copy.{source.id.hex() if any(source.id) else source.name}.{target.id.hex()}"


async def _offsets(client: KafkaClient, topic: TopicInfo, timestamp: int) -> dict[int, int]:
    wanted = {TopicPartition(topic.name, number): timestamp for number in topic.leaders}
    return {place.partition: offset for place, offset in (await client.offsets(wanted, committed=True)).items()}


async def _check_empty(client: KafkaClient, topic: TopicInfo) -> None:
    begins, ends = await _offsets(client, topic, EARLIEST), await _offsets(client, topic, LATEST)
    if begins != ends:
        raise InvalidRequestError(
            f"topic {topic.name!r} has messages that were not copied from there; choose an empty topic or a new name"
        )
