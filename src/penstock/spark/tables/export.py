"""The kind export: topics to a table, exactly once. A batch is a range of offsets in each partition; its files and end offsets
are one commit of the table, from which the next batch continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.pipelines.job import Job
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.query import Query
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.views import View, make_views
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.dead_letters import DeadLetterTarget
from penstock.spark.tables.export_task import ExportTask
from penstock.spark.tables.record_columns import table_schema, topic_reads
from penstock.spark.tables.table_job import TableJob, WrittenFiles
from penstock.spark.tables.task_writer import TaskWriter
from penstock.spark.tables.tasks import run_tasks
from penstock.spark.tables.transformed import query_schema, write_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_job(spec: PipelineSpec) -> Job:
    """The job of an export."""
    return ExportJob(spec)


class ExportJob(TableJob):
    """One run of an export."""

    def __init__(self, spec: PipelineSpec) -> None:
        super().__init__(spec)
        self._rows: ExportRows | None = None

    def plan(self) -> list[str]:
        """See `Job`."""
        table = self.spec.target.table
        assert table is not None, "the target is a table"
        lines = plan_lines(self.spec)
        lines.append(f"  cuts    by {', '.join(table.partition_by) or 'nothing'}; offsets are in the table's own commits")
        if table.compact_every_s is not None:
            lines.append(f"  keeps   files of about {table.compact_file_bytes >> 20} MiB")
        return lines

    def prepare(self, spark: SparkSession) -> pa.Schema:
        """See `TableJob`."""
        self._rows = ExportRows(self.spec, spark)
        return self._rows.schema

    def write(self, spark: SparkSession, ranges: Sequence[OffsetRange], name: str) -> WrittenFiles:
        """See `TableJob`."""
        assert self._rows is not None, "it was prepared"
        return self._rows.write(ranges, self.target.table.writer(), self.dead_letters.task(), name)


class ExportRows:
    """The rows of an export: the records themselves, or the result of a query."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        table = spec.target.table
        assert table is not None, "the target is a table"
        self._spark = spark
        self._reads = topic_reads(spec, spec.source.topics or ("",), table.metadata)
        self._query: Query | None = None
        self._views: list[View] = []
        if spec.transform is None:
            self.schema = table_schema(self._reads)
            return
        self._views = make_views(spec)
        self._query = Query(spec, spark, self._views)
        parts = self._query.stateful_parts()
        if parts:
            raise spec.fault(
                "transform",
                f"{parts[0]} needs state, which an export does not keep; use kind transform with this table as target",
            )
        self.schema = query_schema(self._query, self._views)

    def write(self, ranges: Sequence[OffsetRange], writer: TaskWriter, dead: DeadLetterTarget, name: str) -> WrittenFiles:
        """Write the files of a batch."""
        if self._query is None:
            done = run_tasks(self._spark, ExportTask(self._reads, writer, dead, name), ranges)
            return WrittenFiles(done, [file for task in done for file in task.files])
        # A query may read its input more than once, so dead letters are collected separately.
        reports = run_tasks(self._spark, ExportTask(self._reads, None, dead, name), ranges)
        frame = self._query.apply({view.name: view.frame(self._query.session, ranges) for view in self._views})
        return WrittenFiles(reports, write_frame(frame, writer, name))
