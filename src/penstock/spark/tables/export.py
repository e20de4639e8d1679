"""The kind export: topics to a table, exactly once. A batch is a range of offsets in each partition; its files and end offsets
are one commit of the table, from which the next batch continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.pipelines.job import Job
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.export_rows import ExportRows, rule_lines
from penstock.spark.tables.fan_out import FanOutExport
from penstock.spark.tables.table_job import TableJob, WrittenFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_job(spec: PipelineSpec) -> Job:
    """The job of an export, to one table or to many."""
    return FanOutExport(spec) if spec.target.fan_out else ExportJob(spec)


class ExportJob(TableJob):
    """One run of an export."""

    def __init__(self, spec: PipelineSpec) -> None:
        super().__init__(spec)
        self._rows: ExportRows | None = None

    def plan(self) -> list[str]:
        """See `Job`."""
        return [*plan_lines(self.spec), *rule_lines(self.spec)]

    def prepare(self, spark: SparkSession) -> pa.Schema:
        """See `TableJob`."""
        self._rows = ExportRows(self.spec, spark)
        return self._rows.schema

    def write(self, spark: SparkSession, ranges: Sequence[OffsetRange], name: str) -> WrittenFiles:
        """See `TableJob`."""
        assert self._rows is not None, "it was prepared"
        return self._rows.write(ranges, self.target.table, self.dead_letters.task(), name)
