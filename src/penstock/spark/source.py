"""The data source `penstock`: the interface that Spark calls.

Spark starts several processes per query that import this for a call or two, so the modules that do the work are imported late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from penstock.core.errors import PenstockError
from penstock.kafka.client import EARLIEST, LATEST, BlockingClient, TopicPartition
from penstock.spark.columns import Layout, default_schema, layout
from penstock.spark.errors import OptionError
from penstock.spark.kafka_options import planning_client
from penstock.spark.leases import LeaseKeeper, is_late
from penstock.spark.options import ReadMode, ReadOptions, read_options
from penstock.spark.plain_errors import plain_errors
from penstock.spark.planner import Planner
from penstock.spark.pushdown import PushedFilters, ScanBounds
from penstock.spark.ranges import StreamOffset, limit_offsets, share_tasks
from penstock.spark.releases import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from penstock.spark.table_options import column_comment, created_table_options, stored_options
from penstock.spark.value_formats import value_format, value_type_of
from penstock.spark.write_options import WriteOptions, write_options


class PenstockDataSource(DataSource):
    """`format("penstock")`, with the options and columns of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        # Batch and stream differ in options, not in columns, and which of them this is cannot be known here.
        with plain_errors():
            table = created_table_options(self.options)
            options = read_options(self.options if table is None else table, "any")
            return default_schema(options, value_type_of(options), None if table is None else column_comment(table))

    def reader(self, schema: StructType) -> DataSourceReader:
        return PenstockReader(*self._read(schema, "batch"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return PenstockStreamReader(*self._read(schema, "stream"))
        except PenstockError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise OptionError("a topic is not overwritten; use mode append, or make a new topic")
        from penstock.spark.sink import BatchSink

        with plain_errors(right="write"):
            return BatchSink(self._write(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise OptionError("a topic holds what was added, not the latest result; use output mode append or update")
        from penstock.spark.sink import StreamSink

        with plain_errors(right="write"):
            return StreamSink(self._write(schema))

    def _write(self, schema: StructType) -> WriteOptions:
        from penstock.spark.batch_building import check_schema

        options = write_options(self.options)
        check_schema(schema.names, options.topic)
        return options

    def _read(self, schema: StructType, wanted: ReadMode) -> tuple[ReadOptions, Layout]:
        with plain_errors():
            options = read_options({**stored_options(schema), **self.options}, wanted)
            if wanted == "stream" and not HAS_READ_LIMITS:
                _refuse_limits(options)
            columns = layout(schema, options)
            value_format(options, columns.value_type, fails=False)  # fails here, not in a task
            return options, columns


class PenstockReader(DataSourceReader):
    """A batch read from startingOffsets to endingOffsets, resolved when it is planned, of what passes the filters."""

    pushFilters = PushedFilters()  # noqa: N815 - Spark's name; it acts as the method

    def __init__(self, options: ReadOptions, columns: Layout) -> None:
        self._options = options
        self._layout = columns
        self.pushes_filters = options.pushes_filters
        self.bounds = ScanBounds()

    def partitions(self) -> list[InputPartition]:
        with plain_errors(self._options.client), closing(planning_client(self._options.client)) as client:
            return [InputPartition([offset_range]) for offset_range in Planner(self._options, client).plan_scan(self.bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._layout, partition)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream, whose offset covers all partitions. Only `read` runs in tasks, on a pickled copy."""

    def __init__(self, options: ReadOptions, columns: Layout) -> None:
        self._options = options
        self._layout = columns
        self._open_planner: Planner | None = None
        self._client: BlockingClient | None = None
        self._lease: LeaseKeeper | None = None
        self._initial: StreamOffset | None = None
        self._latest: StreamOffset | None = None
        self._target: StreamOffset | None = None
        self._triggered_at = float("-inf")
        self._last_end: dict[str, Any] | None = None  # only of Spark 4.1

    def __getstate__(self) -> tuple[ReadOptions, Layout]:
        return self._options, self._layout

    def __setstate__(self, state: tuple[ReadOptions, Layout]) -> None:
        self.__init__(*state)  # type: ignore[misc] # a copy starts without connections

    def initialOffset(self) -> dict[str, Any]:
        # Spark asks more than once, and "latest" would be another offset each time.
        with plain_errors(self._options.client):
            self._initial = self._initial or self._find_initial()
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._find_latest()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        with plain_errors(self._options.client):
            if start is not None and limit is not None:
                return self._next_end(start, limit)
            # Spark 4.1 does not say where the query is; this has told it, unless the query was started again.
            begun = self._last_end or (self._initial.to_json() if self._initial is not None else None)
            end = self._find_latest().to_json() if begun is None else self._next_end(begun, ReadAllAvailable())
            self._last_end = end
            return end

    def _find_initial(self) -> StreamOffset:
        planner = self._planner()
        topic_partitions = planner.discover_partitions()
        starting = planner.starting_offsets(topic_partitions)
        begins = self._hold(starting)
        if begins is not None and is_late(starting, begins):
            starting = planner.starting_offsets(topic_partitions)
        return planner.offset(starting)

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = StreamOffset.from_json(start)
        latest = self._target or self._find_latest()
        planner = self._planner()
        planner.check_start(begun, list(latest.positions))
        starting = self._starting(begun, latest)
        # Spark asks for the next batch when the last one is committed: what comes before this is not needed any more.
        self._hold({topic_partition: starting[topic_partition] for topic_partition in latest.positions})
        left = sum(max(end - starting[topic_partition], 0) for topic_partition, end in latest.positions.items())
        if isinstance(limit, (ReadMinRows, ReadMaxRows)) and self._waits_for_more(left):
            return start
        self._triggered_at = time.monotonic()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else left
        end = StreamOffset(limit_offsets(starting, latest.positions, most), latest.topic_ids)
        if (end.positions, end.topic_ids) == (begun.positions, begun.topic_ids):
            return start  # to the letter: nothing is new
        return replace(end, begun=begun.positions if begun == self._initial else None).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planner = self._planner()
        ranges = planner.plan_batch(StreamOffset.from_json(start), StreamOffset.from_json(end))
        if self._options.is_leased:
            first: dict[TopicPartition, int] = {}
            for offset_range in ranges:
                first.setdefault(offset_range.topic_partition, offset_range.start)
            assert self._client is not None
            self._keeper().cover(self._client, first, planner.topics)  # a batch of before a restart is planned by this alone
        return [InputPartition(task_ranges) for task_ranges in share_tasks(ranges, self._options.partitions_min)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._layout, partition)

    def commit(self, end: dict[str, Any]) -> None:
        if self._options.consumer is not None:
            self._planner()
            assert self._client is not None
            self._client.commit(self._options.consumer, StreamOffset.from_json(end).positions)

    def stop(self) -> None:
        if self._lease is not None:
            self._lease.release()
        self._lease = None
        if self._client is not None:
            self._client.close()
        self._open_planner = self._client = None

    def _planner(self) -> Planner:
        if self._open_planner is None:
            self._client = planning_client(self._options.client)
            self._open_planner = Planner(self._options, self._client)
        return self._open_planner

    def _hold(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int] | None:
        """Hold a lease from these positions on. Returns the earliest offsets if the lease was extended."""
        if not self._options.is_leased:
            return None
        planner = self._planner()
        assert self._client is not None
        return self._keeper().hold(self._client, positions, planner.topics)

    def _keeper(self) -> LeaseKeeper:
        if self._lease is None:
            self._lease = LeaseKeeper(self._options.client)
        return self._lease

    def _find_latest(self) -> StreamOffset:
        planner = self._planner()
        self._latest = planner.offset(planner.end_offsets(planner.discover_partitions(must_exist=False), LATEST))
        return self._latest

    def _starting(self, start: StreamOffset, latest: StreamOffset) -> Mapping[TopicPartition, int]:
        """Return where each partition continues; new ones start at their earliest offset."""
        fresh = [
            topic_partition
            for topic_partition in latest.positions
            if topic_partition not in start.positions or start.is_other_topic(latest, topic_partition.topic)
        ]
        return {**start.positions, **self._planner().end_offsets(fresh, EARLIEST)}

    def _waits_for_more(self, left: int) -> bool:
        least = self._options.offsets_per_trigger_min
        if least is None or self._target is not None or left >= least:
            return False
        return time.monotonic() - self._triggered_at < self._options.trigger_delay_max_s


class RefusedStreamReader(DataSourceStreamReader):
    """A stream that fails at its first call. Spark hides an error of `streamReader` itself behind an UnboundLocalError."""

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


def _read(options: ReadOptions, columns: Layout, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark makes up a partition of nothing where there is none to read
        return
    from penstock.spark.range_read import read_range

    with plain_errors(options.client):
        for wanted in partition.value:
            yield from read_range(options, columns, wanted)


def _refuse_limits(options: ReadOptions) -> None:
    """Refuse what only Spark from 4.2 on does."""
    if options.offsets_per_trigger_max is not None or options.offsets_per_trigger_min is not None:
        raise OptionError(
            "maxOffsetsPerTrigger and minOffsetsPerTrigger need Spark 4.2 or newer: 4.1 has a Python source read all that is new"
        )
