"""Exact counts of messages between two offsets, and the offset at which the last N messages begin.

Offsets are not messages: the marker that ends a transaction takes one, what an aborted transaction wrote is not there for those
who read committed data, and compaction leaves gaps. Each blob tells how many of its offsets hold no message, so only the blobs at
the ends of a stretch, and those with aborted data, are looked into, header by header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.errors import UnavailableError
from penstock.core.record_format import CONTROL
from penstock.kernels.batch_list import ATTRIBUTES, BASE_OFFSET, COUNT, NEXT_OFFSET, PRODUCER
from penstock.queue.body import Body
from penstock.queue.errors import BodyReplacedError
from penstock.queue.keys import UNCOUNTED
from penstock.queue.piece import Piece
from penstock.queue.sifting import AbortedIndex, table_of

if TYPE_CHECKING:
    from penstock.queue.partition import Partition

TURNS_MAX = 100
Numbers = NDArray[np.int64]


class _Stretch(NamedTuple):
    """The messages of a run between two offsets: of each batch its first offset, the one after its last, and its messages."""

    first: Numbers
    after: Numbers
    messages: Numbers

    @property
    def held(self) -> int:
        return int(self.messages.sum())

    def offset_of_last(self, count: int) -> int:
        """The offset from which on there are `count` messages; there must be that many."""
        left = count - np.cumsum(self.messages[::-1])
        at = len(self.messages) - 1 - int(np.argmax(left <= 0))
        # Within a batch messages follow one another; one that compaction has thinned is kept whole.
        spare = int(self.messages[at:].sum()) - count
        is_dense = self.messages[at] == self.after[at] - self.first[at]
        return int(self.first[at]) + (spare if is_dense else 0)


def cut_off(first: Sequence[Body | Piece], start_offset: int) -> int:
    """About how many messages of the first blob, if there is one, are before the start: as if they were spread evenly."""
    if not first or start_offset <= first[0].first_offset:
        return 0
    return round(first[0].held * (start_offset - first[0].first_offset) / (first[0].next_offset - first[0].first_offset))


async def count_messages(partition: Partition, begin: int, end: int) -> int:
    """How many messages are at begin <= offset < end, as readers of committed data see them."""
    for _ in range(TURNS_MAX):
        try:
            counts = [await _count(partition, run, begin, end) for run in _runs(partition, begin, end)]
        except BodyReplacedError:
            await asyncio.sleep(0)  # compaction or a trim is about to say by what
        else:
            return sum(counts)
    raise UnavailableError(f"partition {partition.number} changes while its messages are counted; ask again")


async def offset_of_last(partition: Partition, count: int, end: int) -> int:
    """From which offset on there are so many messages before `end`; the start of the partition if there are not."""
    for _ in range(TURNS_MAX):
        try:
            return await _offset_of_last(partition, count, end)
        except BodyReplacedError:
            await asyncio.sleep(0)
    raise UnavailableError(f"partition {partition.number} changes while its messages are counted; ask again")


async def _offset_of_last(partition: Partition, count: int, end: int) -> int:
    start = partition.start_offset
    if count <= 0:
        return end
    for run in reversed(_runs(partition, start, end)):
        held = await _count(partition, run, start, end)
        if held < count:
            count -= held
            continue
        if _is_dense(partition, run):
            return min(run.next_offset, end) - count
        return (await _stretch(partition, run, start, end)).offset_of_last(count)
    return start


def _runs(partition: Partition, begin: int, end: int) -> list[Body | Piece]:
    begin = max(begin, partition.start_offset)
    return [run for run in partition.runs if run.next_offset > begin and run.first_offset < end] if begin < end else []


async def _count(partition: Partition, run: Body | Piece, begin: int, end: int) -> int:
    begin = max(begin, partition.start_offset)
    if _is_dense(partition, run):
        return min(end, run.next_offset) - max(begin, run.first_offset)
    is_whole = begin <= run.first_offset and run.next_offset <= end
    if is_whole and run.hidden != UNCOUNTED and not partition.aborted_between(run.first_offset, run.next_offset):
        return run.held
    return (await _stretch(partition, run, begin, end)).held


def _is_dense(partition: Partition, run: Body | Piece) -> bool:
    """Whether every offset of a run holds a message that can be seen."""
    return run.hidden == 0 and not partition.aborted_between(run.first_offset, run.next_offset)


async def _stretch(partition: Partition, run: Body | Piece, begin: int, end: int) -> _Stretch:
    piece = await partition.piece_of(run)
    table = table_of(piece.buffers[0] if len(piece.buffers) == 1 else b"".join(piece.buffers))
    is_seen = (table[:, ATTRIBUTES] & CONTROL == 0) & (table[:, NEXT_OFFSET] > begin) & (table[:, BASE_OFFSET] < end)
    aborted = AbortedIndex(partition.aborted_between(run.first_offset, run.next_offset))
    for row in np.flatnonzero(is_seen & np.isin(table[:, PRODUCER], list(aborted.producers))).tolist():
        is_seen[row] = not aborted.has(int(table[row, PRODUCER]), int(table[row, BASE_OFFSET]))
    seen = table[is_seen]
    first, after = np.maximum(seen[:, BASE_OFFSET], begin), np.minimum(seen[:, NEXT_OFFSET], end)
    return _Stretch(first, after, np.minimum(seen[:, COUNT], after - first))
