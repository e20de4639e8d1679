"""Merges rows into a table by key. Files that hold a changed key are rewritten without it, and what remains of the changed keys
is written beside them; both are one commit, with the end offsets."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.pipelines.spec import MergeSpec, PipelineSpec
from penstock.spark.ranges import OffsetRange
from penstock.spark.releases import arrow_schema
from penstock.spark.tables.merge_task import (
    CURRENT,
    VALID_FROM,
    VALID_TO,
    ChangeLayout,
    ChosenRows,
    DropKeysTask,
    ReadFrameTask,
    ReadRecordsTask,
    ReadStoredTask,
    WriteMergedTask,
)
from penstock.spark.tables.record_columns import TopicRead
from penstock.spark.tables.table import Table
from penstock.spark.tables.table_target import FileChange
from penstock.spark.tables.task_writer import DataFile
from penstock.spark.tables.tasks import run_tasks, tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS_A_TASK: Final = 20_000
TIME: Final = pa.timestamp("us", "UTC")
READ: Final = ("partition", "offset", "timestamp")
"""What a merge of records needs besides their rows."""


class MergedFiles(NamedTuple):
    """The uncommitted files of a merge, and how many rows it has written for changed keys."""

    files: FileChange
    rows: int


class TableMerge:
    """Merges batches of one pipeline."""

    def __init__(self, spec: PipelineSpec, merge: MergeSpec, rows: pa.Schema) -> None:
        """`rows` are the columns of the pipeline's rows. Raises SpecError if they do not fit the merge."""
        self._merge = merge
        self.key = merge.key
        self._is_query = spec.transform is not None
        for field, name in [
            *(("key", name) for name in merge.key),
            *([("order_by", merge.order_by)] if merge.order_by is not None else []),
            *([("delete.column", merge.delete_column)] if merge.delete_column is not None else []),
        ]:
            if name not in rows.names:
                raise spec.fault(f"target.table.merge.{field}", f"there is no column {name!r}; there are {', '.join(rows.names)}")
        for name in merge.key:
            kind = rows.field(name).type
            if pa.types.is_nested(kind) or pa.types.is_floating(kind):
                raise spec.fault("target.table.merge.key", f"column {name!r} is {kind}, by which rows cannot be told apart")
        self._order = TIME if merge.order_by is None else rows.field(merge.order_by).type
        columns = [field for field in rows if field.name != merge.delete_column]
        if merge.order_by == merge.delete_column and merge.order_by is not None:
            raise spec.fault("target.table.merge.order_by", "it is the column of delete as well, which the table does not have")
        if merge.history:
            columns += [pa.field(VALID_FROM, self._order), pa.field(VALID_TO, self._order), pa.field(CURRENT, pa.bool_())]
        self.schema = pa.schema(columns)
        """The columns of the table."""

    def merge_records(
        self,
        spark: SparkSession,
        table: Table,
        reads: Mapping[str, TopicRead],
        ranges: Sequence[OffsetRange],
        name: str,
        *,
        chosen: ChosenRows | None = None,
    ) -> MergedFiles:
        """Merge the records of some ranges, or those of them that are chosen."""
        layout = self._layout(table)
        rows = spark.range(0, len(ranges), 1, max(len(ranges), 1))
        changes = rows.mapInArrow(ReadRecordsTask(layout, reads, tuple(ranges), chosen), from_arrow_schema(layout.schema))
        return self._merge_changes(spark, table, layout, changes, name)

    def merge_frame(self, spark: SparkSession, table: Table, frame: DataFrame, name: str) -> MergedFiles:
        """Merge the rows of a query."""
        layout = self._layout(table)
        changes = frame.mapInArrow(ReadFrameTask(layout), from_arrow_schema(layout.schema))
        return self._merge_changes(spark, table, layout, changes, name)

    def _layout(self, table: Table) -> ChangeLayout:
        table.refresh()
        schema = table.schema()
        assert schema is not None, "the table is prepared"
        # As Spark hands rows to tasks.
        return ChangeLayout(self._merge, arrow_schema(from_arrow_schema(schema)), self._order)

    def _merge_changes(
        self, spark: SparkSession, table: Table, layout: ChangeLayout, changes: DataFrame, name: str
    ) -> MergedFiles:
        merge, reader, writer = self._merge, table.reader(), table.writer()
        files = table.data_files()
        merged = {file.path for file in files}
        # They are read several times, and a query may be expensive.
        changes = changes.persist()
        try:
            keys = _distinct(changes.select(*(f"`{column}`" for column in merge.key)).toArrow(), layout.table)
            if not keys.num_rows:
                return MergedFiles(FileChange([], merged=merged), 0)
            rewritten = run_tasks(spark, DropKeysTask(reader, writer, keys, name), files)
            hit = [(file, kept) for file, kept in zip(files, rewritten, strict=True) if kept is not None]
            removed = [file for file, _ in hit]
            if removed and (merge.history or merge.order_by is not None):
                task = ReadStoredTask(layout, reader, removed, keys)
                stored = spark.range(0, len(removed), 1, len(removed)).mapInArrow(task, from_arrow_schema(layout.schema))
                changes_and_stored = changes.union(stored)
            else:
                changes_and_stored = changes
            tasks = max(min(keys.num_rows // KEYS_A_TASK + 1, 2 * tasks_at_once(spark)), 1)
            by_key = changes_and_stored.repartition(tasks, *(f"`{column}`" for column in merge.key))
            done = by_key.mapInArrow(WriteMergedTask(layout, writer, name, self._is_query), "files BINARY").collect()
        finally:
            changes.unpersist()
        added: list[DataFile] = [file for row in done for file in pickle.loads(bytes(row["files"]))]
        kept_files = [file for _, kept in hit for file in kept]
        return MergedFiles(FileChange([*added, *kept_files], removed, merged=merged), sum(file.rows for file in added))


def merge_rules(merge: MergeSpec) -> str:
    """What a merge does, for people."""
    last = "the last offset wins" if merge.order_by is None else f"the greatest {merge.order_by} wins"
    deletes = "a record without a value deletes"
    if merge.delete_column is not None:
        deletes += f", and so does {merge.delete_column} {' or '.join(merge.delete_values)}"
    return f"{last}, {deletes}" + (", earlier versions stay" if merge.history else "")


def _distinct(keys: pa.Table, table: pa.Schema) -> pa.Table:
    """Each key once, with the types of the table."""
    typed = keys.cast(pa.schema([table.field(name) for name in keys.column_names]))
    return typed.group_by(keys.column_names, use_threads=False).aggregate([])
