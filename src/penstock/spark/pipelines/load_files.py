"""Splits files into parts that are loaded one by one; the split is deterministic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipelines.load_locations import FileLocation, InputFile
from penstock.spark.pipelines.spec import FilesSpec

PART_BYTES: Final = 32 << 20
_BLOCK_BYTES: Final = 8 << 20
SUFFIXES: Final = {"parquet": (".parquet",), "csv": (".csv",), "json": (".json", ".jsonl", ".ndjson")}
_QUOTE, _NEWLINE = ord('"'), ord("\n")


class Part(NamedTuple):
    """A part of a file: a row group, or a range of bytes that holds whole lines; `rows` if it is known."""

    path: str
    number: int
    start: int
    stop: int
    rows: int


def cut_file(spec: FilesSpec, location: FileLocation, file: InputFile) -> list[Part]:
    """The parts of a file. The same bytes give the same parts."""
    if spec.format == "parquet":
        with location.open(file.path) as stream, pq.ParquetFile(stream) as parquet:
            groups = parquet.metadata.num_row_groups
            return [Part(file.path, at, at, at + 1, parquet.metadata.row_group(at).num_rows) for at in range(groups)]
    cuts = [0, *_line_starts(location, file, has_quotes=spec.format == "csv"), file.size]
    return [Part(file.path, at, start, stop, 0) for at, (start, stop) in enumerate(pairwise(cuts)) if stop > start]


def _line_starts(location: FileLocation, file: InputFile, *, has_quotes: bool) -> Iterator[int]:
    """Offsets of line starts, about one per PART_BYTES. A line break inside quotes does not end a line."""
    if file.size <= PART_BYTES:
        return
    wanted = PART_BYTES
    at = 0
    is_quoted = False
    with location.open(file.path) as stream:
        while at < file.size and wanted < file.size:
            block: Any = np.frombuffer(stream.read(_BLOCK_BYTES), np.uint8)
            if not len(block):
                return
            quotes = np.cumsum(block == _QUOTE) + is_quoted if has_quotes else np.zeros(len(block), np.int64)
            ends = np.flatnonzero((block == _NEWLINE) & (quotes % 2 == 0)) + at + 1
            while wanted < at + len(block):
                later = ends[ends >= wanted]
                if not len(later):
                    break
                if later[0] < file.size:
                    yield int(later[0])
                wanted = int(later[0]) + PART_BYTES
            is_quoted = bool(quotes[-1] % 2) if has_quotes else False
            at += len(block)


def parquet_schema(location: FileLocation, path: str) -> pa.Schema:
    """The columns of a Parquet file."""
    with location.open(path) as stream:
        return pq.read_schema(stream)
