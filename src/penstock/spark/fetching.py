"""Fetches the stored batches of an offset range: the next fetch is in flight while the last response is decoded."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import PenstockError
from penstock.kafka.client import (
    EARLIEST,
    FRAME_BYTES_MAX,
    LATEST,
    Address,
    BlockingClient,
    BrokerRefusedError,
    BrokerUnreachableError,
    ReceiveBuffer,
    RequestRefusedError,
)
from penstock.kafka.protocol import ZERO_UUID, errors, keys
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.kernels.arrow_decode import find_end
from penstock.spark.errors import DataLossError
from penstock.spark.lost_data import LostDataPolicy
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import OffsetRange

FETCH_BYTES_MIN: Final = 64 << 10
# The assumed size of a record before the first fetch.
RECORD_BYTES_GUESS: Final = 1024
BY_NAME_MAX: Final = 12

_log = logging.getLogger(__name__)


class BatchSpan(NamedTuple):
    """Consecutive whole batches, the aborted transactions among them, the first offset to read and the next offset after them.
    The data stays valid until the second span after this one is requested."""

    data: memoryview
    aborted: list[tuple[int, int]]
    first_offset: int
    next_offset: int


class ByteSource(Protocol):
    """A source of the stored batches of a range."""

    def spans(self) -> Iterator[BatchSpan]:
        """Yield all batches with offsets of the range, in order."""
        ...


class FetchSource:
    """Fetches an offset range from the leader of its partition."""

    def __init__(self, client: BlockingClient, options: ReadOptions, offset_range: OffsetRange) -> None:
        self._client = client
        self._options = options
        self._range = offset_range
        self._leader: Address | None = offset_range.leader
        self._bytes_max = options.fetch_bytes
        self._record_bytes: float = RECORD_BYTES_GUESS
        self._is_stopped = False

    def spans(self) -> Iterator[BatchSpan]:
        """See `ByteSource`."""
        buffers = ReceiveBuffer(), ReceiveBuffer()
        span = self._fetch(self._range.start, buffers[0])
        if span.next_offset >= self._range.stop:
            yield span
            return
        with ThreadPoolExecutor(1, "fetch") as executor:
            coming: Future[BatchSpan] | None = None
            number = 0
            try:
                while True:
                    if span.next_offset < self._range.stop:
                        number += 1
                        coming = executor.submit(self._fetch, span.next_offset, buffers[number % 2])
                    yield span
                    if coming is None:
                        return
                    span = coming.result()
                    coming = None
            finally:
                # A task that is killed or fails does not wait for a response that will not be read.
                self._is_stopped = True
                if coming is not None and not coming.done() and self._leader is not None:
                    self._client.forget(self._leader)

    def _fetch(self, position: int, buffer: ReceiveBuffer) -> BatchSpan:
        """Return the batches from `position` on: at least one, or none if the rest of the range is lost and that is tolerated."""
        try:
            return self._fetch_some(position, buffer)
        except DataLossError as error:
            LostDataPolicy(self._options.fails_on_data_loss).report(str(error))
            return BatchSpan(memoryview(b""), [], position, self._range.stop)

    def _fetch_some(self, position: int, buffer: ReceiveBuffer) -> BatchSpan:
        deadline = time.monotonic() + self._options.poll_timeout_s
        while position < self._range.stop:
            data = self._client.retry(lambda position=position: self._fetch_once(position, buffer))  # type: ignore[misc] # bound now
            if data.error_code == errors.OFFSET_OUT_OF_RANGE:
                position = self._skip_lost(position)
                continue
            records = data.records
            if isinstance(records, memoryview) and len(records):
                end, used = find_end(records)
                if used:
                    self._record_bytes = max(used / max(end - position, 1), 1.0)
                    aborted = [
                        (transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions or ()
                    ]
                    return BatchSpan(records[:used], aborted, position, max(end, position))
                self._bytes_max = min(max(self._bytes_max, len(records)) * 2, FRAME_BYTES_MAX // 2)
            elif time.monotonic() >= deadline:
                raise BrokerUnreachableError(
                    f"offset {position} of {self._range.topic_partition} did not arrive within "
                    f"{self._options.poll_timeout_s:g} s (kafkaConsumer.pollTimeoutMs)"
                )
        return BatchSpan(memoryview(b""), [], position, position)

    def _fetch_once(self, position: int, buffer: ReceiveBuffer) -> PartitionData:
        """Send one fetch. Retriable errors are raised, and the leader is looked up again on the next attempt."""
        if self._is_stopped:
            raise BrokerRefusedError("the task has ended")
        try:
            leader = self._leader or self._find_leader()
            answer = self._request(leader, position, buffer)
            (data,) = (partition for topic in answer.responses for partition in topic.partitions)
            code = answer.error_code or data.error_code
            if code and code != errors.OFFSET_OUT_OF_RANGE:
                raise RequestRefusedError(f"fetching offset {position} of {self._range.topic_partition}", code)
        except PenstockError:
            if self._leader is not None:
                self._client.forget(self._leader)
            self._leader = None
            raise
        return data

    def _request(self, leader: Address, position: int, buffer: ReceiveBuffer) -> FetchResponse:
        connection = self._client.connect(leader)
        offset_range = self._range
        version = connection.version_of(keys.FETCH, limit=18 if offset_range.topic_id != ZERO_UUID else BY_NAME_MAX)
        bytes_max = self._bytes_wanted(position)
        requested = FetchPartition(
            partition=offset_range.topic_partition.partition, fetch_offset=position, partition_max_bytes=bytes_max
        )
        topic = FetchTopic(topic=offset_range.topic_partition.topic, topic_id=offset_range.topic_id, partitions=[requested])
        request = FetchRequest(
            max_wait_ms=self._options.fetch_wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=int(self._options.is_committed),
            topics=[topic],
        )
        wait_s = self._options.fetch_wait_ms / 1000
        return connection.call(keys.FETCH, request, FetchResponse, version=version, wait_s=wait_s, buffer=buffer)

    def _bytes_wanted(self, position: int) -> int:
        """Return the size to request: the estimated rest of the range, up to the limit."""
        left = (self._range.stop - position) * self._record_bytes * 1.1
        return int(min(max(left, FETCH_BYTES_MIN), self._bytes_max))

    def _find_leader(self) -> Address:
        topic_partition = self._range.topic_partition
        topic = self._client.ask_topics([topic_partition.topic]).get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.leaders:
            raise DataLossError(
                f"{topic_partition} was deleted while offsets {self._range.start} to {self._range.stop} were to be read"
            )
        if topic.id != self._range.topic_id:
            raise DataLossError(
                f"topic {topic_partition.topic!r} was deleted and created again while it was read; its old records are gone"
            )
        self._leader = topic.leaders[topic_partition.partition]
        return self._leader

    def _skip_lost(self, position: int) -> int:
        """Return the offset after lost offsets, if data loss is tolerated; DataLossError otherwise."""
        offset_range, committed = self._range, self._options.is_committed
        first, end = (
            self._client.offsets({offset_range.topic_partition: which}, committed=committed)[offset_range.topic_partition]
            for which in (EARLIEST, LATEST)
        )
        next_offset = min(first, offset_range.stop) if position < first else offset_range.stop
        what = (
            f"offsets {position} to {next_offset - 1} of {offset_range.topic_partition} are gone: the partition has {first} up "
            f"to {end}. Retention or trimming was faster than the query"
        )
        if self._options.fails_on_data_loss:
            raise DataLossError(what)
        _log.warning("%s; continuing at offset %d, as failOnDataLoss is false", what, next_offset)
        return next_offset
