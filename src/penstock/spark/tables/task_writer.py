"""Writes rows of a table in tasks: Parquet files of about one size, by partition. Their names are unique to the attempt, so that
files of failed attempts are never part of a commit."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import IO, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.tables.files import FileStore
from penstock.spark.tables.partitioning import PartitionField, Values, hive_folder, plain_folder, split
from penstock.spark.tables.schemas import conform

FILE_BYTES: Final = 128 << 20
GROUP_BYTES: Final = 64 << 20  # of columns in memory; Parquet's row groups
GROUP_ROWS: Final = 1 << 20
OPEN_MAX: Final = 32
BUFFERED_MAX: Final = 512 << 20
STAGED: Final = "_penstock/staged/"
STATS_TEXT_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file written by a task: its path, its path after the commit, and its statistics."""

    path: str
    rows: int
    size: int
    values: Values = ()
    staged: str = ""
    stats: str = "{}"
    footer: bytes = b""


@dataclass(frozen=True)
class TaskWriter:
    """Writes files of one table. It is pickled to tasks."""

    store: FileStore
    schema: pa.Schema
    cuts: tuple[PartitionField, ...] = ()
    folder: str = ""
    file_bytes: int = FILE_BYTES
    stages: bool = False
    """Whether readers look at directories: then files are hidden until they are committed, and paths say the partition."""
    keeps_cuts: bool = False
    """Whether columns of partitions are in the files too."""
    keeps_footer: bool = False
    compression: str = "snappy"

    def write(self, batches: Iterable[pa.RecordBatch], name: str, *, path: str | None = None) -> list[DataFile]:
        """Write rows; the files are durable when this returns. With `path`, all rows go to one file that replaces another."""
        files = OpenFiles(self, name, path)
        try:
            for batch in batches:
                files.add(batch)
            return files.finish()
        except BaseException:
            files.abandon()
            raise

    def begin(self, name: str) -> OpenFiles:
        """Open files to add rows to."""
        return OpenFiles(self, name, None)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file."""
        if self.keeps_cuts:
            return self.schema
        left_out = {cut.source for cut in self.cuts if cut.unit is None}
        return pa.schema([field for field in self.schema if field.name not in left_out])

    def folder_of(self, values: Values) -> str:
        """The directory of a partition."""
        return self.folder + (hive_folder if self.stages else plain_folder)(self.cuts, values)


class OpenFiles:
    """One open file per partition, with buffered rows."""

    def __init__(self, writer: TaskWriter, name: str, path: str | None) -> None:
        self._writer = writer
        self._name = name
        self._path = path
        self._open: dict[Values, _OpenFile] = {}
        self._done: list[DataFile] = []
        self._buffered = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of any partitions."""
        for values, part in split(conform(rows, self._writer.schema), self._writer.cuts):
            self._add(values, part)

    def _add(self, values: Values, rows: pa.RecordBatch) -> None:
        file = self._open.get(values)
        if file is None:
            while len(self._open) >= OPEN_MAX:
                self._close(next(iter(self._open)))
            file = self._open[values] = _OpenFile(self._writer, values, self._name, self._path)
        self._buffered += file.add(rows)
        if file.size >= self._writer.file_bytes and self._path is None:
            self._close(values)
        while self._buffered > BUFFERED_MAX:
            self._buffered -= max(self._open.values(), key=lambda open_file: open_file.buffered).write_group()

    def finish(self) -> list[DataFile]:
        """Close all files and return them."""
        while self._open:
            self._close(next(iter(self._open)))
        return self._done

    def abandon(self) -> None:
        """Called after a failure: unfinished files are left for vacuum."""
        for file in self._open.values():
            file.abandon()

    def _close(self, values: Values) -> None:
        file = self._open.pop(values)
        self._buffered -= file.buffered
        self._done.append(file.finish())


class _OpenFile:
    """A Parquet file being written."""

    def __init__(self, writer: TaskWriter, values: Values, name: str, path: str | None) -> None:
        unique = f"{name}-{uuid4().hex[:16]}"
        self._writer = writer
        self._values = values
        self._path = path or f"{writer.folder_of(values)}{unique}.parquet"
        self._staged = f"{STAGED}{unique}" if writer.stages else ""
        self._schema = writer.file_schema
        self._sink: IO[bytes] = writer.store.open_output(self._staged or self._path)
        self._footers: list[pq.FileMetaData] = []
        # Spark reads times of this kind as its own, and 96-bit ones are long out of use.
        self._parquet = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=writer.compression,
            metadata_collector=self._footers,
            coerce_timestamps="us",
            store_schema=False,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._rows = 0
        self.buffered = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.tell()

    def add(self, rows: pa.RecordBatch) -> int:
        """Buffer rows. Returns the growth of the buffer in bytes."""
        before = self.buffered
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.buffered += rows.nbytes
        if self.buffered >= GROUP_BYTES or self._waiting_rows >= GROUP_ROWS:
            self.write_group()
        return self.buffered - before

    def write_group(self) -> int:
        """Write the buffered rows. Returns their size in bytes."""
        freed = self.buffered
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting).select(self._schema.names)
            self._parquet.write_table(rows.replace_schema_metadata(None), row_group_size=GROUP_ROWS)
            self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self.buffered = [], 0, 0
        return freed

    def finish(self) -> DataFile:
        """Close the file and return its description."""
        self.write_group()
        self._parquet.close()
        size = self._sink.tell()
        self._sink.close()
        footer = self._footers[0]
        return DataFile(
            self._path,
            self._rows,
            size,
            self._values,
            self._staged,
            json.dumps(statistics(footer, self._schema)),
            pickle.dumps(footer) if self._writer.keeps_footer else b"",
        )

    def abandon(self) -> None:
        """Close the file without completing it."""
        self._sink.close()


def statistics(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Statistics for file skipping in the form of Delta's log: rows, nulls, minimum and maximum of plain columns."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(footer.num_columns):
        name = footer.schema.column(column).path
        if name not in schema.names:
            continue
        groups = [footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        bounds = [(group.min, group.max) for group in groups if group.has_min_max]
        full = sum(1 for group in groups if group.num_values)
        low = _bound(min((low for low, _ in bounds), default=None), up=False) if len(bounds) == full else None
        high = _bound(max((high for _, high in bounds), default=None), up=True) if len(bounds) == full else None
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bound(value: Any, *, up: bool) -> Any:
    """A bound in the form of the log; None if it cannot be represented, such as times finer than milliseconds."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= STATS_TEXT_MAX else None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if up and rounded != value:
            rounded += timedelta(milliseconds=1)
        return rounded.strftime("%Y-%m-%dT%H:%M:%S.") + f"{rounded.microsecond // 1000:03d}Z"
    return value.isoformat() if isinstance(value, date) else None
