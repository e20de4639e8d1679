"""A partition session: one partition as read by one reader, with its read and committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np

from penstock.broker import TopicPartition
from penstock.core.errors import InvalidRequestError
from penstock.core.record_format import CODEC_MASK, KIND_BYTE, LAST_DELTA
from penstock.gateway.ydb.commit_ranges import CommitRanges
from penstock.gateway.ydb.read_responses import ReadResponse, encode_responses
from penstock.kernels.record_scan import OFFSET_DELTA, TIMESTAMP_DELTA
from penstock.queue import Partition, joined, scan_batch

IN_PLACE_BYTES_MAX = 64 << 10


class PartitionSession:
    """The state of a partition session. Data is sent once the client has confirmed the start."""

    def __init__(self, session_id: int, queue: TopicPartition, path: str) -> None:
        self.id = session_id
        self.queue = queue
        self.path = path
        self.number = queue.partition
        self.next_offset = 0
        self.commits = CommitRanges(0)
        self.is_started = False  # the client has confirmed it
        self.stop_by: float | None = None  # revoked: the client must release it by then
        self.began_ms = 0
        self.last_read_ms = 0

    def seek(self, committed: int, next_offset: int) -> None:
        """Set the committed offset, and the one to read from."""
        self.commits = CommitRanges(committed)
        self.next_offset = next_offset

    def commit(self, start: int, end: int) -> bool:
        """Commit a range. Returns whether the committed offset advanced."""
        if start < 0 or end > self.next_offset:
            raise InvalidRequestError(
                f"partition {self.number} of {self.path!r} was read up to {self.next_offset}; {start}..{end} cannot be committed"
            )
        return self.commits.add(start, end)

    async def read(self, partition: Partition, bytes_max: int) -> AsyncIterator[ReadResponse]:
        """Read the next messages, as responses. Advances even if there are no messages in what was read."""
        before = self.next_offset
        batches = await partition.read(before, bytes_max, until=partition.stable_offset)
        aborted = partition.aborted_between(before, batches.next_offset)
        self.next_offset = batches.next_offset
        data = joined(batches)
        responses = encode_responses(self.id, data, before, aborted, partition.origins.marked_from)
        if len(data) > IN_PLACE_BYTES_MAX and data[KIND_BYTE] & CODEC_MASK:
            # Decompress in a thread.
            while (response := await asyncio.to_thread(next, responses, None)) is not None:
                yield response
        for response in responses:
            yield response


async def first_offset_since(partition: Partition, time_ms: int) -> int:
    """The offset of the first message from a time on, or the end if there is none."""
    offset = partition.start_offset
    while (batch := await partition.find_time(time_ms, offset)) is not None:
        base_offset, data = batch
        at = _first_in(memoryview(data), base_offset, time_ms, offset)
        if at is not None:
            return at
        offset = base_offset + int.from_bytes(data[LAST_DELTA], "big") + 1
    return partition.end_offset


def _first_in(batch: memoryview, base_offset: int, time_ms: int, from_offset: int) -> int | None:
    scanned = scan_batch(batch)
    if scanned is None or scanned.header.stamp_ms is not None:
        return max(base_offset, from_offset)
    table, base_ms = scanned.table, scanned.header.base_ms
    fits = (table[:, TIMESTAMP_DELTA] + base_ms >= time_ms) & (table[:, OFFSET_DELTA] + base_offset >= from_offset)
    places = np.flatnonzero(fits)
    return None if not len(places) else base_offset + int(table[places[0], OFFSET_DELTA])
