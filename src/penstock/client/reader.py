"""Reading partitions of a topic from one offset to another, or on and on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from penstock.client.record_batch import Reader, Record
from penstock.kafka.client import (
    EARLIEST,
    Address,
    BrokerUnreachableError,
    KafkaClient,
    RequestRefusedError,
    TopicInfo,
    TopicPartition,
    is_retriable,
)
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

WAIT_MS: Final = 500
PARTITION_BYTES: Final = 1 << 20
RESPONSE_BYTES: Final = 8 << 20
READ_COMMITTED: Final = 1

PlacedRecord = tuple[int, Record]
"A record and the number of its partition."

_log = logging.getLogger(__name__)


class TopicReader:
    """Reads what is committed. `ends` are the offsets to stop before; a partition without one is read for ever. `notify` is told
    when messages were deleted before they could be read."""

    def __init__(
        self,
        client: KafkaClient,
        topic: TopicInfo,
        starts: dict[int, int],
        ends: dict[int, int],
        notify: Callable[[str], None] = _log.warning,
    ) -> None:
        self._client = client
        self._topic = topic
        self._readers = {number: Reader(start) for number, start in starts.items()}
        self._ends = ends
        self._notify = notify

    async def read_once(self) -> list[PlacedRecord]:
        """One round of fetches, to every leader in turn: records by partition and in the order of offsets."""
        return [(item.partition_index, record) for item in await self.fetch_once() for record in self._records(item)]

    async def fetch_once(self) -> list[PartitionData]:
        """One round of fetches, as it was answered. The caller says with `seek` how far it has read."""
        return await self._client.retry(self._fetch_all)

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left to read."""
        return not self._wanted()

    def position(self, number: int) -> int:
        """Where reading goes on in a partition."""
        return self._readers[number].position

    def seek(self, number: int, offset: int) -> None:
        """Go on at another offset of a partition."""
        self._readers[number].position = offset

    def add(self, number: int, start: int, end: int | None) -> None:
        """Read one more partition."""
        self._readers[number] = Reader(start)
        if end is not None:
            self._ends[number] = end

    def drop(self, number: int) -> None:
        """Read a partition no more."""
        self._readers.pop(number, None)
        self._ends.pop(number, None)

    def know(self, topic: TopicInfo) -> None:
        """The topic has changed: it may have more partitions."""
        self._topic = topic

    def _wanted(self) -> dict[int, Address]:
        """The partitions that are not at their end, with their leaders."""
        unfinished = (
            number for number, reader in self._readers.items() if number not in self._ends or reader.position < self._ends[number]
        )
        return {number: self._topic.leaders[number] for number in unfinished}

    async def _fetch_all(self) -> list[PartitionData]:
        """Fetch from every leader, in one attempt. After a retriable failure, the next attempt uses fresh metadata."""
        wanted = self._wanted()
        leaders = sorted(set(wanted.values()))
        responses: list[PartitionData] = []
        try:
            for leader in leaders:
                numbers = [number for number, led_by in wanted.items() if led_by == leader]
                responses += await self._fetch(leader, numbers, WAIT_MS // len(leaders))
        except (RequestRefusedError, BrokerUnreachableError) as error:
            if is_retriable(error):
                self._topic = (await self._client.topics([self._topic.name]))[self._topic.name]
            raise
        return responses

    async def _fetch(self, leader: Address, numbers: list[int], wait_ms: int) -> list[PartitionData]:
        partitions = [
            FetchPartition(partition=number, fetch_offset=self._readers[number].position, partition_max_bytes=PARTITION_BYTES)
            for number in numbers
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=self._topic.name, partitions=partitions)],
        )
        connection = await self._client.connect(leader)
        answer = await self._client.call_on(connection, keys.FETCH, request, FetchResponse, wait_s=wait_ms / 1000)
        if answer.error_code:
            raise RequestRefusedError(f"topic {self._topic.name!r}", answer.error_code)
        responses = [item for topic in answer.responses for item in topic.partitions]
        for item in responses:
            await self._check(item)
        return responses

    async def _check(self, item: PartitionData) -> None:
        number = item.partition_index
        if item.error_code == errors.OFFSET_OUT_OF_RANGE:
            reader = self._readers[number]
            place = TopicPartition(self._topic.name, number)
            start = (await self._client.offsets({place: EARLIEST}, committed=True))[place]
            if start <= reader.position:
                raise RequestRefusedError(f"partition {number} of {self._topic.name!r}", item.error_code)
            self._notify(f"partition {number}: messages {reader.position}..{start - 1} were deleted; continuing at {start}")
            reader.position = start
        elif item.error_code:
            raise RequestRefusedError(f"partition {number} of {self._topic.name!r}", item.error_code)

    def _records(self, item: PartitionData) -> Iterator[Record]:
        if item.error_code or not item.records:
            return
        assert isinstance(item.records, memoryview)
        end = self._ends.get(item.partition_index)
        aborted = [(aborted.producer_id, aborted.first_offset) for aborted in item.aborted_transactions or ()]
        for record in self._readers[item.partition_index].read(item.records, aborted):
            if end is not None and record.offset >= end:
                return
            yield record
