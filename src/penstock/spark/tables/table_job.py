"""The common part of kinds that write topics to a table: progress, batches, and the order of commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.spark.pipelines.job import BatchResult
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_source import TopicSource
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.dead_letters import DeadLetters, first_dead
from penstock.spark.tables.errors import TableSchemaError
from penstock.spark.tables.export_task import ExportReport
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.table_target import FileChange, TableTarget
from penstock.spark.tables.tasks import tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WrittenFiles(NamedTuple):
    """The uncommitted files of a batch, counts of the tasks, and how many rows are written for it."""

    found: list[ExportReport]
    files: FileChange
    rows: int


class TableJob(ABC):
    """A `Job` from topics to a table. Subclasses define the columns and how a batch becomes files."""

    compacts_small_files = True

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.source = TopicSource(spec)
        self.target = TableTarget(spec)
        self.dead_letters = DeadLetters(spec, self.target.fence)
        self._spark: SparkSession | None = None

    @abstractmethod
    def plan(self) -> list[str]:
        """See `Job`."""

    @abstractmethod
    def prepare(self, spark: SparkSession) -> pa.Schema:
        """Prepare to write. Returns the columns of the rows."""

    @abstractmethod
    def write(self, spark: SparkSession, ranges: Sequence[OffsetRange], name: str) -> WrittenFiles:
        """Write the files of a batch under a name of its own."""

    @property
    def decodes(self) -> bool:
        """Whether values are decoded, so that there may be dead letters."""
        source = self.spec.source
        return source.value.is_decoded or any(value.is_decoded for value in source.values.values())

    def check(self, spark: SparkSession) -> None:
        """Check that the table accepts the rows and that the topics were not recreated. Changes nothing."""
        try:
            self.target.table.check(self.prepare(spark))
        except TableSchemaError as error:
            raise self.spec.fault("target.table", str(error)) from error
        self._begin(self.target.table.progress())

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        self._spark = spark
        record = self.target.open(self.prepare(spark))
        self._begin(self.target.progress)
        if self.decodes:
            self.dead_letters.start(self.target.client, self.source.ids, record)
        self.target.follow(sorted({topic_partition.topic for topic_partition in self.source.positions}))

    def step(self) -> BatchResult | None:
        """See `Job`. Files first, then dead letters, then the commit of the table."""
        spark, source, target = self._spark, self.source, self.target
        assert spark is not None, "it was started"
        ranges = source.next_ranges(self.spec.rows_max, tasks_at_once(spark))
        if not ranges:
            target.maintain(spark, compacts=self.compacts_small_files)
            return None
        written = self.write(spark, ranges, f"{target.next_batch:08d}")
        after = source.after(ranges)
        dead = self.dead_letters.commit([task.dead for task in written.found], after, source.ids)
        target.commit(written.files, after, source.ids)
        source.advance(ranges)
        target.note_positions(source.positions)
        target.maintain(spark, compacts=self.compacts_small_files)
        return BatchResult(
            rows_read=sum(task.rows_read for task in written.found),
            rows_written=written.rows,
            dead_letters=dead,
            bytes_read=sum(task.bytes_read for task in written.found),
            empty_rows=sum(task.empty_rows for task in written.found),
            first_dead=first_dead(task.dead for task in written.found),
        )

    def lag_rows(self) -> int:
        """See `Job`."""
        return self.source.lag_rows()

    def close(self) -> None:
        """See `Job`."""
        self.source.close()
        self.target.close()

    def _begin(self, progress: Progress | None) -> None:
        """Start from the table's last commit."""
        if progress is None:
            self.source.begin(None)
        else:
            self.source.begin(progress.offsets, progress.topic_ids)
