"""The kind replay: copies a range of offsets or of time into a topic or a table; it ends with the range and can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.kafka.client import BlockingClient, TopicPartition
from penstock.spark.columns import Layout
from penstock.spark.options import Position, ReadOptions
from penstock.spark.pipelines.fence import Fence, target_options
from penstock.spark.pipelines.job import BatchResult, Job
from penstock.spark.pipelines.kinds import make_job_of
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.row_sending import REPORT, TaskReport, unpack_reports
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_source import TopicSource, positions_from_json, positions_to_json
from penstock.spark.pipelines.topic_target import TopicTarget
from penstock.spark.ranges import OffsetRange
from penstock.spark.task_transaction import task_transaction
from penstock.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_RECORDS = Layout(pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS)]))


def replay_job(spec: PipelineSpec) -> Job:
    """The job of a replay."""
    return TopicReplay(spec) if spec.target.topic is not None else TableReplay(spec)


class ReplayTask:
    """A task that copies ranges: stored batches to record batches, without Java rows in between."""

    def __init__(
        self, read: ReadOptions, ranges: list[OffsetRange], sending: tuple[WriteOptions, str], keeps_partition: bool
    ) -> None:
        self._read = read
        self._ranges = ranges
        self._options, self._prefix = sending
        self._keeps_partition = keeps_partition

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.spark.range_read import read_range

        transaction = task_transaction(self._options, self._prefix)
        count = 0
        for batch in batches:
            for number in batch.column(0).to_pylist():
                offset_range = self._ranges[number]
                for rows in read_range(self._read, _RECORDS, offset_range):
                    transaction.send(self._options.topic, self._placed(rows, offset_range.topic_partition.partition))
                    count += rows.num_rows
        yield TaskReport(transaction.finish(), rows_read=count, rows=count).packed()

    def _placed(self, rows: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        if not self._keeps_partition:
            return rows
        return rows.append_column("partition", pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows))


class TopicReplay:
    """Replay into a topic: rows and offsets are committed atomically."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._source = TopicSource(spec)
        self._target = TopicTarget(spec)
        self._spark: SparkSession | None = None
        self._keeps_partition = False
        self._fixed: Mapping[str, Any] = {}

    def plan(self) -> list[str]:
        """See `Job`."""
        return plan_lines(self.spec)

    def check(self, spark: SparkSession) -> None:
        """See `CheckableJob`."""
        self._target.check()

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        self._spark = spark
        record = self._target.open(has_dead_letters=False)
        self._fixed = _fixed_range(self.spec, self._source, record)
        sizes = {topic_partition.topic: 0 for topic_partition in self._source.positions}
        for topic_partition in self._source.positions:
            sizes[topic_partition.topic] += 1
        target = self._target.client.topics([self._target.topic])[self._target.topic]
        # With the same partitions, rows keep their order and keys stay together.
        self._keeps_partition = list(sizes.values()) == [len(target.leaders)]

    def step(self) -> BatchResult | None:
        """See `Job`."""
        assert self._spark is not None
        ranges = self._source.next_ranges(self.spec.rows_max)
        if not ranges:
            return None
        sending = self._target.options, f"{self._target.fence.prefix}rows/"
        task = ReplayTask(self._source.options, ranges, sending, self._keeps_partition)
        reports = unpack_reports(self._spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(task, REPORT).collect())
        after = positions_to_json(self._source.after(ranges))
        self._target.commit(reports, {**self._fixed, "offsets": after, "ids": self._source.ids})
        self._source.advance(ranges)
        return BatchResult(sum(report.rows_read for report in reports), sum(report.rows for report in reports))

    def lag_rows(self) -> int:
        """See `Job`."""
        return self._source.lag_rows()

    def close(self) -> None:
        """See `Job`."""
        self._source.close()
        self._target.close()


class TableReplay:
    """Replay into a table: an export of a fixed range, which is stored in the pipeline's record."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._job: Job = make_job_of("export", spec)

    def plan(self) -> list[str]:
        """See `Job`."""
        return self._job.plan()

    def check(self, spark: SparkSession) -> None:
        """See `CheckableJob`."""
        check = getattr(self._job, "check", None)
        if check is not None:
            check(spark)

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        options = target_options(self.spec).client
        with closing(BlockingClient(options)) as client, closing(TopicSource(self.spec, client)) as source:
            fence = Fence(self.spec, client)
            fixed = _fixed_range(self.spec, source, fence.take())
            if client.commits_together():
                fence.commit([], fixed)
            start, end = (Position(offsets=positions_from_json(fixed[name])) for name in ("begun", "ends"))
        self._job.close()
        self._job = make_job_of("export", replace(self.spec, source=replace(self.spec.source, start=start, end=end)))
        self._job.start(spark)

    def step(self) -> BatchResult | None:
        """See `Job`."""
        return self._job.step()

    def lag_rows(self) -> int:
        """See `Job`."""
        return self._job.lag_rows()

    def close(self) -> None:
        """See `Job`."""
        self._job.close()


def _fixed_range(spec: PipelineSpec, source: TopicSource, record: Mapping[str, Any]) -> dict[str, Any]:
    """The range of the replay, fixed at its first start because `latest` moves. Raises SpecError if the pipeline has replayed
    another range before."""
    digest = sha256(repr((spec.source.topics, spec.source.pattern, spec.source.start, spec.source.end)).encode()).hexdigest()[:16]
    if record.get("replay", digest) != digest:
        raise spec.fault(
            "source", f"pipeline {spec.name!r} has replayed another range before; give this replay a name of its own"
        )
    source.begin(positions_from_json(record.get("offsets", {})), record.get("ids"))
    if "ends" in record:
        source.end_at(positions_from_json(record["ends"]))
    begun: Mapping[TopicPartition, int] = positions_from_json(record["begun"]) if "begun" in record else source.positions
    assert source.ends is not None
    return {"replay": digest, "begun": positions_to_json(begun), "ends": positions_to_json(source.ends)}
