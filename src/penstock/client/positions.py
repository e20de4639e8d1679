"""Where to start reading, as a person names it, and the offsets that are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta

from penstock.client.messages import Start
from penstock.core.errors import InvalidRequestError
from penstock.kafka.client import EARLIEST, LATEST, KafkaClient, TopicPartition

Position = tuple[int | None, int | None]
"Either an offset, or a timestamp in the terms of ListOffsets, where negative ones are special."


def position_of(start: Start | str) -> Position:
    """The position that a start names."""
    if start == "earliest":
        return None, EARLIEST
    if start == "latest":
        return None, LATEST
    if isinstance(start, datetime):
        return None, max(int(start.timestamp() * 1000), 0)
    if isinstance(start, timedelta):
        return None, max(int((time.time() - start.total_seconds()) * 1000), 0)
    if not isinstance(start, str) and start >= 0:
        return start, None
    raise InvalidRequestError(
        f"{start!r} is no start; give 'earliest', 'latest', an offset, a datetime or a timedelta (how long ago)"
    )


async def find_offsets(client: KafkaClient, wanted: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    """The offset of a position in each partition; where nothing is as late as the time asked for, that is the end."""
    named = {place: offset for place, (offset, _) in wanted.items() if offset is not None}
    times = {place: timestamp for place, (_, timestamp) in wanted.items() if timestamp is not None}
    answers = await client.offsets(times, committed=True)
    late = {place: LATEST for place, offset in answers.items() if offset < 0}
    return named | answers | await client.offsets(late, committed=True)
