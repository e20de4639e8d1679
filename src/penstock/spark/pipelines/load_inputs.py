"""The input of a load: files, or a snapshot of a table; and which parts are loaded already."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.spark.pipelines.errors import ChangedInputError
from penstock.spark.pipelines.load_files import SUFFIXES, Part, cut_file, parquet_schema
from penstock.spark.pipelines.load_locations import FileLocation, InputFile, location_of
from penstock.spark.pipelines.load_reading import PartReader, Read, header_of
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.tables.errors import TableOptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.tables.table import TableReader

_log = logging.getLogger(__name__)


class PendingFile(NamedTuple):
    """A file with parts that are not loaded yet; `state` identifies its content."""

    path: str
    state: dict[str, Any]
    parts: list[Part]
    total: int

    def cut(self, count: int) -> PendingFile:
        """The same file with only its first parts."""
        return self._replace(parts=self.parts[:count])

    @property
    def done(self) -> int:
        """The number of loaded parts of the file once these are loaded."""
        return self.parts[-1].number + 1 if self.parts else self.total


class PartReading(Protocol):
    """Reads parts in tasks."""

    def read(self, part: Part) -> Iterator[Read]:
        """Batches of good rows, each with its bad rows."""
        ...


class LoadInputs(Protocol):
    """The input of a load."""

    columns: StructType
    reader: PartReading

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Initial entries of the ledger: the whole input, if it is fixed at the start."""
        ...

    def pending(self, ledger: dict[str, dict[str, Any]]) -> Iterator[PendingFile]:
        """Files that are not fully loaded yet, in a stable order."""
        ...


class FileInputs:
    """Files of a location. New files are picked up; changed files are reported."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        assert spec.source.files is not None
        self._spec = spec
        self._files = spec.source.files
        self._location = self._open_location()
        self._cut: dict[InputFile, list[Part]] = {}
        self._told: set[InputFile] = set()
        self.columns, schema = self._schema()
        self.reader: PartReading = PartReader(self._files, self._location, schema)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """See `LoadInputs`; empty, since files may still be added."""
        return {}

    def pending(self, ledger: dict[str, dict[str, Any]]) -> Iterator[PendingFile]:
        """See `LoadInputs`."""
        for file in self._find():
            known = ledger.get(file.path)
            if known is not None and known["state"] != file.state:
                self._report_change(file, known)
                continue
            if known is not None and known["done"] >= known["parts"]:
                continue
            parts = self._parts(file)
            done = known["done"] if known is not None else 0
            yield PendingFile(file.path, {"state": file.state, "parts": len(parts)}, parts[done:], len(parts))

    def _open_location(self) -> FileLocation:
        path = self._spec.path(self._files.path)
        try:
            return location_of(path, self._files.options)
        except TableOptionError as error:
            raise self._spec.fault("source.files.path", str(error)) from error

    def _find(self) -> list[InputFile]:
        return self._location.find(SUFFIXES[self._files.format])

    def _parts(self, file: InputFile) -> list[Part]:
        if file not in self._cut:
            self._check(file)
            self._cut[file] = cut_file(self._files, self._location, file)
        return self._cut[file]

    def _report_change(self, file: InputFile, known: dict[str, Any]) -> None:
        if known["done"] < known["parts"]:
            raise ChangedInputError(
                f"{file.path} was changed while it was being loaded: {known['done']} of {known['parts']} parts are in "
                f"{self._spec.target} already. Put the file back as it was, or load it under another name"
            )
        if file not in self._told:
            self._told.add(file)
            _log.warning("%s was changed after it was loaded; it is not loaded again", file.path)

    def _schema(self) -> tuple[StructType, pa.Schema]:
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructType

        from penstock.spark.releases import arrow_schema

        given = self._files.schema
        try:
            if given is not None:
                columns = StructType.fromDDL(given)
                assert isinstance(columns, StructType)
            elif self._files.format == "json":
                columns = StructType().add("value", "binary")
            else:
                files = self._find()
                if not files:
                    raise self._spec.fault(
                        "source.files.path", f"there is no file {self._files.path} yet to tell the columns; give a schema"
                    )
                columns = from_arrow_schema(parquet_schema(self._location, files[0].path))
            return columns, arrow_schema(columns)
        except (PySparkException, pa.ArrowException) as error:
            reason = str(error).strip().splitlines()[0]
            raise self._spec.fault("source.files.schema" if given else "source.files.path", reason) from error

    def _check(self, file: InputFile) -> None:
        """Check that the file has the required columns."""
        if self._files.format == "json" or (self._files.format == "csv" and not self._files.header):
            return
        if self._files.format == "parquet":
            existing = parquet_schema(self._location, file.path).names
        else:
            existing = header_of(self._files, self._location, file.path) or []
        missing = [name for name in self.columns.names if name not in existing]
        if missing:
            raise self._spec.fault(
                "source.files", f"{file.path} has no column {', '.join(missing)}; it has {', '.join(existing) or 'none'}"
            )


@dataclass(frozen=True)
class TablePartReader:
    """Reads files of a table. It is pickled to tasks."""

    reader: TableReader
    files: dict[str, Any]

    def read(self, part: Part) -> Iterator[Read]:
        """See `PartReading`."""
        for rows in self.reader.read(self.files[part.path]):
            yield rows, None


class TableInputs:
    """A table: the files of its snapshot at the start of the load."""

    def __init__(self, spec: PipelineSpec) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        from penstock.spark.releases import arrow_schema
        from penstock.spark.tables.table import table_of

        table = spec.source.table
        assert table is not None
        self._spec = spec
        self._table = table_of(spec, table)
        self._table.refresh()
        schema = self._table.schema()
        if schema is None:
            raise spec.fault("source.table", f"there is no {table}")
        self.columns = from_arrow_schema(schema)
        reader = replace(self._table.reader(), schema=arrow_schema(self.columns))
        self._files: dict[str, Any] = {}
        self.reader: PartReading = TablePartReader(reader, self._files)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """See `LoadInputs`."""
        return {
            file.path: {"state": [file.rows, file.size, list(file.values)], "parts": 1, "done": 0}
            for file in self._table.data_files()
        }

    def pending(self, ledger: dict[str, dict[str, Any]]) -> Iterator[PendingFile]:
        """See `LoadInputs`."""
        from penstock.spark.tables.task_writer import DataFile

        for path, known in sorted(ledger.items()):
            if known["done"] < known["parts"]:
                rows, size, values = known["state"]
                self._files[path] = DataFile(path, rows, size, tuple(values))
                yield PendingFile(path, {"state": known["state"], "parts": 1}, [Part(path, 0, 0, 1, rows)], 1)
