"""Exports to many tables, each row to the one that its columns name.

No commit covers several tables, so a batch is planned before it is written: the pipeline's record in the broker names its end
offsets and its number, and every table that gets rows of it keeps both in its own commit. A batch that was interrupted is
repeated with the same offsets, and tables that have its number are passed over. When all have it, the record moves on.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.kafka.client import BlockingClient, TopicPartition
from penstock.spark.errors import RowError
from penstock.spark.pipelines.fence import Fence, target_options
from penstock.spark.pipelines.job import BatchResult
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_source import TopicSource, positions_from_json, positions_to_json
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.dead_letters import DeadLetters, DeadLetterTarget, first_dead
from penstock.spark.tables.errors import TableOptionError
from penstock.spark.tables.export_rows import ExportRows, rule_lines
from penstock.spark.tables.export_task import ExportReport, ExportTask
from penstock.spark.tables.fan_out_task import (
    FILES,
    TABLE,
    NameRowsTask,
    OneTable,
    ReadNamedTask,
    TableNames,
    WithoutTable,
    WriteTablesTask,
)
from penstock.spark.tables.merge import MergedFiles
from penstock.spark.tables.table_target import FileChange, TableTarget
from penstock.spark.tables.tasks import run_tasks, tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES_MAX: Final = 1000
PLANNED: Final = "planned"
"""In the pipeline's record: the number and the end offsets of the batch that is being written."""


class PlannedBatch(NamedTuple):
    """A batch: its number, where it ends, and what it reads."""

    number: int
    after: dict[TopicPartition, int]
    ranges: Sequence[OffsetRange]


class FanOutExport:
    """One run of an export to many tables."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._source = TopicSource(spec)
        self._client = BlockingClient(target_options(spec).client)
        self._fence = Fence(spec, self._client)
        self._dead_letters = DeadLetters(spec, self._fence)
        self._rows: FanOutRows | None = None
        self._targets: dict[str, TableTarget] = {}
        self._spark: SparkSession | None = None

    def plan(self) -> list[str]:
        """See `Job`."""
        columns = ", ".join(self.spec.target.fan_out)
        return [*plan_lines(self.spec), f"  fans out by {columns}: a table for each value", *rule_lines(self.spec)]

    def check(self, spark: SparkSession) -> None:
        """See `CheckableJob`."""
        FanOutRows(self.spec, spark)
        if not self._client.commits_together():
            raise self.spec.fault(
                "target.table",
                f"the broker at {self.spec.brokers} is not Penstock: it keeps no record of the batch that many tables get; name "
                "one table",
            )

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        self._spark = spark
        self._rows = FanOutRows(self.spec, spark)
        record = self._fence.take()
        self._source.begin(positions_from_json(record.get("offsets", {})), record.get("ids"))
        self._dead_letters.start(self._client, self._source.ids, record)

    def step(self) -> BatchResult | None:
        """See `Job`."""
        spark, rows, source = self._spark, self._rows, self._source
        assert spark is not None
        assert rows is not None, "it was started"
        batch = self._next_batch(spark)
        if batch is None:
            self._maintain(spark)
            return None
        name = f"{batch.number:08d}"
        named = rows.look(batch.ranges, self._dead_letters.task(), name)
        targets = {table: self._target(table, rows.schema) for table in named.tables}
        fresh = {table: target for table, target in targets.items() if not _holds(target, batch)}
        written = rows.write_each(named, batch.ranges, fresh, name)
        dead = self._dead_letters.commit([task.dead for task in named.reports], batch.after, source.ids)
        for table, files in written.items():
            targets[table].commit(files.files, batch.after, source.ids, query=str(batch.number))
        self._fence.commit(
            [], {"offsets": positions_to_json(batch.after), "ids": source.ids, "number": batch.number, PLANNED: None}
        )
        source.advance(batch.ranges)
        self._maintain(spark)
        return BatchResult(
            rows_read=sum(task.rows_read for task in named.reports),
            rows_written=sum(files.rows for files in written.values()),
            dead_letters=dead,
            bytes_read=sum(task.bytes_read for task in named.reports),
            empty_rows=sum(task.empty_rows for task in named.reports),
            first_dead=first_dead(task.dead for task in named.reports),
        )

    def lag_rows(self) -> int:
        """See `Job`."""
        return self._source.lag_rows()

    def close(self) -> None:
        """See `Job`."""
        self._source.close()
        for target in self._targets.values():
            target.close()
        self._client.close()

    def _next_batch(self, spark: SparkSession) -> PlannedBatch | None:
        """The batch that was planned and not finished, or the next one, planned now."""
        record, tasks = self._fence.content, tasks_at_once(spark)
        planned: Mapping[str, Any] | None = record.get(PLANNED)
        if planned is not None:
            ends = positions_from_json(planned["offsets"])
            return PlannedBatch(int(planned["number"]), ends, self._source.ranges_to(ends, tasks))
        ranges = self._source.next_ranges(self.spec.rows_max, tasks)
        if not ranges:
            return None
        batch = PlannedBatch(int(record.get("number", 0)) + 1, self._source.after(ranges), ranges)
        self._fence.commit([], {PLANNED: {"number": batch.number, "offsets": positions_to_json(batch.after)}})
        return batch

    def _target(self, table: str, schema: pa.Schema) -> TableTarget:
        target = self._targets.get(table)
        if target is None:
            assert self.spec.target.table is not None
            place = TableNames(self.spec.target.fan_out).table(self.spec.target.table, table)
            target = TableTarget(self.spec, place, self._fence)
            target.join(schema)
            self._targets[table] = target
        return target

    def _maintain(self, spark: SparkSession) -> None:
        for target in self._targets.values():
            target.maintain(spark)


def _holds(target: TableTarget, batch: PlannedBatch) -> bool:
    """Whether a table has the rows of a batch. Raises TableOptionError if it has some of a later one."""
    progress = target.progress
    if progress is None or (progress.query.isdigit() and int(progress.query) < batch.number):
        return False
    if progress.query == str(batch.number) and progress.offsets == batch.after:
        return True
    raise TableOptionError(
        f"{target.table} holds rows of pipeline {target.spec.name} that its record in the broker does not know of: the record is "
        "lost, or the pipeline wrote to this table alone before. Give the pipeline another name and other tables"
    )


class NamedRows(NamedTuple):
    """The rows of a batch with their tables, which tables these are, and what was counted as they were looked for."""

    frame: DataFrame
    tables: list[str]
    reports: list[ExportReport]


class FanOutRows(ExportRows):
    """The rows of an export to many tables."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        super().__init__(spec, spark)
        columns = spec.target.fan_out
        for name in columns:
            if name not in self.rows.names or pa.types.is_nested(self.rows.field(name).type):
                raise spec.fault(
                    "target.table", f"there is no column {name!r} that could name a table; there are {', '.join(self.rows.names)}"
                )
        self._names = TableNames(columns)

    def look(self, ranges: Sequence[OffsetRange], dead: DeadLetterTarget, name: str) -> NamedRows:
        """Find the tables of a batch, and write its dead letters."""
        refuses = () if self._query is not None else (*self._refuses(), WithoutTable(self._names, self._key))
        reports = run_tasks(self._spark, ExportTask(self._reads, None, dead, name, refuses), ranges)
        frame = self._frame(ranges).persist()
        tables = sorted(row[TABLE] for row in frame.select(TABLE).distinct().limit(TABLES_MAX + 1).collect())
        if len(tables) > TABLES_MAX:
            raise RowError(f"rows of one batch go to more than {TABLES_MAX:,} tables; is the column the right one?")
        return NamedRows(frame, tables, reports)

    def write_each(
        self, named: NamedRows, ranges: Sequence[OffsetRange], targets: Mapping[str, TableTarget], name: str
    ) -> dict[str, MergedFiles]:
        """Write the files of some tables."""
        try:
            if self._merge is None:
                return self._append_each(named.frame, targets, name)
            return {table: self._merge_one(named.frame, ranges, table, target, name) for table, target in targets.items()}
        finally:
            named.frame.unpersist()

    @property
    def _key(self) -> tuple[str, ...]:
        return () if self._merge is None else self._merge.key

    def _frame(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        schema = from_arrow_schema(self.rows.append(pa.field(TABLE, pa.string())))
        if self._query is not None:
            return self._query_frame(self._query, ranges).mapInArrow(NameRowsTask(self._names), schema)
        task = ReadNamedTask(self._names, self.rows, self._reads, tuple(ranges), self._key)
        return self._spark.range(0, len(ranges), 1, max(len(ranges), 1)).mapInArrow(task, schema)

    def _append_each(self, frame: DataFrame, targets: Mapping[str, TableTarget], name: str) -> dict[str, MergedFiles]:
        if not targets:
            return {}
        chosen = frame.filter(frame[TABLE].isin(list(targets)))
        tasks = min(len(targets), tasks_at_once(self._spark))
        task = WriteTablesTask({table: target.table.writer() for table, target in targets.items()}, name)
        done = chosen.repartition(tasks, TABLE).sortWithinPartitions(TABLE).mapInArrow(task, FILES).collect()
        written = {row[TABLE]: pickle.loads(bytes(row["files"])) for row in done}
        return {table: MergedFiles(FileChange(files), sum(file.rows for file in files)) for table, files in written.items()}

    def _merge_one(
        self, frame: DataFrame, ranges: Sequence[OffsetRange], table: str, target: TableTarget, name: str
    ) -> MergedFiles:
        assert self._merge is not None
        if self._query is not None:
            return self._merge.merge_frame(self._spark, target.table, frame.filter(frame[TABLE] == table).drop(TABLE), name)
        chosen = OneTable(self._names, table)
        return self._merge.merge_records(self._spark, target.table, self._reads, ranges, name, chosen=chosen)
