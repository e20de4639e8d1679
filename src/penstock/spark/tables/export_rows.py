"""The rows of an export, and how a batch of them becomes files: records as they are, or the result of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.pipelines.query import Query
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.views import View, make_views
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.dead_letters import DeadLetterTarget
from penstock.spark.tables.export_task import ExportTask, RefusedRecords
from penstock.spark.tables.merge import READ as MERGE_READ
from penstock.spark.tables.merge import TableMerge, merge_rules
from penstock.spark.tables.merge_task import WithoutMergeKey
from penstock.spark.tables.record_columns import table_schema, topic_reads
from penstock.spark.tables.table import Table
from penstock.spark.tables.table_job import WrittenFiles
from penstock.spark.tables.table_target import FileChange
from penstock.spark.tables.tasks import run_tasks
from penstock.spark.tables.transformed import query_schema, write_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rule_lines(spec: PipelineSpec) -> list[str]:
    """How a table is written, for people."""
    table = spec.target.table
    assert table is not None, "the target is a table"
    lines = [f"  cuts    by {', '.join(table.partition_by) or 'nothing'}; offsets are in the table's own commits"]
    if table.merge is not None:
        lines.append(f"  merges  by {', '.join(table.merge.key)}; {merge_rules(table.merge)}")
    if table.compact_every_s is not None:
        lines.append(f"  keeps   files of about {table.compact_file_bytes >> 20} MiB")
    return lines


class ExportRows:
    """The rows of an export: the records themselves, or the result of a query."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        table = spec.target.table
        assert table is not None, "the target is a table"
        self._spark = spark
        self._reads = topic_reads(
            spec, spec.source.topics or ("",), table.metadata, also=MERGE_READ if table.merge is not None else ()
        )
        self._query: Query | None = None
        self._views: list[View] = []
        self._merge: TableMerge | None = None
        self.rows = self._row_schema(spec)
        """The columns of rows before they are merged."""
        self.schema = self.rows
        """The columns of the table."""
        if table.merge is not None:
            if spec.transform is not None and table.merge.order_by is None:
                raise spec.fault(
                    "target.table.merge",
                    "order_by is missing; rows of a query have no offsets of their own: name the column that says which row of a "
                    "key is the last",
                )
            self._merge = TableMerge(spec, table.merge, self.schema)
            self.schema = self._merge.schema

    def _row_schema(self, spec: PipelineSpec) -> pa.Schema:
        if spec.transform is None:
            return table_schema(self._reads)
        self._views = make_views(spec)
        self._query = Query(spec, self._spark, self._views)
        parts = self._query.stateful_parts()
        if parts:
            raise spec.fault(
                "transform",
                f"{parts[0]} needs state, which an export does not keep; use kind transform with this table as target",
            )
        return query_schema(self._query, self._views)

    def write(self, ranges: Sequence[OffsetRange], table: Table, dead: DeadLetterTarget, name: str) -> WrittenFiles:
        """Write the files of a batch."""
        if self._query is not None:
            return self._write_query(self._query, ranges, table, dead, name)
        if self._merge is None:
            done = run_tasks(self._spark, ExportTask(self._reads, table.writer(), dead, name), ranges)
            files = [file for task in done for file in task.files]
            return WrittenFiles(done, FileChange(files), sum(file.rows for file in files))
        reports = run_tasks(self._spark, ExportTask(self._reads, None, dead, name, self._refuses()), ranges)
        return WrittenFiles(reports, *self._merge.merge_records(self._spark, table, self._reads, ranges, name))

    def _write_query(
        self, query: Query, ranges: Sequence[OffsetRange], table: Table, dead: DeadLetterTarget, name: str
    ) -> WrittenFiles:
        # A query may read its input more than once, so dead letters are collected separately.
        reports = run_tasks(self._spark, ExportTask(self._reads, None, dead, name), ranges)
        frame = self._query_frame(query, ranges)
        if self._merge is not None:
            return WrittenFiles(reports, *self._merge.merge_frame(self._spark, table, frame, name))
        files = write_frame(frame, table.writer(), name)
        return WrittenFiles(reports, FileChange(files), sum(file.rows for file in files))

    def _query_frame(self, query: Query, ranges: Sequence[OffsetRange]) -> DataFrame:
        return query.apply({view.name: view.frame(query.session, ranges) for view in self._views})

    def _refuses(self) -> tuple[RefusedRecords, ...]:
        return () if self._merge is None else (WithoutMergeKey(self._merge.key),)
