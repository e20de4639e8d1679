"""The kind audit: does a table hold what its topics do? Both are read by tasks, which count and digest rows by stretches of
offsets; where a stretch differs, both sides are asked again for it, row by row."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.kafka.client import EARLIEST, LATEST, BlockingClient, TopicPartition
from penstock.kafka.protocol import keys
from penstock.kafka.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from penstock.spark.pipelines.job import BatchDone, Job
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.planner import Planner
from penstock.spark.ranges import OffsetRange, split_ranges
from penstock.spark.tables.audit_report import PlaceReport, Rows
from penstock.spark.tables.audit_task import Found, Scope, Stretch, Sum, TableTask, TopicTask
from penstock.spark.tables.errors import AuditDifferenceError, TableSchemaError
from penstock.spark.tables.record_columns import TopicRead, table_schema, topic_reads
from penstock.spark.tables.schemas import plan_change
from penstock.spark.tables.table import Table, table_of
from penstock.spark.tables.task_writer import DataFile
from penstock.spark.tables.tasks import run_tasks, tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRETCH_MIN: Final = 4096
STRETCHES_MAX: Final = 20_000
EXAMINED_MAX: Final = 64
TOPIC_RESOURCE: Final = 2
_NEEDED: Final = ("_partition", "_offset")


def audit_job(spec: PipelineSpec) -> Job:
    """The job of an audit."""
    return AuditJob(spec)


class AuditJob:
    """One audit: a single step, and a report."""

    def __init__(self, spec: PipelineSpec) -> None:
        assert spec.target.table is not None, "the target is a table"
        self.spec = spec
        self.report: list[str] = []
        self._table: Table = table_of(spec, spec.target.table)
        self._spark: SparkSession | None = None
        self._reads: dict[str, TopicRead] = {}
        self._is_done = False

    def plan(self) -> list[str]:
        """As `Job` says."""
        lines = [line for line in plan_lines(self.spec) if not line.startswith(("  writes", "  runs"))]
        return [*lines, f"  against {self.spec.target}; nothing is written"]

    def check(self, spark: SparkSession) -> None:
        """Whether there is something to compare with."""
        self._table.refresh()
        schema = self._table.schema()
        if schema is None:
            raise self.spec.fault("target.table", f"there is no {self._table}")
        missing = [name for name in _NEEDED if name not in schema.names]
        if missing:
            raise self.spec.fault(
                "target.table", f"{self._table} has no {' and '.join(missing)}: without them rows and records cannot be matched"
            )
        if "_topic" not in schema.names and len(self.spec.source.topics) != 1:
            raise self.spec.fault("target.table", f"{self._table} has no _topic, so that only one topic can be compared with it")
        metadata = [
            name.removeprefix("_") for name in schema.names if name in ("_topic", *_NEEDED, "_timestamp", "_key", "_headers")
        ]
        self._reads = topic_reads(self.spec, self.spec.source.topics or ("",), metadata)
        wanted = table_schema(self._reads)
        try:
            plan_change(schema, wanted, str(self._table), evolves=False, widens=lambda has, new: False)
        except TableSchemaError as error:
            raise self.spec.fault("target.table", str(error)) from error

    def start(self, spark: SparkSession) -> None:
        """As `Job` says."""
        self._spark = spark
        self.check(spark)

    def step(self) -> BatchDone | None:
        """As `Job` says."""
        assert self._spark is not None, "it was started"
        if self._is_done:
            return None
        self._is_done = True
        comparison = _Comparison(self.spec, self._spark, self._table, self._reads)
        places, dead = comparison.run()
        differing = [one for one in places if one.differs]
        self.report = [f"audit {self.spec.name}: {self.spec.source} against {self._table}"]
        for one in places:
            self.report += one.lines()
        if dead:
            self.report.append(f"  {dead:,} records cannot be decoded, and are not expected in the table")
        records, rows = sum(one.records for one in places), sum(one.rows for one in places)
        if differing:
            self.report.append(f"  {len(differing)} of {len(places)} partitions differ")
            raise AuditDifferenceError("\n".join(self.report))
        self.report.append(f"  topic and table agree: {records:,} records, each once")
        sys.stdout.write("\n".join(self.report) + "\n")
        return BatchDone(records + dead, rows, dead)

    def lag_rows(self) -> int:
        """As `Job` says."""
        return 0

    def close(self) -> None:
        """Nothing stays open."""


class _Comparison:
    """The two sides and what is compared of them."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, table: Table, reads: dict[str, TopicRead]) -> None:
        self._spec = spec
        self._spark = spark
        self._table = table
        self._reads = reads
        self._files = table.data_files()
        held = table.schema()
        assert held is not None, "there is a table"
        wanted = table_schema(reads)
        self._schema = pa.schema([one for one in held if one.name in wanted.names])
        self._topic = spec.source.topics[0] if "_topic" not in held.names else None

    def run(self) -> tuple[list[PlaceReport], int]:
        """Compare; a report for each partition, and how many records cannot be decoded."""
        ranges, reports = self._bounds()
        total = sum(one.size for one in ranges)
        size = max(STRETCH_MIN, total // STRETCHES_MAX)
        scope = Scope(self._schema, {one.place: (one.start, one.stop) for one in ranges}, size)
        in_topic = self._look_at_topic(scope, ranges)
        in_table = self._look_at_table(scope)
        dead = sum(one.dead for one in in_topic)
        records, rows = _total(in_topic), _total(in_table)
        for (place, _), one in records.items():
            reports[place].records += one.rows
        for (place, _), one in rows.items():
            reports[place].rows += one.rows
        for found in in_table:
            for place, count in found.outside.items():
                if place in reports:
                    reports[place].outside += count
        differing = sorted(key for key in {*records, *rows} if records.get(key) != rows.get(key))
        for place, _ in differing[EXAMINED_MAX:]:
            reports[place].unexplained += 1
        self._examine(scope, ranges, differing[:EXAMINED_MAX], reports)
        return [reports[place] for place in sorted(reports)], dead

    def _bounds(self) -> tuple[list[OffsetRange], dict[TopicPartition, PlaceReport]]:
        """What both sides should hold: from where the topic begins to where the table's commits say it is read up to."""
        options = next(iter(self._reads.values())).options
        with closing(BlockingClient(options.client)) as cluster:
            planner = Planner(replace(options, fails_on_data_loss=False), cluster)
            places = planner.look()
            first, last = planner.ends(places, EARLIEST), planner.ends(places, LATEST)
            start = planner.starting(places)
            compacted = _compacted(cluster, planner.topics)
            committed = self._committed()
            ranges, reports = [], {}
            for place in places:
                topic = planner.topics[place.topic]
                low = max(first[place], start[place])
                # A partition that the pipeline of its topic has not come to yet has no rows to be missed.
                written = low if any(one.topic == place.topic for one in committed) else last[place]
                high = max(min(last[place], committed.get(place, written)), low)
                ranges.append(OffsetRange(place, low, high, topic.leaders[place.partition], topic.id))
                reports[place] = PlaceReport(place, low, high, is_compacted=place.topic in compacted)
        return ranges, reports

    def _committed(self) -> dict[TopicPartition, int]:
        """Where the pipelines that write the table have come to."""
        found: dict[TopicPartition, int] = {}
        for progress in self._table.every_progress().values():
            for place, offset in progress.offsets.items():
                found[place] = max(found.get(place, 0), offset)
        return found

    def _look_at_topic(self, scope: Scope, ranges: Iterable[OffsetRange]) -> list[Found]:
        tasks = split_ranges(ranges, tasks_at_once(self._spark), self._spec.rows_max)
        return run_tasks(self._spark, TopicTask(self._reads, scope), tasks)

    def _look_at_table(self, scope: Scope) -> list[Found]:
        return run_tasks(
            self._spark, TableTask(self._table.reader(), scope, self._topic), _shared(self._files, 4 * tasks_at_once(self._spark))
        )

    def _examine(
        self,
        scope: Scope,
        ranges: Sequence[OffsetRange],
        differing: Sequence[Stretch],
        reports: dict[TopicPartition, PlaceReport],
    ) -> None:
        """Find out which rows of stretches differ."""
        if not differing:
            return
        closer = replace(scope, wanted=frozenset(differing))
        pieces = [
            one._replace(start=max(one.start, number * scope.size), stop=min(one.stop, (number + 1) * scope.size))
            for one in ranges
            for place, number in differing
            if place == one.place
        ]
        records, rows = _joined(self._look_at_topic(closer, pieces)), _joined(self._look_at_table(closer))
        width = len(self._schema.names)
        nothing: Rows = (np.zeros(0, np.int64), np.zeros((0, width), np.uint64))
        for key in differing:
            reports[key[0]].compare(records.get(key, nothing), rows.get(key, nothing), self._schema.names)


def _total(found: Iterable[Found]) -> dict[Stretch, Sum]:
    total: dict[Stretch, Sum] = {}
    for one in found:
        for key, part in one.sums.items():
            total[key] = total[key] + part if key in total else part
    return total


def _joined(found: Iterable[Found]) -> dict[Stretch, Rows]:
    parts: dict[Stretch, list[Rows]] = {}
    for one in found:
        for key, some in one.rows.items():
            parts.setdefault(key, []).extend(some)
    return {
        key: (np.concatenate([offsets for offsets, _ in some]), np.concatenate([digests for _, digests in some]))
        for key, some in parts.items()
    }


def _shared(files: Sequence[DataFile], tasks: int) -> list[list[DataFile]]:
    """Files for tasks, by size."""
    groups: list[list[Any]] = [[] for _ in range(max(min(tasks, len(files)), 0))]
    sizes = [0] * len(groups)
    for file in sorted(files, key=lambda one: one.size, reverse=True):
        least = sizes.index(min(sizes))
        groups[least].append(file)
        sizes[least] += file.size
    return groups


def _compacted(cluster: BlockingClient, topics: Iterable[str]) -> set[str]:
    """The topics from which compaction removes records."""
    wanted = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["cleanup.policy"])
        for name in topics
    ]
    answer = cluster.retry(
        lambda: cluster.call(keys.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=wanted), DescribeConfigsResponse)
    )
    return {
        one.resource_name
        for one in answer.results
        for config in one.configs
        if config.name == "cleanup.policy" and "compact" in (config.value or "")
    }
