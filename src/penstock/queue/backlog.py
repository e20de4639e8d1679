"""A reader's lag: in messages, in bytes, and in time. No I/O.

Bytes and time are exact at the borders of bodies and head pieces; within one they are interpolated. Of a partition on another
node only some of these borders are known, which are closer to each other towards the end: its *profile*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

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


class ProfilePoint(NamedTuple):
    """What a reader at an offset has before it: bytes, and the time of the first message."""

    offset: int
    size: int
    since_ms: int


NEAR_RUNS: Final = 64  # at the end of a partition, of which a profile has borders


def profile_of(partition: Partition) -> list[ProfilePoint]:
    """The border before the last body or piece of the head, before the last two, four and so on, and the first; by offset."""
    points: list[ProfilePoint] = []
    size = 0
    runs = partition.runs
    for count, run in enumerate(reversed(runs[1:]), 1):
        if count > NEAR_RUNS or run.next_offset <= partition.start_offset:
            break
        size += run.size
        if not count & (count - 1):
            points.append(ProfilePoint(run.first_offset, size, run.min_timestamp))
    if runs:
        points.append(ProfilePoint(runs[0].first_offset, partition.size, runs[0].min_timestamp))
    points.reverse()
    return points


def backlog_in(profile: Sequence[ProfilePoint], end: ProfilePoint, offset: int) -> Backlog:
    """What there is from `offset` on in a partition with this profile; `end` is behind its last message."""
    if not profile or offset >= end.offset:
        return Backlog(0, 0, None)
    offset = max(offset, profile[0].offset)
    at = bisect_right(profile, offset, key=lambda point: point.offset) - 1
    before = profile[at]
    after = profile[at + 1] if at + 1 < len(profile) else end
    passed = (offset - before.offset) / max(after.offset - before.offset, 1)
    size = before.size + round((after.size - before.size) * passed)
    return Backlog(end.offset - offset, size, before.since_ms + round((after.since_ms - before.since_ms) * passed))
