"""Scans messages of several partitions, merged by time, forwards or backwards, within a budget of bytes and time; a cursor
continues the scan."""

from __future__ import annotations

import asyncio
import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections import deque
from typing import Annotated, Final, NamedTuple, Protocol

import msgspec

from penstock.core.clock import Clock
from penstock.core.record_format import next_offset_of
from penstock.queue import Aborted, ReadResult, is_aborted, joined, split_batches
from penstock.server.http.errors import MalformedRequestError
from penstock.server.http.message_filter import Predicate
from penstock.server.http.route import Count
from penstock.server.http.stored_records import Record, RecordFilter, StoredRecords, stored_records

CHUNK_BYTES_MIN: Final = 16 << 10
CHUNK_BYTES_MAX: Final = 256 << 10
CHUNKS_BYTES: Final = 4 << 20  # of all partitions together that are read at a time, about
SCAN_BYTES_MAX: Final = 32 << 20
SCAN_S_MAX: Final = 2.0
FILTERED_AT_ONCE: Final = 200  # records that a filter looks at without a pause
WINDOW_FIRST: Final = 64  # offsets that are looked at at a time when going backwards
WINDOW_MAX: Final = 1 << 16


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position of a scan by partition: forwards the next offset, backwards the offset after the next."""

    backwards: bool
    at: dict[Annotated[str, msgspec.Meta(pattern="^[0-9]{1,6}$")], Count]

    def pack(self) -> str:
        """The encoded form for clients."""
        return urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def unpack(cls, text: str) -> Cursor:
        """Decode a cursor. Raises MalformedRequestError if it is invalid."""
        try:
            return msgspec.json.decode(urlsafe_b64decode(text), type=cls)
        except (msgspec.MsgspecError, Base64Error, ValueError) as error:
            raise MalformedRequestError(
                "the cursor is not one that was answered as 'next'; leave it out to start from the beginning"
            ) from error


class Budget:
    """How much one request may scan."""

    def __init__(self, clock: Clock, bytes_max: int = SCAN_BYTES_MAX, seconds_max: float = SCAN_S_MAX) -> None:
        self._clock = clock
        self._until_s = clock.monotonic() + seconds_max
        self._bytes_left = bytes_max
        self.spent = 0

    def spend(self, size: int) -> None:
        """Count scanned bytes."""
        self._bytes_left -= size
        self.spent += size

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return self._bytes_left <= 0 or self._clock.monotonic() > self._until_s


class Filter(NamedTuple):
    """The search criteria. `accepts` decides on decoded messages, after all else."""

    needle: bytes = b""
    since_ms: int | None = None
    committed: bool = True
    accepts: Predicate | None = None


class ReadablePartition(Protocol):
    """What is read of a partition, which may be on another node."""

    number: int

    @property
    def start_offset(self) -> int:
        """Its first offset."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset after its last."""
        ...

    @property
    def stable_offset(self) -> int:
        """The end of what is committed."""
        ...

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp of its messages."""
        ...

    async def read(self, offset: int, bytes_max: int, *, until: int | None = None, is_consumed: bool = True) -> ReadResult:
        """Batches from an offset on."""
        ...

    def aborted_between(self, begin: int, end: int) -> list[Aborted]:
        """Aborted transactions with a part between two offsets, which were read last."""
        ...

    async def find_time(self, timestamp_ms: int) -> tuple[int, object] | None:
        """The base offset of the first batch from a time on."""
        ...


class PartitionScan:
    """Scans one partition in one direction. `at` is its position, behind the messages taken so far."""

    def __init__(
        self,
        partition: ReadablePartition,
        at: int,
        wanted: Filter,
        *,
        backwards: bool,
        chunk_bytes: int = CHUNK_BYTES_MAX,
        until: int | None = None,
    ) -> None:
        self.partition = partition
        self._until = until
        self.at = at
        self._wanted = wanted
        self._backwards = backwards
        self._chunk_bytes = chunk_bytes
        self._looked_to = at  # ahead of `at` by what is pending
        self._window = WINDOW_FIRST
        self._pending: deque[StoredRecords] = deque()  # none of them without a chosen record
        self._taken = 0  # of those chosen in the first
        self._batches: deque[memoryview] = deque()
        self._batches_end = at

    @property
    def end(self) -> int:
        """The end of the visible messages."""
        end = self.partition.stable_offset if self._wanted.committed else self.partition.end_offset
        return end if self._until is None else min(end, self._until)

    @property
    def is_done(self) -> bool:
        """Whether the end in this direction is reached."""
        if self._pending or self._batches:
            return False
        return self._looked_to <= self.partition.start_offset if self._backwards else self._looked_to >= self.end

    @property
    def next_time(self) -> int | None:
        """The timestamp of the next message, if it is known."""
        return None if not self._pending else self._pending[0].timestamp(self._next_number())

    @property
    def next_offset(self) -> int:
        """The offset of the next message, or the position of the scan."""
        return self.at if not self._pending else self._pending[0].offset(self._next_number())

    async def fill(self, budget: Budget) -> None:
        """Scan until there is a message, the end, or no budget left. Yields to other requests between batches."""
        while not self._pending and not self.is_done and not budget.is_over:
            await (self._back(budget) if self._backwards else self._forth(budget))
            await asyncio.sleep(0)
        if not self._pending:
            self.at = self._looked_to

    def take(self) -> Record:
        """Return the message that `fill` has found."""
        records = self._pending[0]
        record = records.record(self._next_number(), self.partition.number)
        self.at = record.offset if self._backwards else record.offset + 1
        self._taken += 1
        if self._taken == len(records.chosen):
            self._pending.popleft()
            self._taken = 0
            if not self._pending and not self._backwards:
                self.at = max(self.at, self._looked_to)
        return record

    def _next_number(self) -> int:
        chosen = self._pending[0].chosen
        return chosen[-1 - self._taken if self._backwards else self._taken]

    async def _forth(self, budget: Budget) -> None:
        if not self._batches:
            read = await self.partition.read(self._looked_to, self._chunk_bytes, until=self.end, is_consumed=False)
            budget.spend(read.size)
            self._batches.extend(split_batches(joined(read)))
            self._batches_end = max(read.next_offset, self._looked_to + 1)
            if not self._batches:
                self._looked_to = self._batches_end
                return
        batch = self._batches.popleft()
        begin = self._looked_to
        after = next_offset_of(batch)
        self._looked_to = max(begin, after if self._batches else max(after, self._batches_end))
        await self._look_into([batch], begin, min(self._looked_to, self.end))

    async def _back(self, budget: Budget) -> None:
        """Scan backwards one window of offsets at a time, of about one chunk."""
        end = min(self._looked_to, self.end)
        begin = max(end - self._window, self.partition.start_offset)
        if begin >= end:
            self._looked_to = self.partition.start_offset
            return
        read = await self.partition.read(begin, self._chunk_bytes, until=end, is_consumed=False)
        budget.spend(read.size)
        if read.next_offset < end and self._window > 1:
            self._window = max(self._window // 4, 1)
            return
        if read.size < self._chunk_bytes // 4:
            self._window = min(self._window * 2, WINDOW_MAX)
        await self._look_into(split_batches(joined(read))[::-1], begin, end)
        self._looked_to = begin

    async def _look_into(self, batches: list[memoryview], begin: int, end: int) -> None:
        wanted = self._wanted
        aborted = self.partition.aborted_between(begin, end) if wanted.committed else []
        filter_ = RecordFilter(begin, end, wanted.since_ms, wanted.needle)
        for batch in batches:
            records = None if is_aborted(batch, aborted) else await stored_records(batch, filter_)
            if records is not None and wanted.accepts is not None:
                records = await self._accepted(records, wanted.accepts)
            if records is not None and records.chosen:
                self._pending.append(records)

    async def _accepted(self, records: StoredRecords, accepts: Predicate) -> StoredRecords:
        """The records that a filter accepts. Other requests are served in between."""
        chosen: list[int] = []
        for start in range(0, len(records.chosen), FILTERED_AT_ONCE):
            await asyncio.sleep(0)
            numbers = records.chosen[start : start + FILTERED_AT_ONCE]
            chosen += (number for number in numbers if accepts(records.record(number, self.partition.number)))
        return records._replace(chosen=chosen)


def chunk_bytes(partitions: int) -> int:
    """How many bytes are read of each of `count` partitions at a time."""
    return min(max(CHUNKS_BYTES // max(partitions, 1), CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)


class ScanResult(NamedTuple):
    """The messages of a scan, its cursor (None at the end), and the bytes scanned."""

    records: list[Record]
    next: Cursor | None
    size: int


async def scan(scans: list[PartitionScan], limit: int, bytes_max: int, budget: Budget, *, backwards: bool) -> ScanResult:
    """Up to `limit` messages of several partitions, in the order of their times as far as that of their offsets allows."""
    records: list[Record] = []
    size = 0
    waiting: list[tuple[int, int]] = []  # the next message of each partition, the best first
    sign = -1 if backwards else 1
    for place, partition_scan in enumerate(scans):
        await partition_scan.fill(budget)
        if partition_scan.next_time is not None:
            heapq.heappush(waiting, (sign * partition_scan.next_time, place))
    while waiting and len(records) < limit and size < bytes_max:
        _, place = heapq.heappop(waiting)
        partition_scan = scans[place]
        record = partition_scan.take()
        records.append(record)
        size += record.size
        await partition_scan.fill(budget)
        if partition_scan.next_time is not None:
            heapq.heappush(waiting, (sign * partition_scan.next_time, place))
        elif not partition_scan.is_done:
            break  # this partition ran out of budget: later messages of others would be out of order
    if all(partition_scan.is_done for partition_scan in scans):
        return ScanResult(records, None, budget.spent)
    return ScanResult(
        records,
        Cursor(backwards, {str(partition_scan.partition.number): partition_scan.at for partition_scan in scans}),
        budget.spent,
    )


async def offset_at_time(partition: ReadablePartition, timestamp_ms: int, clock: Clock) -> int:
    """The offset of the first message from a time on, committed or not; the end if there is none."""
    located = await partition.find_time(timestamp_ms)
    if located is None:
        return partition.end_offset
    partition_scan = PartitionScan(partition, located[0], Filter(since_ms=timestamp_ms, committed=False), backwards=False)
    await partition_scan.fill(Budget(clock))
    return partition_scan.next_offset
