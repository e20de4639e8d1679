"""Reading partitions of a topic from one offset to another, or on and on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Final

from penstock.cli.kafka_client import CommandClient
from penstock.cli.positions import EARLIEST, READ_COMMITTED, list_offsets
from penstock.cli.record_batch import Reader, Record
from penstock.kafka.client import BrokerUnreachableError, RequestRefusedError, is_retriable
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.kafka.protocol.metadata import MetadataResponseTopic

WAIT_MS: Final = 500
PARTITION_BYTES: Final = 1 << 20
RESPONSE_BYTES: Final = 8 << 20


class Consumer:
    """Reads what is committed. `ends` are the offsets to stop before; a partition without one is read for ever."""

    def __init__(self, client: CommandClient, topic: MetadataResponseTopic, starts: dict[int, int], ends: dict[int, int]) -> None:
        self._client = client
        self._name = topic.name or ""
        self._topic = topic
        self._readers = {number: Reader(start) for number, start in starts.items()}
        self._ends = ends

    def read(self) -> Iterator[list[tuple[int, Record]]]:
        """What each round of fetches brings, by partition and in the order of offsets."""
        while not self.is_at_end:
            yield self.read_once()

    def read_once(self) -> list[tuple[int, Record]]:
        """One round of fetches."""
        wanted = self._wanted()
        records: list[tuple[int, Record]] = []
        for leader in sorted(set(wanted.values())):
            numbers = [number for number, led_by in wanted.items() if led_by == leader]
            for item in self._client.retry(partial(self._fetch, leader, numbers)):
                records += ((item.partition_index, record) for record in self._records(item))
        return records

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left to read."""
        return not self._wanted()

    def position(self, number: int) -> int:
        """Where reading goes on in a partition."""
        return self._readers[number].position

    def add(self, number: int, start: int, end: int | None) -> None:
        """Read one more partition."""
        self._readers[number] = Reader(start)
        if end is not None:
            self._ends[number] = end

    def drop(self, number: int) -> None:
        """Read a partition no more."""
        self._readers.pop(number, None)
        self._ends.pop(number, None)

    def know(self, topic: MetadataResponseTopic) -> None:
        """The topic has changed: it may have more partitions."""
        self._topic = topic

    def _wanted(self) -> dict[int, int]:
        """The partitions that are not at their end, with their leaders."""
        leaders = {item.partition_index: item.leader_id for item in self._topic.partitions}
        unfinished = (
            number for number, reader in self._readers.items() if number not in self._ends or reader.position < self._ends[number]
        )
        return {number: leaders[number] for number in unfinished}

    def _fetch(self, leader: int, numbers: list[int]) -> list[PartitionData]:
        partitions = [
            FetchPartition(partition=number, fetch_offset=self._readers[number].position, partition_max_bytes=PARTITION_BYTES)
            for number in numbers
        ]
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=self._name, partitions=partitions)],
        )
        try:
            answer = self._client.node_call(leader, keys.FETCH, request, FetchResponse, wait_s=WAIT_MS / 1000)
            if answer.error_code:
                raise RequestRefusedError(f"topic {self._name!r}", answer.error_code)
            responses = [item for topic in answer.responses for item in topic.partitions]
            for item in responses:
                self._check(item)
        except (RequestRefusedError, BrokerUnreachableError) as error:
            if is_retriable(error):
                self._topic = self._client.topic(self._name)
            raise
        return responses

    def _check(self, item: PartitionData) -> None:
        number = item.partition_index
        if item.error_code == errors.OFFSET_OUT_OF_RANGE:
            reader = self._readers[number]
            start = list_offsets(self._client, self._topic, {number: EARLIEST})[number]
            if start <= reader.position:
                raise RequestRefusedError(f"partition {number} of {self._name!r}", item.error_code)
            sys.stderr.write(f"partition {number}: messages {reader.position}..{start - 1} were deleted; continuing at {start}\n")
            reader.position = start
        elif item.error_code:
            raise RequestRefusedError(f"partition {number} of {self._name!r}", item.error_code)

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
