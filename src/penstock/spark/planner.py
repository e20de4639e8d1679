"""Plans reads on the driver: discovers partitions, resolves their offsets, and checks that unread data still exists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.core.errors import PenstockError
from penstock.kafka.client import EARLIEST, LATEST, NO_OFFSET, BlockingClient, TopicInfo, TopicPartition
from penstock.kafka.protocol import ZERO_UUID
from penstock.spark.errors import CheckpointError, DataLossError, OptionError
from penstock.spark.leases import BATCH_S, is_late, new_lease_id, try_take_lease
from penstock.spark.lost_data import LostDataPolicy
from penstock.spark.options import Position, ReadOptions
from penstock.spark.pushdown import ScanBounds
from penstock.spark.ranges import OffsetRange, StreamOffset, split_ranges

Offsets = dict[TopicPartition, int]


class Planner:
    """Plans one query. `topics` holds the metadata of its topics as of the last `discover_partitions`."""

    def __init__(self, options: ReadOptions, client: BlockingClient, lost_data: LostDataPolicy | None = None) -> None:
        self._options = options
        self._client = client
        self.lost_data = LostDataPolicy(options.fails_on_data_loss) if lost_data is None else lost_data
        self.topics: dict[str, TopicInfo] = {}

    def discover_partitions(self, *, must_exist: bool = True) -> list[TopicPartition]:
        """Refresh the metadata and return the partitions to read."""
        subscription = self._options.subscription
        names = subscription.names or {topic_partition.topic for topic_partition in subscription.partitions}
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            everything = self._client.known_topics(None)
            self.topics = {name: topic for name, topic in everything.items() if pattern.fullmatch(name)}
        else:
            self.topics = self._client.topics(names) if must_exist else self._client.known_topics(names)
        existing = [TopicPartition(name, number) for name, topic in sorted(self.topics.items()) for number in topic.leaders]
        if not subscription.partitions:
            return existing
        missing = sorted(set(subscription.partitions) - set(existing))
        if missing and must_exist:
            raise OptionError(f"assign names {_listed(missing)}, which do not exist; the topics have {_listed(existing)}")
        return [topic_partition for topic_partition in existing if topic_partition in subscription.partitions]

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that have one."""
        return {name: topic.id.hex() for name, topic in self.topics.items() if topic.id != ZERO_UUID}

    def offset(self, positions: Mapping[TopicPartition, int]) -> StreamOffset:
        """Return positions with the ids of their topics."""
        names = {topic_partition.topic for topic_partition in positions}
        return StreamOffset(dict(positions), {name: id for name, id in self.topic_ids().items() if name in names})

    def report_replaced(self, ids: Mapping[str, str], error: type[PenstockError] = DataLossError) -> list[str]:
        """Report topics that were deleted and created again since these ids were noted: what was not read of them is gone.
        Returns their names if that is tolerated."""
        now = self.topic_ids()
        replaced = [name for name, known in sorted(ids.items()) if now.get(name, known) != known]
        for name in replaced:
            self.lost_data.report(
                f"topic {name!r} was deleted and created again since it was last read: it has another id, and what had not been "
                "read of it is gone",
                error,
            )
        return replaced

    def report_deleted(
        self,
        positions: Mapping[TopicPartition, int],
        topic_partitions: Iterable[TopicPartition],
        error: type[PenstockError] = DataLossError,
    ) -> list[TopicPartition]:
        """Report partitions that were read and do not exist any more. Returns them if that is tolerated."""
        deleted = sorted(set(positions) - set(topic_partitions))
        if deleted:
            left = ", ".join(f"{topic_partition} from offset {positions[topic_partition]} on" for topic_partition in deleted)
            self.lost_data.report(f"partitions that are read do not exist any more: {left}", error)
        return deleted

    def end_offsets(self, topic_partitions: Iterable[TopicPartition], end: int) -> Offsets:
        """Return the EARLIEST or LATEST offsets of partitions."""
        wanted = dict.fromkeys(topic_partitions, end)
        return self._client.offsets(wanted, committed=self._options.is_committed, topics=self.topics)

    def starting_offsets(self, topic_partitions: list[TopicPartition]) -> Offsets:
        """Return the offsets that startingOffsets resolves to."""
        return self._resolve(topic_partitions, self._options.starting, "starting")

    def ending_offsets(self, topic_partitions: list[TopicPartition]) -> Offsets:
        """Return the offsets that endingOffsets of a batch read resolves to."""
        return self._resolve(topic_partitions, self._options.ending, "ending")

    def ranges(
        self, starting: Mapping[TopicPartition, int], ending: Mapping[TopicPartition, int], tasks_min: int | None = None
    ) -> list[OffsetRange]:
        """Return the ranges that tasks read, split as the options say, or into at least `tasks_min`."""
        ranges = []
        for topic_partition, stop in sorted(ending.items()):
            topic = self.topics[topic_partition.topic]
            ranges.append(
                OffsetRange(topic_partition, starting[topic_partition], stop, topic.leaders[topic_partition.partition], topic.id)
            )
        if tasks_min is not None:
            return split_ranges(ranges, tasks_min, None)
        return split_ranges(ranges, self._options.partitions_min, self._options.records_per_partition_max)

    def plan_scan(self, bounds: ScanBounds | None = None) -> list[OffsetRange]:
        """Return the ranges of a batch read within bounds, under a lease if the broker grants one."""
        topic_partitions = self.discover_partitions()
        starting, ending = self.starting_offsets(topic_partitions), self.ending_offsets(topic_partitions)
        if bounds is not None and bounds != ScanBounds():
            starting, ending = self._within(bounds, starting, ending)
        if not self._options.is_leased:
            return self.ranges(starting, ending)
        lease = new_lease_id()
        wanted = {topic_partition: offset for topic_partition, offset in starting.items() if offset < ending[topic_partition]}
        begins = try_take_lease(self._client, lease, BATCH_S, wanted, self.topics)
        if begins is None:
            return self.ranges(starting, ending)
        if is_late(wanted, begins):
            first = self.starting_offsets(topic_partitions)
            starting = {topic_partition: max(offset, first[topic_partition]) for topic_partition, offset in starting.items()}
        return [offset_range._replace(lease=lease) for offset_range in self.ranges(starting, ending)]

    def _within(self, bounds: ScanBounds, starting: Offsets, ending: Offsets) -> tuple[Offsets, Offsets]:
        """Return the part of a scan within bounds. By their timestamps records need not be in order: all from a time on are
        behind the first of them, but how far behind a later one an earlier one may be is for the options to say."""
        wanted = [topic_partition for topic_partition in ending if bounds.wants(topic_partition)]
        first, stop = dict.fromkeys(wanted, bounds.first), {}
        if bounds.first_ms is not None:
            found = self._offsets_at(wanted, bounds.first_ms)
            first = {
                topic_partition: max(first[topic_partition], found.get(topic_partition, ending[topic_partition]))
                for topic_partition in wanted
            }
        if bounds.stop_ms is not None and self._options.disorder_max_s is not None:
            stop = self._offsets_at(wanted, bounds.stop_ms + round(self._options.disorder_max_s * 1000))
        begins, ends = {}, {}
        for topic_partition in wanted:
            limits = [ending[topic_partition], stop.get(topic_partition), bounds.stop]
            ends[topic_partition] = min(limit for limit in limits if limit is not None)
            begins[topic_partition] = min(max(starting[topic_partition], first[topic_partition]), ends[topic_partition])
        return begins, ends

    def _offsets_at(self, topic_partitions: list[TopicPartition], timestamp_ms: int) -> Offsets:
        """Return the first offset from a time on, of the partitions that have a record as late."""
        wanted = dict.fromkeys(topic_partitions, max(timestamp_ms, 0))
        found = self._client.offsets(wanted, committed=self._options.is_committed, topics=self.topics)
        return {topic_partition: offset for topic_partition, offset in found.items() if offset != NO_OFFSET}

    def check_start(self, start: StreamOffset, topic_partitions: list[TopicPartition]) -> None:
        """Check that a stream at `start` can continue with the current partitions. Raises CheckpointError or DataLossError."""
        known, read = (
            {topic_partition.topic for topic_partition in start.positions},
            {topic_partition.topic for topic_partition in topic_partitions},
        )
        subscription = self._options.subscription
        if known and subscription.pattern is None:
            names = set(subscription.names) | {topic_partition.topic for topic_partition in subscription.partitions}
            if not known & names:
                raise CheckpointError(
                    f"the checkpoint belongs to a query on {_listed(known)}, this one reads {_listed(names)}; use another "
                    "checkpointLocation, or the topic of before"
                )
        self.report_replaced({name: id for name, id in start.topic_ids.items() if name in known & read})
        self.report_deleted(start.positions, topic_partitions)

    def plan_batch(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """Return the ranges of one micro-batch, planned now or before a restart."""
        if end.begun is not None:
            start = StreamOffset(end.begun, end.topic_ids)
        topic_partitions = self.discover_partitions(must_exist=False)
        self.check_start(start, topic_partitions)
        now = self.offset(dict.fromkeys(topic_partitions, 0))
        ending: Offsets = {}
        for topic_partition, stop in end.positions.items():
            if topic_partition not in topic_partitions or end.is_other_topic(now, topic_partition.topic):
                self.lost_data.report(
                    f"offsets up to {stop} of {topic_partition} were planned to be read, and the partition is gone"
                )
            else:
                ending[topic_partition] = stop
        fresh = [
            topic_partition
            for topic_partition in ending
            if topic_partition not in start.positions or start.is_other_topic(now, topic_partition.topic)
        ]
        starting = {**start.positions, **self._first_offsets(fresh, start)}
        for topic_partition, stop in list(ending.items()):
            if starting[topic_partition] > stop:
                self.lost_data.report(
                    f"{topic_partition} ends at offset {stop}, but the query has read up to {starting[topic_partition]}: it was "
                    "truncated or recreated"
                )
                starting[topic_partition] = stop
        return self.ranges(starting, ending)

    def _first_offsets(self, fresh: list[TopicPartition], start: StreamOffset) -> Offsets:
        """Return where new partitions start: at their earliest offset."""
        if not fresh:
            return {}
        offsets = self.end_offsets(fresh, EARLIEST)
        for topic_partition, offset in offsets.items():
            if offset > 0 and topic_partition not in start.positions:
                self.lost_data.report(f"{topic_partition} is new to the query and begins at offset {offset}, not at 0")
        return offsets

    def _resolve(self, topic_partitions: list[TopicPartition], position: Position, which: str) -> Offsets:
        if position.timestamp_ms is not None:
            return self._at_times(dict.fromkeys(topic_partitions, position.timestamp_ms), which)
        if position.timestamps_ms is not None:
            _check_complete(f"{which}OffsetsByTimestamp", position.timestamps_ms, topic_partitions)
            return self._at_times(position.timestamps_ms, which)
        if position.offsets is None:
            return self.end_offsets(topic_partitions, position.end)
        _check_complete(f"{which}Offsets", position.offsets, topic_partitions)
        return self._at_offsets(position.offsets, which)

    def _at_offsets(self, wanted: Mapping[TopicPartition, int], which: str) -> Offsets:
        first, last = self.end_offsets(wanted, EARLIEST), self.end_offsets(wanted, LATEST)
        offsets = {}
        for topic_partition, offset in wanted.items():
            if offset in (EARLIEST, LATEST):
                offsets[topic_partition] = (first if offset == EARLIEST else last)[topic_partition]
                continue
            offsets[topic_partition] = min(max(offset, first[topic_partition]), last[topic_partition])
            if offsets[topic_partition] != offset:
                self.lost_data.report(
                    f"{which}Offsets asks for offset {offset} of {topic_partition}, which has {first[topic_partition]} up to "
                    f"{last[topic_partition]}"
                )
        return offsets

    def _at_times(self, wanted: Mapping[TopicPartition, int], which: str) -> Offsets:
        offsets = self._client.offsets(wanted, committed=self._options.is_committed, topics=self.topics)
        later = [topic_partition for topic_partition, offset in offsets.items() if offset == NO_OFFSET]
        if later and which == "starting" and not self._options.falls_to_latest:
            raise OptionError(
                f"no record of {_listed(later)} is from {wanted[later[0]]} (ms since 1970) or later; set "
                "startingOffsetsByTimestampStrategy to latest to begin at their end"
            )
        return {**offsets, **self.end_offsets(later, LATEST)}


def _check_complete(name: str, given: Mapping[TopicPartition, int], topic_partitions: list[TopicPartition]) -> None:
    missing, extra = sorted(set(topic_partitions) - set(given)), sorted(set(given) - set(topic_partitions))
    if missing or extra:
        said = [f"{_listed(missing)} are missing"] if missing else []
        said += [f"{_listed(extra)} are not read"] if extra else []
        raise OptionError(f"{name} must name every partition that is read, and no other: {', '.join(said)}")


def _listed(items: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, items)))
