"""The values a query is planned with: offset ranges, the offset of a stream, and how both are split."""

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
    """Offsets from `start` up to `stop` of one partition, with its leader and the topic's id at planning time. A task that reads
    it renews its `lease`, if it has one."""

    topic_partition: TopicPartition
    start: int
    stop: int
    leader: Address
    topic_id: bytes
    lease: bytes = b""

    @property
    def size(self) -> int:
        """The number of offsets in the range."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position of a stream: the next offset of each partition, and the ids of their topics.

    The end of a query's first batch also records where that batch has `begun`. Spark stores only ends; if "latest" were resolved
    again after a restart, it would be a later offset, and the records in between would never be read.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begun: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form stored in checkpoints: {"topic": {"0": 23}, "$topicIds": {"topic": "…"}}."""
        by_topic = _by_topic(self.positions)
        if self.topic_ids:
            by_topic[_IDS] = dict(sorted(self.topic_ids.items()))
        if self.begun is not None:
            by_topic[_BEGUN] = _by_topic(self.begun)
        return by_topic

    @classmethod
    def from_json(cls, by_topic: Mapping[str, Any]) -> StreamOffset:
        """Parse the form stored in checkpoints. A checkpoint of Spark's Kafka source reads as one without ids."""
        try:
            begun = _positions(by_topic[_BEGUN]) if _BEGUN in by_topic else None
            return cls(_positions(by_topic), dict(by_topic.get(_IDS, {})), begun)
        except (AttributeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint holds {by_topic!r}, which is no offset of topics; is it that of another source? Use another "
                "checkpointLocation"
            ) from error

    def is_other_topic(self, other: StreamOffset, topic: str) -> bool:
        """Whether the topic has different ids here and in `other`."""
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
    """Return ends that cover about `most` offsets at most, in proportion to the lag of each partition; every partition with a
    lag gets at least one, so that none is starved."""
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
    """Split ranges by size into about `partitions_min`, none with more than `records_max` offsets."""
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
    """Return the ranges of each task: small ranges share a task unless that makes fewer tasks than `tasks_min`."""
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
