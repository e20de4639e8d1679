"""Places in a topic as a person names them, and the offsets they are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cli.client_options import INT64_MAX
from penstock.client.units import duration_ms

if TYPE_CHECKING:
    from penstock.cli.kafka_client import CommandClient
    from penstock.kafka.protocol.metadata import MetadataResponseTopic

LATEST: Final = -1
EARLIEST: Final = -2
READ_COMMITTED: Final = 1

FORMS: Final = (
    "earliest, latest, an offset, a time (2026-07-31T12:00:00Z; local time without a zone) or how long ago (90s, 15m, 7d)"
)
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Position(NamedTuple):
    """Either an offset, or a timestamp in the terms of ListOffsets, where negative ones are special."""

    offset: int | None = None
    timestamp_ms: int | None = None


def position(text: str) -> Position:
    """The position that some text names."""
    if text in _WORDS:
        return Position(timestamp_ms=_WORDS[text])
    if text.isascii() and text.isdigit():
        if int(text) > INT64_MAX:
            raise ValueError(text)
        return Position(offset=int(text))
    with suppress(ValueError):
        return _at(int(time.time() * 1000) - duration_ms(text))
    try:
        # A time without a zone is meant as the clock on the wall shows it.
        return _at(int(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except OverflowError:  # the first and the last day of all, in some zones
        raise ValueError(text) from None


def _at(timestamp_ms: int) -> Position:
    """A time. All messages are later than one before 1970, and as a number it would be a special one, or none at all."""
    return Position(timestamp_ms=max(timestamp_ms, 0))


position.__name__ = "position"


def find_offsets(client: CommandClient, topic: MetadataResponseTopic, wanted: Mapping[int, Position]) -> dict[int, int]:
    """The offset of a position in each partition; where nothing is as late as the time asked for, that is the end."""
    offsets = {number: place.offset for number, place in wanted.items() if place.offset is not None}
    timestamps = {number: place.timestamp_ms for number, place in wanted.items() if place.timestamp_ms is not None}
    answers = list_offsets(client, topic, timestamps)
    late = {number: LATEST for number, offset in answers.items() if offset < 0}
    return offsets | answers | list_offsets(client, topic, late)


def list_offsets(client: CommandClient, topic: MetadataResponseTopic, timestamps: Mapping[int, int]) -> dict[int, int]:
    """The offset at a timestamp in each partition, -1 where there is none."""
    from penstock.kafka.client import RequestRefusedError
    from penstock.kafka.protocol import keys, offsets

    leaders = {item.partition_index: item.leader_id for item in topic.partitions}

    def ask(leader: int) -> dict[int, int]:
        partitions = [
            offsets.ListOffsetsPartition(partition_index=number, timestamp=timestamps[number])
            for number in timestamps
            if leaders[number] == leader
        ]
        request = offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[offsets.ListOffsetsTopic(name=topic.name or "", partitions=partitions)],
        )
        answer = client.node_call(leader, keys.LIST_OFFSETS, request, offsets.ListOffsetsResponse)
        answered = {}
        for item in answer.topics[0].partitions:
            if item.error_code:
                raise RequestRefusedError(f"partition {item.partition_index} of {topic.name!r}", item.error_code)
            answered[item.partition_index] = item.offset
        return answered

    result: dict[int, int] = {}
    for leader in sorted({leaders[number] for number in timestamps}):
        result |= client.retry(partial(ask, leader))
    return result


def chosen_partitions(topic: MetadataResponseTopic, wanted: list[int] | None) -> list[int]:
    """The partitions asked for, or all."""
    from penstock.cli.failure import usage

    existing = sorted(item.partition_index for item in topic.partitions)
    for number in wanted or ():
        if number not in existing:
            raise usage(f"topic {topic.name!r} has partitions 0..{len(existing) - 1}, not {number}")
    return sorted(set(wanted)) if wanted else existing
