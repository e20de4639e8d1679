"""The kind audit: compares a table with its topics. Tasks read both sides and count and digest rows by buckets of offsets;
buckets that differ are compared again row by row."""

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
from penstock.spark.pipelines.job import BatchResult, Job
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.planner import Planner
from penstock.spark.ranges import OffsetRange, split_ranges
from penstock.spark.tables.audit_report import PartitionReport, Rows
from penstock.spark.tables.audit_task import AuditCounts, AuditScope, BucketDigest, OffsetBucket, TableTask, TopicTask
from penstock.spark.tables.errors import AuditDifferenceError, TableSchemaError
from penstock.spark.tables.record_columns import TopicRead, table_schema, topic_reads
from penstock.spark.tables.schemas import plan_change
from penstock.spark.tables.table import Table, table_of
from penstock.spark.tables.task_writer import DataFile
from penstock.spark.tables.tasks import run_tasks, tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET_OFFSETS_MIN: Final = 4096
BUCKETS_MAX: Final = 20_000
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
        """See `Job`."""
        lines = [line for line in plan_lines(self.spec) if not line.startswith(("  writes", "  runs"))]
        return [*lines, f"  against {self.spec.target}; nothing is written"]

    def check(self, spark: SparkSession) -> None:
        """Check that table and topics exist."""
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
        """See `Job`."""
        self._spark = spark
        self.check(spark)

    def step(self) -> BatchResult | None:
        """See `Job`."""
        assert self._spark is not None, "it was started"
        if self._is_done:
            return None
        self._is_done = True
        comparison = _TopicTableComparison(self.spec, self._spark, self._table, self._reads)
        topic_partitions = comparison.run()
        dead = sum(len(report.dead) for report in topic_partitions)
        differing = [report for report in topic_partitions if report.differs]
        self.report = [f"audit {self.spec.name}: {self.spec.source} against {self._table}"]
        for report in topic_partitions:
            self.report += report.lines()
        if dead:
            self.report.append(f"  {dead:,} records cannot be decoded, and are not expected in the table")
        records, rows = sum(report.records for report in topic_partitions), sum(report.rows for report in topic_partitions)
        if differing:
            self.report.append(f"  {len(differing)} of {len(topic_partitions)} partitions differ")
            raise AuditDifferenceError("\n".join(self.report))
        self.report.append(f"  topic and table agree: {records:,} records, each once")
        sys.stdout.write("\n".join(self.report) + "\n")
        return BatchResult(records + dead, rows, dead)

    def lag_rows(self) -> int:
        """See `Job`."""
        return 0

    def close(self) -> None:
        """Nothing to close."""


class _TopicTableComparison:
    """The two sides of the comparison and its scope."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, table: Table, reads: dict[str, TopicRead]) -> None:
        self._spec = spec
        self._spark = spark
        self._table = table
        self._reads = reads
        self._files = table.data_files()
        held = table.schema()
        assert held is not None, "there is a table"
        wanted = table_schema(reads)
        self._schema = pa.schema([field for field in held if field.name in wanted.names])
        self._topic = spec.source.topics[0] if "_topic" not in held.names else None

    def run(self) -> list[PartitionReport]:
        """Compare both sides. Returns a report for each partition."""
        ranges, reports = self._bounds()
        total = sum(offset_range.size for offset_range in ranges)
        size = max(BUCKET_OFFSETS_MIN, total // BUCKETS_MAX)
        scope = AuditScope(
            self._schema, {offset_range.topic_partition: (offset_range.start, offset_range.stop) for offset_range in ranges}, size
        )
        in_topic = self._look_at_topic(scope, ranges)
        in_table = self._look_at_table(scope)
        for topic_counts in in_topic:
            for topic_partition, offsets in topic_counts.dead.items():
                reports[topic_partition].dead += offsets
        records, rows = _total(in_topic), _total(in_table)
        for (topic_partition, _), digest in records.items():
            reports[topic_partition].records += digest.rows
        for (topic_partition, _), digest in rows.items():
            reports[topic_partition].rows += digest.rows
        for table_counts in in_table:
            for topic_partition, count in table_counts.outside.items():
                if topic_partition in reports:
                    reports[topic_partition].outside += count
        differing = sorted(key for key in {*records, *rows} if records.get(key) != rows.get(key))
        for topic_partition, _ in differing[EXAMINED_MAX:]:
            reports[topic_partition].unexplained += 1
        self._examine(scope, ranges, differing[:EXAMINED_MAX], reports)
        return [reports[topic_partition] for topic_partition in sorted(reports)]

    def _bounds(self) -> tuple[list[OffsetRange], dict[TopicPartition, PartitionReport]]:
        """The offsets both sides should hold: from the start of the topic to the end offsets in the table's commits."""
        options = next(iter(self._reads.values())).options
        with closing(BlockingClient(options.client)) as client:
            planner = Planner(replace(options, fails_on_data_loss=False), client)
            topic_partitions = planner.discover_partitions()
            first, last = planner.end_offsets(topic_partitions, EARLIEST), planner.end_offsets(topic_partitions, LATEST)
            start = planner.starting_offsets(topic_partitions)
            compacted = _compacted(client, planner.topics)
            committed = self._committed()
            ranges, reports = [], {}
            for topic_partition in topic_partitions:
                topic = planner.topics[topic_partition.topic]
                low = max(first[topic_partition], start[topic_partition])
                # A partition that the pipeline has not read yet has no rows that could be missing.
                written = (
                    low
                    if any(committed_partition.topic == topic_partition.topic for committed_partition in committed)
                    else last[topic_partition]
                )
                high = max(min(last[topic_partition], committed.get(topic_partition, written)), low)
                ranges.append(OffsetRange(topic_partition, low, high, topic.leaders[topic_partition.partition], topic.id))
                reports[topic_partition] = PartitionReport(
                    topic_partition, low, high, is_compacted=topic_partition.topic in compacted
                )
        return ranges, reports

    def _committed(self) -> dict[TopicPartition, int]:
        """The progress of the pipelines that write the table."""
        committed: dict[TopicPartition, int] = {}
        for progress in self._table.every_progress().values():
            for topic_partition, offset in progress.offsets.items():
                committed[topic_partition] = max(committed.get(topic_partition, 0), offset)
        return committed

    def _look_at_topic(self, scope: AuditScope, ranges: Iterable[OffsetRange]) -> list[AuditCounts]:
        tasks = split_ranges(ranges, tasks_at_once(self._spark), self._spec.rows_max)
        return run_tasks(self._spark, TopicTask(self._reads, scope), tasks)

    def _look_at_table(self, scope: AuditScope) -> list[AuditCounts]:
        return run_tasks(
            self._spark, TableTask(self._table.reader(), scope, self._topic), _shared(self._files, 4 * tasks_at_once(self._spark))
        )

    def _examine(
        self,
        scope: AuditScope,
        ranges: Sequence[OffsetRange],
        differing: Sequence[OffsetBucket],
        reports: dict[TopicPartition, PartitionReport],
    ) -> None:
        """Find the rows that differ in some buckets."""
        if not differing:
            return
        closer = replace(scope, wanted=frozenset(differing))
        pieces = [
            offset_range._replace(
                start=max(offset_range.start, number * scope.size), stop=min(offset_range.stop, (number + 1) * scope.size)
            )
            for offset_range in ranges
            for topic_partition, number in differing
            if topic_partition == offset_range.topic_partition
        ]
        records, rows = _joined(self._look_at_topic(closer, pieces)), _joined(self._look_at_table(closer))
        width = len(self._schema.names)
        nothing: Rows = (np.zeros(0, np.int64), np.zeros((0, width), np.uint64))
        for key in differing:
            reports[key[0]].compare(records.get(key, nothing), rows.get(key, nothing), self._schema.names)


def _total(counted: Iterable[AuditCounts]) -> dict[OffsetBucket, BucketDigest]:
    total: dict[OffsetBucket, BucketDigest] = {}
    for counts in counted:
        for key, part in counts.sums.items():
            total[key] = total[key] + part if key in total else part
    return total


def _joined(counted: Iterable[AuditCounts]) -> dict[OffsetBucket, Rows]:
    parts: dict[OffsetBucket, list[Rows]] = {}
    for counts in counted:
        for key, some in counts.rows.items():
            parts.setdefault(key, []).extend(some)
    return {
        key: (np.concatenate([offsets for offsets, _ in some]), np.concatenate([digests for _, digests in some]))
        for key, some in parts.items()
    }


def _shared(files: Sequence[DataFile], tasks: int) -> list[list[DataFile]]:
    """Distribute files over tasks by size."""
    groups: list[list[Any]] = [[] for _ in range(max(min(tasks, len(files)), 0))]
    sizes = [0] * len(groups)
    for file in sorted(files, key=lambda candidate: candidate.size, reverse=True):
        least = sizes.index(min(sizes))
        groups[least].append(file)
        sizes[least] += file.size
    return groups


def _compacted(client: BlockingClient, topics: Iterable[str]) -> set[str]:
    """The compacted topics."""
    wanted = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["cleanup.policy"])
        for name in topics
    ]
    answer = client.retry(
        lambda: client.call(keys.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=wanted), DescribeConfigsResponse)
    )
    return {
        result.resource_name
        for result in answer.results
        for config in result.configs
        if config.name == "cleanup.policy" and "compact" in (config.value or "")
    }
