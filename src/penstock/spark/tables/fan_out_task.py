"""Sends rows to the tables that their columns name: the names, and the tasks that write several tables at once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.spark.errors import RowError
from penstock.spark.pipelines.spec import FAN_OUT, TableSpec
from penstock.spark.range_read import read_range_with_dead
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.merge_task import keyed_rows
from penstock.spark.tables.record_columns import TopicRead
from penstock.spark.tables.schemas import conform
from penstock.spark.tables.task_writer import DataFile, OpenFiles, TaskWriter

TABLE: Final = "_table"
FILES: Final = f"{TABLE} STRING, files BINARY"
NAME_RULE: Final = "letters, digits, '.', '_' and '-', at most 200, and no '.' at the beginning"
_SEPARATOR: Final = "/"  # which no name has
_NAME: Final = "[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"


@dataclass(frozen=True)
class TableNames:
    """Names the table of a row by columns of it. It is pickled to tasks."""

    columns: tuple[str, ...]

    def among(self, rows: pa.RecordBatch) -> pa.Array:
        """The table of each row: the values of its columns, or null if one is missing or cannot be part of a name."""
        texts = [rows.column(name).cast(pa.string()) for name in self.columns]
        joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, _SEPARATOR)
        pattern = f"^{_SEPARATOR.join([_NAME] * len(texts))}$"
        return pc.if_else(pc.fill_null(pc.match_substring_regex(joined, pattern), False), joined, pa.scalar(None, pa.string()))

    def table(self, table: TableSpec, name: str) -> TableSpec:
        """The table of rows with this name."""
        values = dict(zip(self.columns, name.split(_SEPARATOR), strict=True))

        def fill(text: str | None) -> str | None:
            return None if text is None else FAN_OUT.sub(lambda match: values[match[1]], text)

        return replace(table, location=fill(table.location), name=fill(table.name))


class WithoutTable:
    """Records whose columns name no table."""

    def __init__(self, names: TableNames, key: Sequence[str]) -> None:
        self._names = names
        self._key = tuple(key)
        self.reason = f"{' and '.join(names.columns)} must name its table: {NAME_RULE}"

    def among(self, read: TopicRead, records: pa.RecordBatch) -> pa.Array:
        """See `RefusedRecords`."""
        return self._names.among(record_rows(read, records, self._key)).is_null()


@dataclass(frozen=True)
class OneTable:
    """Chooses the rows of one table. It is pickled to tasks."""

    names: TableNames
    name: str

    def among(self, rows: pa.RecordBatch) -> pa.Array:
        """Which rows are of the table."""
        return pc.fill_null(pc.equal(self.names.among(rows), self.name), False)


@dataclass(frozen=True)
class ReadNamedTask:
    """Reads ranges of records as rows with the names of their tables; those without one are left out, as they are dead
    letters."""

    names: TableNames
    schema: pa.Schema
    reads: Mapping[str, TopicRead]
    ranges: Sequence[OffsetRange]
    key: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                wanted = self.ranges[number]
                read = self.reads.get(wanted.topic_partition.topic) or self.reads[""]
                for records, _ in read_range_with_dead(read.options, read.layout, wanted):
                    rows = conform(record_rows(read, records, self.key), self.schema)
                    tables = self.names.among(rows)
                    yield rows.append_column(TABLE, tables).filter(tables.is_valid())


@dataclass(frozen=True)
class NameRowsTask:
    """Adds the names of their tables to the rows of a query."""

    names: TableNames

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            tables = self.names.among(rows)
            if tables.null_count:
                first = rows.filter(tables.is_null()).slice(0, 1).select(self.names.columns).to_pylist()[0]
                raise RowError(f"a row of the result has {first}, which must name its table: {NAME_RULE}")
            yield rows.append_column(TABLE, tables)


@dataclass(frozen=True)
class WriteTablesTask:
    """Writes rows that are sorted by their table to files of these tables."""

    writers: Mapping[str, TaskWriter]
    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        name = f"{self.name}-{0 if context is None else context.partitionId():05d}"
        files: OpenFiles | None = None
        current = ""
        for batch in batches:
            for table, rows in _by_table(batch):
                if files is not None and table != current:
                    yield _written(current, files.finish())
                    files = None
                files = files or self.writers[table].begin(name)
                current = table
                files.add(rows)
        if files is not None:
            yield _written(current, files.finish())


def record_rows(read: TopicRead, records: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Records as rows. With the key of a merge, tombstones have its columns from their own key."""
    return keyed_rows(read, records, key) if key else read.rows(records)


def _by_table(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each table, one after the other."""
    codes = batch.column(TABLE).dictionary_encode()
    numbers = codes.indices.to_numpy()
    bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), batch.num_rows]
    rows = batch.drop_columns([TABLE])
    for start, stop in pairwise(bounds):
        if stop > start:
            yield codes.dictionary[int(numbers[start])].as_py(), rows.slice(start, stop - start)


def _written(table: str, files: list[DataFile]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([table]), pa.array([pickle.dumps(files)], pa.binary())], names=[TABLE, "files"])
