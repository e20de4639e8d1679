"""The kind export: topics to a table, each record once. A batch is a range of offsets in each partition; its files and where it
ends are one commit of the table, so the table tells where to go on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.spark.pipelines.job import BatchDone, Job
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.query import Query
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_source import TopicSource
from penstock.spark.pipelines.views import View, make_views
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.dead_letters import DeadLetters, DeadTask
from penstock.spark.tables.errors import TableSchemaError
from penstock.spark.tables.export_task import Exported, ExportTask
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.record_columns import table_schema, topic_reads
from penstock.spark.tables.table_target import TableTarget
from penstock.spark.tables.task_writer import DataFile, TaskWriter
from penstock.spark.tables.tasks import run_tasks, tasks_at_once
from penstock.spark.tables.transformed import query_schema, write_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_job(spec: PipelineSpec) -> Job:
    """The job of an export."""
    return ExportJob(spec)


class ExportJob:
    """One run of an export."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._work: _Work | None = None

    def plan(self) -> list[str]:
        """As `Job` says."""
        table = self.spec.target.table
        assert table is not None, "the target is a table"
        lines = plan_lines(self.spec)
        lines.append(f"  cuts    by {', '.join(table.partition_by) or 'nothing'}; offsets are in the table's own commits")
        if table.compact_every_s is not None:
            lines.append(f"  keeps   files of about {table.compact_file_bytes >> 20} MiB")
        return lines

    def check(self, spark: SparkSession) -> None:
        """Whether the table takes the rows and the topics are those of before; nothing is changed."""
        with closing(TableTarget(self.spec)) as target, closing(TopicSource(self.spec)) as source:
            try:
                target.table.check(Rows(self.spec, spark).schema)
            except TableSchemaError as error:
                raise self.spec.fault("target.table", str(error)) from error
            begin(source, target.table.progress())

    def start(self, spark: SparkSession) -> None:
        """As `Job` says."""
        rows = Rows(self.spec, spark)
        self._work = _Work(self.spec, spark, rows)
        self._work.start()

    def step(self) -> BatchDone | None:
        """As `Job` says."""
        assert self._work is not None, "it was started"
        return self._work.step()

    def lag_rows(self) -> int:
        """As `Job` says."""
        return 0 if self._work is None else self._work.source.lag_rows()

    def close(self) -> None:
        """As `Job` says."""
        if self._work is not None:
            self._work.source.close()
            self._work.target.close()


def decodes(spec: PipelineSpec) -> bool:
    """Whether values are decoded, so that some may not be what they should."""
    return spec.source.value.is_decoded or any(one.is_decoded for one in spec.source.values.values())


def begin(source: TopicSource, progress: Progress | None) -> None:
    """Stand where a table's commit says."""
    if progress is None:
        source.begin(None)
    else:
        source.begin(progress.offsets, progress.topic_ids)


class Rows:
    """The rows of an export: records as they are, or what a query makes of them."""

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

    def write(
        self, ranges: Sequence[OffsetRange], writer: TaskWriter, dead: DeadTask, name: str
    ) -> tuple[list[Exported], list[DataFile]]:
        """The files of a batch, not committed yet, and what tasks found on the way."""
        if self._query is None:
            done = run_tasks(self._spark, ExportTask(self._reads, writer, dead, name), ranges)
            return done, [file for one in done for file in one.files]
        # A query may read its input more than once, so what cannot be decoded is looked for apart.
        found = run_tasks(self._spark, ExportTask(self._reads, None, dead, name), ranges)
        frame = self._query.apply({view.name: view.frame(self._query.session, ranges) for view in self._views})
        return found, write_frame(frame, writer, name)


class _Work:
    """What is open while an export runs."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, rows: Rows) -> None:
        self._spec = spec
        self._spark = spark
        self._rows = rows
        self.source = TopicSource(spec)
        self.target = TableTarget(spec)
        self._dead = DeadLetters(spec, self.target.fence)

    def start(self) -> None:
        """Take over, and stand where the table says."""
        before = self.target.open(self._rows.schema)
        begin(self.source, self.target.progress)
        if decodes(self._spec):
            self._dead.start(self.target.cluster, self.source.ids, before)
        self.target.follow(sorted({place.topic for place in self.source.positions}))

    def step(self) -> BatchDone | None:
        """One batch: files, dead letters, the commit, in this order."""
        target, source = self.target, self.source
        ranges = source.next_ranges(self._spec.rows_max, tasks_at_once(self._spark))
        if not ranges:
            target.maintain(self._spark)
            return None
        name = f"{target.next_batch:08d}"
        done, files = self._rows.write(ranges, target.table.writer(), self._dead.task(), name)
        after = source.after(ranges)
        letters = self._dead.commit([one.dead for one in done], after, source.ids)
        target.commit(files, after, source.ids)
        source.advance(ranges)
        target.note_positions(source.positions)
        target.maintain(self._spark)
        return BatchDone(
            sum(one.rows_read for one in done), sum(one.rows for one in files), letters, sum(one.bytes_read for one in done)
        )
