"""What a query reads, as plain values: ranges of offsets, the offset of a stream, and how both are cut."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.kafka.client import Address, TopicPartition
from penstock.spark.errors import CheckpointError

# No topic can have these names. What else is in the JSON is as Spark's Kafka source writes it.
_IDS: Final = "$topicIds"
_BEGUN: Final = "$begun"

# A task takes some 10 ms whatever it reads: fewer offsets than this are not worth one of their own.
TASK_OFFSETS_MIN: Final = 256


class OffsetRange(NamedTuple):
    """Offsets from `start` up to `stop` of one partition, who led it when it was planned, and the topic's id then. Whoever reads
    it renews the `lease`, if it has one."""

    topic_partition: TopicPartition
    start: int
    stop: int
    leader: Address
    topic_id: bytes
    lease: bytes = b""

    @property
    def size(self) -> int:
        """How many offsets there are in it."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has come: the next offset of each partition, and the ids of the topics they belong to.

    The end of a query's first batch also says where that batch has `begun`. Spark keeps ends only; asked again after a restart,
    the latest offset would be another one by then, and what had been planned in between would never be read.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begun: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """The form kept in checkpoints: {"topic": {"0": 23}, "$topicIds": {"topic": "…"}}."""
        by_topic = _by_topic(self.positions)
        if self.topic_ids:
            by_topic[_IDS] = dict(sorted(self.topic_ids.items()))
        if self.begun is not None:
            by_topic[_BEGUN] = _by_topic(self.begun)
        return by_topic

    @classmethod
    def from_json(cls, by_topic: Mapping[str, Any]) -> StreamOffset:
        """Read it back. A checkpoint of Spark's Kafka source reads as one without ids."""
        try:
            begun = _positions(by_topic[_BEGUN]) if _BEGUN in by_topic else None
            return cls(_positions(by_topic), dict(by_topic.get(_IDS, {})), begun)
        except (AttributeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint holds {by_topic!r}, which is no offset of topics; is it that of another source? Use another "
                "checkpointLocation"
            ) from error

    def is_other_topic(self, other: StreamOffset, topic: str) -> bool:
        """Whether both know the id of a topic, and not the same one."""
        mine, theirs = self.topic_ids.get(topic), other.topic_ids.get(topic)
        return mine is not None and theirs is not None and mine != theirs


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, Any]:
    by_topic: dict[str, Any] = {}
    for (topic, partition), offset in sorted(positions.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def _positions(by_topic: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in by_topic.items()
        if topic not in (_IDS, _BEGUN)
        for partition, offset in partitions.items()
    }


def limit_offsets(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends that take at most about `most` offsets, shared by how much each partition has left; every one that has some gets
    at least one, so that none is starved."""
    left = {topic_partition: max(end - start.get(topic_partition, end), 0) for topic_partition, end in latest.items()}
    total = sum(left.values())
    if total <= most:
        return dict(latest)
    ends = {}
    for topic_partition, end in latest.items():
        share = most * left[topic_partition] / total
        step = math.ceil(share) if share < 1 else math.floor(share)
        ends[topic_partition] = min(start.get(topic_partition, end) + step, end)
    return ends


def split_ranges(ranges: Iterable[OffsetRange], partitions_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """Cut ranges, by their sizes, so that there are about `partitions_min` and none has more than `records_max` offsets."""
    parts = [offset_range for offset_range in ranges if offset_range.size > 0]
    if records_max is not None:
        parts = [part for offset_range in parts for part in _cut(offset_range, math.ceil(offset_range.size / records_max))]
    if partitions_min is not None and len(parts) < partitions_min:
        total = sum(offset_range.size for offset_range in parts)
        parts = [
            part
            for offset_range in parts
            for part in _cut(offset_range, max(1, round(offset_range.size / total * partitions_min)))
        ]
    return parts


def _cut(whole: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    for number in range(parts):
        start = whole.start + whole.size * number // parts
        stop = whole.start + whole.size * (number + 1) // parts
        if start < stop:
            yield whole._replace(start=start, stop=stop)


def share_tasks(ranges: Iterable[OffsetRange], tasks_min: int | None) -> list[list[OffsetRange]]:
    """What each task reads: small ranges together, one after another, unless that makes fewer tasks than are wanted."""
    alone = [[offset_range] for offset_range in ranges]
    shared: list[list[OffsetRange]] = []
    room = 0
    for (offset_range,) in alone:
        if offset_range.size > room:
            shared.append([])
            room = TASK_OFFSETS_MIN
        shared[-1].append(offset_range)
        room -= offset_range.size
    return shared if tasks_min is None or len(shared) >= tasks_min else alone
