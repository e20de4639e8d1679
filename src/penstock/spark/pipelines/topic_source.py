"""The source of stateless pipelines: reads topics from the offsets its target has committed, one batch of ranges at a time."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.core.errors import PenstockError
from penstock.kafka.client import EARLIEST, LATEST, Address, BlockingClient, TopicPartition
from penstock.spark.leases import LeaseKeeper
from penstock.spark.lost_data import LostDataPolicy
from penstock.spark.options import ReadOptions, read_options
from penstock.spark.pipelines.broker_options import as_in_file, reading_options
from penstock.spark.pipelines.errors import ChangedInputError, ChangedSubjectError
from penstock.spark.pipelines.spec import PipelineSpec, ValueSpec
from penstock.spark.pipelines.subject_following import followed
from penstock.spark.pipelines.topic_making import keep_until_read
from penstock.spark.planner import Planner
from penstock.spark.ranges import OffsetRange, limit_offsets

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


def source_options(spec: PipelineSpec, value: ValueSpec | None = None) -> ReadOptions:
    """The options to read the pipeline's topics; values are decoded by `value`, or left as bytes without it."""
    source = spec.source
    given = {
        "kafka.isolation.level": "read_committed",
        **reading_options(spec.options),
        "kafka.bootstrap.servers": spec.brokers,
        "includeHeaders": str(source.headers).lower(),
        "failOnDataLoss": str(not source.skips_lost_data).lower(),
    }
    if source.pattern is not None:
        given["subscribePattern"] = source.pattern
    else:
        given["subscribe"] = ",".join(source.topics)
    if value is not None and value.is_decoded:
        given["valueFormat"], given["valueSchema"] = value.format, value.schema or ""
        if value.registry is not None:
            given["valueRegistry"] = value.registry.url
    options = read_options(given, "any")
    options = replace(options, client=as_in_file(options.client))
    if value is not None and value.registry is not None:
        options = replace(options, value_registry=value.registry)
    # If no record is as late as the start time, all future records are later.
    return replace(options, starting=source.start, ending=source.end or options.ending, falls_to_latest=True)


class TopicSource:
    """The offsets of a pipeline in its topics. Call `begin` once, then `next_ranges`, and `advance` when those are committed."""

    def __init__(self, spec: PipelineSpec, client: BlockingClient | None = None) -> None:
        self.spec = spec
        self.options = source_options(spec)
        self.positions: Offsets = {}
        self.ids: dict[str, str] = {}
        self.ends: Offsets | None = None  # the end offsets; None: it does not end
        self._client = BlockingClient(self.options.client) if client is None else client
        lost_data = LostDataPolicy(not spec.source.skips_lost_data, "source.lost_data", "skip")
        self._planner = Planner(self.options, self._client, lost_data)
        self._lease = LeaseKeeper(self.options.client) if self.options.is_leased else None
        self._latest: Offsets = {}

    def begin(self, committed: Mapping[TopicPartition, int] | None, ids: Mapping[str, str] | None = None) -> None:
        """Start at the target's offsets, or at those of the file if the target has none. Raises ChangedInputError if they do not
        match the topics."""
        topic_partitions = self._planner.discover_partitions()
        if not committed:
            self.positions = self._planner.starting_offsets(topic_partitions)
        else:
            self.positions = dict(committed)
            self.check_topics(ids or {})
            self._check_gone(topic_partitions)
        self.ids = {**(ids or {}), **self._planner.topic_ids()}
        self._take_new(topic_partitions)
        if self.spec.kind == "replay" or self.spec.trigger.once:
            self.end_at(None)  # later records are not read
        if self.spec.vital:
            keep_until_read(self._client, {topic_partition.topic for topic_partition in topic_partitions}, self.spec.consumer)
        self._hold()
        self._tell_consumer()

    def end_at(self, ends: Mapping[TopicPartition, int] | None) -> Offsets:
        """Set the end offsets; None resolves those of the file now."""
        self.ends = dict(ends) if ends is not None else self._planner.ending_offsets(self._planner.discover_partitions())
        return self.ends

    def check_topics(self, ids: Mapping[str, str]) -> None:
        """Raise ChangedInputError if a topic was recreated: its id differs."""
        for topic in self._planner.report_replaced(ids, ChangedInputError):
            for topic_partition in [topic_partition for topic_partition in self.positions if topic_partition.topic == topic]:
                del self.positions[topic_partition]

    def next_ranges(self, rows_max: int, tasks_min: int = 1) -> list[OffsetRange]:
        """The next ranges to read, about `rows_max` offsets at most, split into at least `tasks_min` ranges if possible. Empty if
        there is nothing to read."""
        topic_partitions = self._planner.discover_partitions(must_exist=False)
        self.check_topics(self.ids)
        self.ids.update(self._planner.topic_ids())
        self._check_gone(topic_partitions)
        self._take_new(topic_partitions)
        self._hold()
        first = self._planner.end_offsets(topic_partitions, EARLIEST)
        self._latest = self._planner.end_offsets(topic_partitions, LATEST)
        for topic_partition in topic_partitions:
            self._check_there(topic_partition, first[topic_partition], self._latest[topic_partition])
        latest = self._bounded()
        ends = limit_offsets(self.positions, latest, rows_max)
        ranges = self._planner.ranges(self.positions, ends, tasks_min)
        if ranges and followed(self.spec) is not self.spec:
            raise ChangedSubjectError("the subject of the values has another schema by now")
        return ranges

    def ranges_to(self, ends: Mapping[TopicPartition, int], tasks_min: int = 1) -> list[OffsetRange]:
        """The ranges up to offsets that were planned before, by this run or another."""
        bounds, self.ends = self.ends, dict(ends)
        try:
            return self.next_ranges(sys.maxsize, tasks_min)
        finally:
            self.ends = bounds

    def advance(self, ranges: Iterable[OffsetRange]) -> None:
        """Called when ranges are committed in the target: commits the consumer's offsets to the broker."""
        self.positions = self.after(ranges)
        self._tell_consumer()
        try:
            # What was produced while the batch ran counts as lag.
            self._latest = self._planner.end_offsets(list(self._latest), LATEST)
        except PenstockError as error:
            _log.warning("the lag is that of before the batch: %s", error)

    def after(self, ranges: Iterable[OffsetRange]) -> Offsets:
        """The offsets after these ranges are committed."""
        positions = dict(self.positions)
        for offset_range in ranges:
            positions[offset_range.topic_partition] = max(positions.get(offset_range.topic_partition, 0), offset_range.stop)
        return positions

    def stand_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Set the offsets to those committed elsewhere, and commit them to the broker."""
        self.positions = {**self.positions, **positions}
        self._tell_consumer()

    def discover_partitions(self) -> None:
        """Refresh the end offsets and partitions."""
        self._latest = self._planner.end_offsets(self._planner.discover_partitions(must_exist=False), LATEST)

    def leaders(self) -> dict[TopicPartition, tuple[Address, bytes]]:
        """The known leader of each partition and the id of its topic."""
        return {
            TopicPartition(name, number): (leader, topic.id)
            for name, topic in self._planner.topics.items()
            for number, leader in topic.leaders.items()
        }

    def lag_rows(self) -> int:
        """The lag in offsets as of the last refresh."""
        return sum(max(end - self.positions.get(topic_partition, 0), 0) for topic_partition, end in self._bounded().items())

    def is_over(self) -> bool:
        """Whether the end offsets are reached."""
        return self.ends is not None and all(
            self.positions.get(topic_partition, 0) >= end for topic_partition, end in self.ends.items()
        )

    def close(self) -> None:
        """Release the lease and close the connections."""
        if self._lease is not None:
            self._lease.release()
        self._client.close()

    def _hold(self) -> None:
        """Protect uncommitted records from automatic deletion with a lease."""
        if self._lease is not None:
            self._lease.hold(self._client, self.positions, self._planner.topics)

    def _tell_consumer(self) -> None:
        """Commit the consumer's offsets to the broker. Failures are ignored until the next batch: the target's offsets decide."""
        try:
            self._client.commit(self.spec.consumer, self.positions)
        except PenstockError as error:
            _log.warning("consumer %s stays behind in the broker for now: %s", self.spec.consumer, error)

    def _bounded(self) -> Offsets:
        if self.ends is None:
            return self._latest
        return {
            topic_partition: min(end, self.ends[topic_partition])
            for topic_partition, end in self._latest.items()
            if topic_partition in self.ends
        }

    def _check_gone(self, topic_partitions: list[TopicPartition]) -> None:
        for topic_partition in self._planner.report_deleted(self.positions, topic_partitions, ChangedInputError):
            del self.positions[topic_partition]

    def _take_new(self, topic_partitions: list[TopicPartition]) -> None:
        """Start reading new partitions from their beginning."""
        fresh = [topic_partition for topic_partition in topic_partitions if topic_partition not in self.positions]
        if fresh:
            self.positions.update(self._planner.end_offsets(fresh, EARLIEST))

    def _check_there(self, topic_partition: TopicPartition, first: int, last: int) -> None:
        position = self.positions[topic_partition]
        if position < first:
            what = (
                f"{topic_partition} begins at offset {first}, but was read only up to {position}: retention or trimming deleted "
                "the rest"
            )
            self._planner.lost_data.report(what)
            self.positions[topic_partition] = first
        elif position > last and (self.ends is None or position < self.ends.get(topic_partition, 0)):
            what = f"{topic_partition} ends at offset {last}, but was read up to {position}: it was truncated or recreated"
            self._planner.lost_data.report(what, ChangedInputError)
            self.positions[topic_partition] = last


def positions_to_json(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets by topic and partition."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def positions_from_json(by_topic: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Parse the offsets."""
    return {TopicPartition(topic, int(number)): int(offset) for topic, by in by_topic.items() for number, offset in by.items()}
