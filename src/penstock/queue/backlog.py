"""A reader's lag: in messages, in bytes, and in time. No I/O.

Bytes and time are exact at the borders of bodies and head pieces; within one they are interpolated.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from penstock.queue.body import Body
from penstock.queue.partition import Partition
from penstock.queue.piece import Piece


class Backlog(NamedTuple):
    """The lag of a reader at some position, and the time of the first message it has not read; None if it has read all."""

    messages: int
    size: int
    since_ms: int | None


def backlog_of(partition: Partition, position: int) -> Backlog:
    """What there is from `position` on."""
    offset = min(max(position, partition.start_offset), partition.end_offset)
    messages = partition.end_offset - offset
    if offset >= partition.data_end:  # markers may follow, which no one reads
        return Backlog(0, 0, None)
    bodies = partition.bodies
    at = max(bisect_right(bodies, offset, key=lambda body: body.first_offset) - 1, 0)
    runs: list[Body | Piece] = [*bodies[at:], *partition.head]
    size, since_ms = 0, None
    for run in runs:
        if run.next_offset <= offset:
            continue
        if since_ms is None:
            passed = max(offset - run.first_offset, 0) / max(run.next_offset - run.first_offset, 1)
            size = round(run.size * (1 - passed))
            since_ms = run.min_timestamp + round((run.max_timestamp - run.min_timestamp) * passed)
        else:
            size += run.size
    return Backlog(messages, size, since_ms)
