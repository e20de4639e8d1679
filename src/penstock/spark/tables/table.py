"""The interface of tables of all formats: files and the pipeline's progress are committed atomically."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import FencedError
from penstock.spark.tables.errors import TableConflictError, TableOptionError, TableSchemaError
from penstock.spark.tables.files import FileStore, file_store
from penstock.spark.tables.partitioning import PartitionField, parse_cuts
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.schemas import SchemaChange, plan_change
from penstock.spark.tables.task_writer import DataFile, TaskWriter

if TYPE_CHECKING:
    from penstock.spark.pipelines.spec import PipelineSpec, TableSpec

COMMIT_TRIES: Final = 10
READ_ROWS: Final = 1 << 16
_FORMATS: Final = {
    "delta": "penstock.spark.tables.delta:Delta",
    "iceberg": "penstock.spark.tables.iceberg:Iceberg",
    "parquet": "penstock.spark.tables.parquet:Parquet",
}

_log = logging.getLogger(__name__)


class TableFencedError(FencedError):
    """The table holds a commit of another run: another instance of the pipeline is running."""

    code = "table_fenced"


@dataclass(frozen=True)
class TableReader:
    """Reads rows of files, partition columns included. It is pickled to tasks."""

    store: FileStore
    schema: pa.Schema
    levels: tuple[str | None, ...]
    """For each level of partitioning the column that it is of; None where it is of no column."""

    def read(self, file: DataFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one file, with some columns or all; null for columns newer than the file."""
        names = list(self.schema.names if columns is None else columns)
        fixed = {level: value for level, value in zip(self.levels, file.values, strict=True) if level is not None}
        with closing(self.store.open_input(file.path)) as source, pq.ParquetFile(source) as parquet:
            existing = parquet.schema_arrow.names
            for batch in parquet.iter_batches(READ_ROWS, columns=[name for name in names if name in existing]):
                yield pa.RecordBatch.from_arrays(
                    [self._column(batch, self.schema.field(name), fixed) for name in names],
                    schema=pa.schema([self.schema.field(name) for name in names]),
                )

    def may_hold(self, file: DataFile, column: str, low: Any, high: Any) -> bool:
        """Whether a file may have values of a column between two, by its statistics."""
        with closing(self.store.open_input(file.path)) as source, pq.ParquetFile(source) as parquet:
            metadata = parquet.metadata
            for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
                parts = [group.column(number) for number in range(group.num_columns)]
                statistics = [part.statistics for part in parts if part.path_in_schema == column]
                if not statistics or statistics[0] is None or not statistics[0].has_min_max:
                    return True
                try:
                    if statistics[0].max >= low and statistics[0].min <= high:
                        return True
                except TypeError:  # of another type than the keys
                    return True
        return False

    def _column(self, batch: pa.RecordBatch, field: pa.Field, fixed: dict[str, str | None]) -> pa.Array:
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            return column if column.type.equals(field.type) else column.cast(field.type)
        value = pa.scalar(fixed.get(field.name), pa.string()).cast(field.type)
        return pa.repeat(value, batch.num_rows)


@dataclass
class Table(ABC):
    """One table, for one pipeline. Its view of the table is that of the last `refresh`."""

    spec: TableSpec
    pipeline: str
    cuts: tuple[PartitionField, ...] = field(init=False)
    store: FileStore = field(init=False)

    def __post_init__(self) -> None:
        self.cuts = parse_cuts(self.spec.partition_by)
        if self.spec.location is not None:
            self.store = file_store(self.spec.location, self.spec.options)

    def __str__(self) -> str:
        return str(self.spec)

    @abstractmethod
    def refresh(self) -> None:
        """Reload the state of the table."""

    @abstractmethod
    def every_progress(self) -> dict[str, Progress]:
        """The progress of each pipeline that writes the table, by name."""

    def progress(self) -> Progress | None:
        """The progress in this pipeline's last commit; None if it has made none."""
        return self.every_progress().get(self.pipeline)

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The columns of the table, without those derived for partitions; None if there is no table."""

    @abstractmethod
    def data_files(self) -> list[DataFile]:
        """The current files of the table."""

    @abstractmethod
    def writer(self) -> TaskWriter:
        """The writer that tasks use for files of this table."""

    @abstractmethod
    def vacuum(self, after_s: float) -> int:
        """Delete files that have been unused for `after_s` seconds and that no task is writing. Returns their number."""

    @abstractmethod
    def _partition_names(self) -> list[str]:
        """The partition columns of the stored table."""

    @abstractmethod
    def _make(self, schema: pa.Schema) -> None:
        """Create the table. Raises TableConflictError if it exists by now."""

    @abstractmethod
    def _change(self, change: SchemaChange, schema: pa.Schema) -> None:
        """Add and widen columns. Raises TableConflictError after a concurrent change."""

    @abstractmethod
    def _widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        """Whether the format can widen a column from one type to the other without rewriting files."""

    @abstractmethod
    def _try_commit(self, added: Sequence[DataFile], removed: Sequence[DataFile], progress: Progress, rewrites: bool) -> None:
        """Try to commit once on the table as of the last `refresh`. Raises TableConflictError if it has changed."""

    def check(self, schema: pa.Schema) -> None:
        """Check that rows of this schema can be written. Changes nothing."""
        for cut in self.cuts:
            cut.check(schema)
        self.refresh()
        current = self.schema()
        if current is not None:
            self._plan(current, schema)

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table, or add the pipeline's columns to it."""
        for cut in self.cuts:
            cut.check(schema)
        for attempt in range(COMMIT_TRIES):
            self.refresh()
            current = self.schema()
            try:
                if current is None:
                    self._make(schema)
                else:
                    change = self._plan(current, schema)
                    if not change.added and not change.widened:
                        return
                    self._change(change, schema)
            except TableConflictError:
                if attempt == COMMIT_TRIES - 1:
                    raise

    def commit(
        self,
        added: Sequence[DataFile],
        progress: Progress,
        expected: Progress | None,
        removed: Sequence[DataFile] = (),
        *,
        rewrites: bool = False,
        merged: Collection[str] | None = None,
    ) -> None:
        """Add and remove files together with the progress; with `rewrites` the rows stay the same. Raises TableFencedError if the
        table's progress is not the expected one. `merged` are the files that a merge has looked at: if others are there now,
        TableConflictError is raised. Idempotent: it can be called again after any error."""
        for attempt in range(COMMIT_TRIES):
            self.refresh()
            committed = self.progress()
            if committed == progress:
                return
            if committed != expected:
                raise self._fenced(committed, expected)
            if merged is not None and {file.path for file in self.data_files()} != set(merged):
                raise TableConflictError(f"{self} was changed by another writer while rows were merged; merging again")
            try:
                self._try_commit(added, removed, progress, rewrites)
                return
            except TableConflictError:
                if attempt == COMMIT_TRIES - 1:
                    raise
                _log.info("%s was changed by somebody else; looking again", self)

    @abstractmethod
    def close(self) -> None:
        """Close connections, if there are any; the table can still be used."""

    def reader(self) -> TableReader:
        """The reader that tasks use for files of this table."""
        schema = self.schema()
        if schema is None:
            raise TableOptionError(f"there is no {self}; make it first")
        # As the table has them, which may be more than a reader's specification declares.
        levels = [name if name in schema.names else None for name in self._partition_names()]
        return TableReader(self.store, schema, tuple(levels))

    def _plan(self, current: pa.Schema, schema: pa.Schema) -> SchemaChange:
        names = [cut.name for cut in self.cuts]
        if self._partition_names() != names:
            raise TableSchemaError(
                f"{self} is partitioned by {self._partition_names() or 'nothing'}, the pipeline has partition_by "
                f"{[str(cut) for cut in self.cuts]}; use the partitions of the table, or another table"
            )
        evolves = self.spec.schema_evolution == "add_columns"
        return plan_change(current, schema, str(self), evolves=evolves, widens=self._widens)

    def _fenced(self, committed: Progress | None, expected: Progress | None) -> TableFencedError:
        has = "no progress" if committed is None else f"batch {committed.batch} of run {committed.run:x}"
        was = "no progress" if expected is None else f"batch {expected.batch} of run {expected.run:x}"
        return TableFencedError(
            f"another copy of pipeline {self.pipeline} has taken over: {self} holds {has}, where this one left {was}; stop one "
            "of the two"
        )


def table_of(spec: PipelineSpec, table: TableSpec) -> Table:
    """A table of a pipeline's file; relative locations are relative to that file."""
    return open_table(table if table.location is None else replace(table, location=spec.path(table.location)), spec.name)


def open_table(spec: TableSpec, pipeline: str) -> Table:
    """The table that a pipeline reads or writes; it need not exist yet."""
    name = _FORMATS.get(spec.format)
    if name is None:
        raise TableOptionError(f"there is no table format {spec.format!r}; there are {', '.join(_FORMATS)}")
    module, _, kind = name.partition(":")
    try:
        table: Table = getattr(import_module(module), kind)(spec, pipeline)
    except ModuleNotFoundError as error:
        raise TableOptionError(
            f"a {spec} needs {error.name}, which is not installed: pip install 'penstock[spark,tables]'"
        ) from error
    return table
