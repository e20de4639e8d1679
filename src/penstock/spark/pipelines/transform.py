"""Stateless transform: topics to a topic, one batch of offset ranges at a time; rows and offsets are committed atomically."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.pipelines.batch_rows import BatchRows
from penstock.spark.pipelines.dead_letters import send_dead
from penstock.spark.pipelines.job import BatchResult, CheckableJob, Job
from penstock.spark.pipelines.kinds import make_job_of
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.row_sending import TaskReport, dead_letter_counts
from penstock.spark.pipelines.simple_query import SimpleQuery, simple_query
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_rows import topic_rows
from penstock.spark.pipelines.topic_source import TopicSource, positions_from_json, positions_to_json
from penstock.spark.pipelines.topic_target import TopicTarget
from penstock.spark.pipelines.views import ReadRangesTask
from penstock.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def transform_job(spec: PipelineSpec) -> Job:
    """The job of a transform; whether it is stateful is decided from its query."""
    return TransformJob(spec)


class TransformJob:
    """Delegates to the stateful or stateless job once the query's plan is known."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._job: Job | None = None

    def plan(self) -> list[str]:
        """See `Job`."""
        return plan_lines(self.spec)

    def check(self, spark: SparkSession) -> None:
        """See `CheckableJob`."""
        self._job = self._chosen(spark)

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        self._job = self._job or self._chosen(spark)
        self._job.start(spark)

    def step(self) -> BatchResult | None:
        """See `Job`."""
        assert self._job is not None
        return self._job.step()

    def lag_rows(self) -> int:
        """See `Job`."""
        return 0 if self._job is None else self._job.lag_rows()

    def close(self) -> None:
        """See `Job`."""
        if self._job is not None:
            self._job.close()

    def _chosen(self, spark: SparkSession) -> Job:
        from penstock.spark.pipelines.stateful import StatefulTransform, check_stream

        rows = BatchRows(self.spec, spark)
        assert rows.query is not None
        assert self.spec.transform is not None
        parts = rows.query.stateful_parts()
        wanted = self.spec.transform.state
        if parts and wanted == "stateless":
            raise self.spec.fault(
                "transform.state", f"the query remembers rows from one batch to the next ({', '.join(parts)}); set it to auto"
            )
        if parts or wanted == "stateful":
            check_stream(self.spec, rows.query, rows.views)
            return StatefulTransform(self.spec)
        if self.spec.target.topic is not None:
            result = topic_rows(self.spec, rows.frame([]), rows.query.field)
            return StatelessTransform(self.spec, rows, simple_query(result) if len(rows.views) == 1 else None)
        job = make_job_of("export", self.spec)
        if isinstance(job, CheckableJob):
            job.check(spark)
        return job


@dataclass(frozen=True)
class SelectRows:
    """Reads ranges by their numbers and makes the rows of a simple query."""

    read: ReadRangesTask
    query: SimpleQuery

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.query.select(self.read(batches))


class StatelessTransform:
    """Each step runs one Spark job over the new offsets, and one commit. The rows of a simple query are made by the tasks that
    read them."""

    def __init__(self, spec: PipelineSpec, rows: BatchRows, simple: SimpleQuery | None = None) -> None:
        self.spec = spec
        self._source = TopicSource(spec)
        self._target = TopicTarget(spec)
        self._rows = rows
        self._simple = simple
        self._spark: SparkSession | None = None

    def plan(self) -> list[str]:
        """See `Job`."""
        return plan_lines(self.spec)

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        self._spark = spark
        record = self._target.open(has_dead_letters=any(view.is_decoded for view in self._rows.views))
        self._source.begin(positions_from_json(record.get("offsets", {})), record.get("ids"))

    def step(self) -> BatchResult | None:
        """See `Job`."""
        assert self._spark is not None
        ranges = self._source.next_ranges(self.spec.rows_max, self.spec.tasks_min)
        if not ranges:
            self._target.idle()
            return None
        reports = self._send(ranges)
        counts = self._rows.read_counts()
        if counts.dead:
            reports += send_dead(
                self._spark,
                self.spec,
                self._rows.views,
                (offset_range for offset_range, _ in counts.dead),
                self._target.dead_sending(),
            )
        changes = {"offsets": positions_to_json(self._source.after(ranges)), "ids": self._source.ids}
        self._target.commit(reports, changes)
        self._source.advance(ranges)
        return BatchResult(
            counts.rows, sum(report.rows for report in reports), empty_rows=counts.empty, **dead_letter_counts(reports)
        )

    def _send(self, ranges: list[OffsetRange]) -> list[TaskReport]:
        assert self._rows.query is not None
        if self._simple is None:
            return self._target.send(topic_rows(self.spec, self._rows.frame(ranges), self._rows.query.field))
        numbers, read = self._rows.reading(ranges)
        return self._target.send(numbers, SelectRows(read, self._simple))

    def lag_rows(self) -> int:
        """See `Job`."""
        return self._source.lag_rows()

    def close(self) -> None:
        """See `Job`."""
        self._source.close()
        self._target.close()
