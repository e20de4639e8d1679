"""Planning on the driver: which partitions there are, where they begin and end, and whether what is still to be read is there."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from penstock.kafka.client import EARLIEST, LATEST, NO_OFFSET, BlockingClient, TopicInfo, TopicPartition
from penstock.kafka.protocol import ZERO_UUID
from penstock.spark.errors import CheckpointError, DataLossError, OptionError
from penstock.spark.leases import BATCH_S, hold, is_late, new_lease_id
from penstock.spark.options import Position, ReadOptions
from penstock.spark.ranges import OffsetRange, StreamOffset, split_ranges

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class Planner:
    """Answers for one query. `topics` is what is known of the topics it reads since `look` was last called."""

    def __init__(self, options: ReadOptions, cluster: BlockingClient) -> None:
        self._options = options
        self._cluster = cluster
        self.topics: dict[str, TopicInfo] = {}

    def look(self, *, must_exist: bool = True) -> list[TopicPartition]:
        """The partitions to read as of now."""
        asked = self._options.subscription
        names = asked.names or {place.topic for place in asked.partitions}
        if asked.pattern is not None:
            pattern = re.compile(asked.pattern)
            everything = self._cluster.known_topics(None)
            self.topics = {name: topic for name, topic in everything.items() if pattern.fullmatch(name)}
        else:
            self.topics = self._cluster.topics(names) if must_exist else self._cluster.known_topics(names)
        there = [TopicPartition(name, number) for name, topic in sorted(self.topics.items()) for number in topic.leaders]
        if not asked.partitions:
            return there
        missing = sorted(set(asked.partitions) - set(there))
        if missing and must_exist:
            raise OptionError(f"assign names {_listed(missing)}, which do not exist; the topics have {_listed(there)}")
        return [place for place in there if place in asked.partitions]

    def offset(self, positions: Mapping[TopicPartition, int]) -> StreamOffset:
        """Positions together with the ids of their topics."""
        names = {place.topic for place in positions}
        ids = {name: self.topics[name].id.hex() for name in names if self.topics[name].id != ZERO_UUID}
        return StreamOffset(dict(positions), ids)

    def ends(self, places: Iterable[TopicPartition], end: int) -> Offsets:
        """EARLIEST or LATEST of some partitions."""
        wanted = dict.fromkeys(places, end)
        return self._cluster.offsets(wanted, committed=self._options.is_committed, topics=self.topics)

    def starting(self, places: list[TopicPartition]) -> Offsets:
        """Where reading begins."""
        return self._resolve(places, self._options.starting, "starting")

    def ending(self, places: list[TopicPartition]) -> Offsets:
        """Where a batch read ends."""
        return self._resolve(places, self._options.ending, "ending")

    def ranges(self, starting: Mapping[TopicPartition, int], ending: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """What tasks read, cut as the options say."""
        found = []
        for place, stop in sorted(ending.items()):
            topic = self.topics[place.topic]
            found.append(OffsetRange(place, starting[place], stop, topic.leaders[place.partition], topic.id))
        return split_ranges(found, self._options.partitions_min, self._options.records_per_partition_max)

    def scan(self) -> list[OffsetRange]:
        """The ranges of a batch read, held under a lease if there is one to be had."""
        places = self.look()
        starting, ending = self.starting(places), self.ending(places)
        if not self._options.is_leased:
            return self.ranges(starting, ending)
        lease = new_lease_id()
        wanted = {place: offset for place, offset in starting.items() if offset < ending[place]}
        begins = hold(self._cluster, lease, BATCH_S, wanted, self.topics)
        if begins is None:
            return self.ranges(starting, ending)
        if is_late(wanted, begins):
            starting = self.starting(places)
        return [one._replace(lease=lease) for one in self.ranges(starting, ending)]

    def check_start(self, start: StreamOffset, places: list[TopicPartition]) -> None:
        """Whether a stream that has come to `start` can go on with the partitions there are now."""
        known, read = {place.topic for place in start.positions}, {place.topic for place in places}
        subscription = self._options.subscription
        if known and subscription.pattern is None:
            asked = set(subscription.names) | {place.topic for place in subscription.partitions}
            if not known & asked:
                raise CheckpointError(
                    f"the checkpoint belongs to a query on {_listed(known)}, this one reads {_listed(asked)}; use another "
                    "checkpointLocation, or the topic of before"
                )
        now = self.offset(dict.fromkeys(places, 0))
        for topic in sorted(known & read):
            if start.is_other_topic(now, topic):
                self.report_loss(
                    f"topic {topic!r} was deleted and made again since the checkpoint was written: it has another id, and what "
                    "the query had not read yet is gone"
                )
        gone = sorted(set(start.positions) - set(places))
        if gone:
            left = ", ".join(f"{place} from offset {start.positions[place]} on" for place in gone)
            self.report_loss(f"the query reads from partitions that are not there any more: {left}")

    def batch(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """The ranges of one micro-batch, whether it was planned just now or before a restart."""
        if end.begun is not None:
            start = StreamOffset(end.begun, end.topic_ids)
        places = self.look(must_exist=False)
        self.check_start(start, places)
        now = self.offset(dict.fromkeys(places, 0))
        ending: Offsets = {}
        for place, stop in end.positions.items():
            if place not in places or end.is_other_topic(now, place.topic):
                self.report_loss(f"offsets up to {stop} of {place} were planned to be read, and the partition is gone")
            else:
                ending[place] = stop
        fresh = [place for place in ending if place not in start.positions or start.is_other_topic(now, place.topic)]
        starting = {**start.positions, **self._first_offsets(fresh, start)}
        for place, stop in list(ending.items()):
            if starting[place] > stop:
                self.report_loss(
                    f"{place} ends at offset {stop}, but the query has read up to {starting[place]}: it was cut or is another"
                )
                starting[place] = stop
        return self.ranges(starting, ending)

    def report_loss(self, what: str) -> None:
        """Fail, or warn and go on, as failOnDataLoss says."""
        if self._options.fails_on_data_loss:
            raise DataLossError(f"{what}. Set failOnDataLoss to false to go on with what is there")
        _log.warning("%s; going on with what is there, as failOnDataLoss is false", what)

    def _first_offsets(self, fresh: list[TopicPartition], start: StreamOffset) -> Offsets:
        """Partitions that have come into being since are read from their beginning."""
        if not fresh:
            return {}
        found = self.ends(fresh, EARLIEST)
        for place, offset in found.items():
            if offset > 0 and place not in start.positions:
                self.report_loss(f"{place} is new to the query and begins at offset {offset}, not at 0")
        return found

    def _resolve(self, places: list[TopicPartition], position: Position, which: str) -> Offsets:
        if position.timestamp_ms is not None:
            return self._at_times(dict.fromkeys(places, position.timestamp_ms), which)
        if position.timestamps_ms is not None:
            _check_complete(f"{which}OffsetsByTimestamp", position.timestamps_ms, places)
            return self._at_times(position.timestamps_ms, which)
        if position.offsets is None:
            return self.ends(places, position.end)
        _check_complete(f"{which}Offsets", position.offsets, places)
        return self._at_offsets(position.offsets, which)

    def _at_offsets(self, wanted: Mapping[TopicPartition, int], which: str) -> Offsets:
        first, last = self.ends(wanted, EARLIEST), self.ends(wanted, LATEST)
        found = {}
        for place, offset in wanted.items():
            if offset in (EARLIEST, LATEST):
                found[place] = (first if offset == EARLIEST else last)[place]
                continue
            found[place] = min(max(offset, first[place]), last[place])
            if found[place] != offset:
                self.report_loss(
                    f"{which}Offsets asks for offset {offset} of {place}, which has {first[place]} up to {last[place]}"
                )
        return found

    def _at_times(self, wanted: Mapping[TopicPartition, int], which: str) -> Offsets:
        found = self._cluster.offsets(wanted, committed=self._options.is_committed, topics=self.topics)
        later = [place for place, offset in found.items() if offset == NO_OFFSET]
        if later and which == "starting" and not self._options.falls_to_latest:
            raise OptionError(
                f"no record of {_listed(later)} is from {wanted[later[0]]} (ms since 1970) or later; set "
                "startingOffsetsByTimestampStrategy to latest to begin at their end"
            )
        return {**found, **self.ends(later, LATEST)}


def _check_complete(name: str, given: Mapping[TopicPartition, int], places: list[TopicPartition]) -> None:
    missing, extra = sorted(set(places) - set(given)), sorted(set(given) - set(places))
    if missing or extra:
        said = [f"{_listed(missing)} are missing"] if missing else []
        said += [f"{_listed(extra)} are not read"] if extra else []
        raise OptionError(f"{name} must name every partition that is read, and no other: {', '.join(said)}")


def _listed(items: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, items)))
