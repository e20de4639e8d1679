"""Reads parts of files into record batches: good rows, and bad rows with the reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.spark.malformed import DEAD_SCHEMA, REASON_CHARACTERS, MalformedValue
from penstock.spark.pipelines.load_files import Part
from penstock.spark.pipelines.load_locations import FileLocation
from penstock.spark.pipelines.spec import FilesSpec
from penstock.spark.value_format import decode_column
from penstock.spark.value_formats import JsonFormat

ROWS: Final = 1 << 16
HEADER_BYTES: Final = 1 << 20  # no first line of a file is longer

Read = tuple[pa.RecordBatch, pa.RecordBatch | None]


@dataclass(frozen=True)
class PartReader:
    """Reads parts of files of one format into one schema. It is pickled to tasks."""

    files: FilesSpec
    location: FileLocation
    schema: pa.Schema

    def read(self, part: Part) -> Iterator[Read]:
        """Batches of good rows, each with its bad ones (DEAD_SCHEMA, the path in place of a topic), if there are any."""
        if self.files.format == "parquet":
            return self._parquet(part)
        with self.location.open(part.path) as stream:
            stream.seek(part.start)
            text = stream.read(part.stop - part.start)
        if self.files.format == "csv":
            return self._csv(part, text)
        return self._json(part, text)

    def _parquet(self, part: Part) -> Iterator[Read]:
        with self.location.open(part.path) as stream, pq.ParquetFile(stream) as parquet:
            for batch in parquet.iter_batches(ROWS, row_groups=[part.number], columns=self.schema.names):
                yield (
                    pa.RecordBatch.from_arrays(
                        [batch.column(field.name).cast(field.type) for field in self.schema], schema=self.schema
                    ),
                    None,
                )

    def _json(self, part: Part, text: bytes) -> Iterator[Read]:
        lines = pa.array([line for line in text.split(b"\n") if line.strip()], pa.binary())
        kind = pa.struct(list(self.schema))
        is_raw = self.files.schema is None
        form = JsonFormat(pa.struct([]) if is_raw else kind, fails=False)
        for at in range(0, len(lines), ROWS):
            some = lines.slice(at, ROWS)
            bad: list[MalformedValue] = []
            form.malformed = bad
            decoded = decode_column(form, some)
            columns = [some] if is_raw else decoded.flatten()
            rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            yield _without(rows, bad), _dead(part, at, some, bad)

    def _csv(self, part: Part, text: bytes) -> Iterator[Read]:
        names = header_of(self.files, self.location, part.path) or self.schema.names
        wrong: list[tuple[int, str, str]] = []

        def keep(row: Any) -> str:
            what = f"it has {row.actual_columns} values where {row.expected_columns} are wanted"
            wrong.append((row.number or 0, row.text, what))
            return "skip"

        has_header = self.files.header and part.start == 0
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            read_options=pyarrow.csv.ReadOptions(column_names=names, skip_rows=int(has_header), use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.files.delimiter, newlines_in_values=True, invalid_row_handler=keep
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        if wrong:
            yield pa.RecordBatch.from_pylist([], schema=self.schema), _wrong(part, wrong)
        done = 0
        for batch in table.to_batches(ROWS):
            yield self._typed(part, done, batch)
            done += batch.num_rows

    def _typed(self, part: Part, at: int, rows: pa.RecordBatch) -> Read:
        """Converts text columns to the schema's types; rows with a value that does not convert are bad."""
        columns: list[pa.Array] = []
        bad: dict[int, str] = {}
        for field in self.schema:
            column = rows.column(field.name)
            try:
                columns.append(column.cast(field.type))
            except pa.ArrowInvalid:
                columns.append(_cast_each(column, field, bad))
        typed = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        faults = [MalformedValue(row, reason) for row, reason in sorted(bad.items())]
        if not faults:
            return typed, None
        texts = pa.array([_line(rows, fault.row, self.files.delimiter) for fault in faults], pa.binary())
        return _without(typed, faults), _dead(
            part, at, texts, [MalformedValue(n, fault.reason) for n, fault in enumerate(faults)]
        )


def header_of(files: FilesSpec, location: FileLocation, path: str) -> list[str] | None:
    """The names in the first line of a file; None if it has no such line."""
    if not files.header:
        return None
    with location.open(path) as stream:
        text = stream.read(HEADER_BYTES).decode(errors="replace")
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=files.delimiter), [])


def _cast_each(column: pa.Array, field: pa.Field, bad: dict[int, str]) -> pa.Array:
    values = []
    for row, value in enumerate(column):
        try:
            values.append(value.cast(field.type))
        except pa.ArrowInvalid:
            values.append(pa.scalar(None, field.type))
            bad.setdefault(row, f"{field.name} is {value.as_py()!r}, which is no {field.type}")
    return pa.array(values, field.type)


def _line(rows: pa.RecordBatch, row: int, delimiter: str) -> bytes:
    """A row as a line of CSV."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow([column[row].as_py() for column in rows.columns])
    return text.getvalue().encode()


def _without(rows: pa.RecordBatch, bad: list[MalformedValue]) -> pa.RecordBatch:
    if not bad:
        return rows
    bad_rows = {value.row for value in bad}
    return rows.filter(pa.array([row not in bad_rows for row in range(rows.num_rows)]))


def _dead(part: Part, at: int, texts: pa.Array, bad: list[MalformedValue]) -> pa.RecordBatch | None:
    if not bad:
        return None
    return _letters(part, [(at + value.row, texts[value.row].as_py(), value.reason) for value in bad])


def _wrong(part: Part, wrong: list[tuple[int, str, str]]) -> pa.RecordBatch:
    return _letters(part, [(number, text.encode(), reason) for number, text, reason in wrong])


def _letters(part: Part, rows: list[tuple[int, bytes, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"topic": part.path, "partition": part.number, "offset": row, "value": text, "reason": reason[:REASON_CHARACTERS]}
            for row, text, reason in rows
        ],
        schema=DEAD_SCHEMA,
    )
