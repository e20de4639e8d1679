"""Files to load: found, put in order, and cut into parts that can be loaded one by one and are the same every time."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipelines.spec import FilesSpec

PART_BYTES: Final = 32 << 20
_BLOCK_BYTES: Final = 8 << 20
_SUFFIXES: Final = {"parquet": (".parquet",), "csv": (".csv",), "json": (".json", ".jsonl", ".ndjson")}
_QUOTE, _NEWLINE = ord('"'), ord("\n")


class InputFile(NamedTuple):
    """A file as it is now: a file that was written to has another stamp."""

    path: str
    size: int
    stamp: int

    @property
    def state(self) -> list[int]:
        """What is kept of it to know it again."""
        return [self.size, self.stamp]


class Part(NamedTuple):
    """A piece of a file: a row group, or bytes from the beginning of a line to the end of one; `rows` where that is known."""

    path: str
    number: int
    start: int
    stop: int
    rows: int


def find_files(spec: FilesSpec, path: str) -> list[InputFile]:
    """The files that are there now, in the order of their paths. Those whose names begin with a dot or an underscore are not
    finished, or notes of other programs."""
    if os.path.isdir(path):
        suffixes = _SUFFIXES[spec.format]
        names: Iterator[str] = (str(one) for one in Path(path).rglob("*") if one.name.endswith(suffixes))
    else:
        names = iter(glob.glob(path, recursive=True))
    found = []
    for name in sorted(names):
        if os.path.basename(name).startswith((".", "_")) or not os.path.isfile(name):
            continue
        status = os.stat(name)
        found.append(InputFile(name, status.st_size, status.st_mtime_ns))
    return found


def cut_file(spec: FilesSpec, file: InputFile) -> list[Part]:
    """The parts of a file. The same bytes give the same parts."""
    if spec.format == "parquet":
        with pq.ParquetFile(file.path) as parquet:
            groups = parquet.metadata.num_row_groups
            return [Part(file.path, at, at, at + 1, parquet.metadata.row_group(at).num_rows) for at in range(groups)]
    cuts = [0, *_line_starts(file, has_quotes=spec.format == "csv"), file.size]
    return [Part(file.path, at, start, stop, 0) for at, (start, stop) in enumerate(pairwise(cuts)) if stop > start]


def _line_starts(file: InputFile, *, has_quotes: bool) -> Iterator[int]:
    """Where lines begin, about one each PART_BYTES. A line break between quotes belongs to a value, and ends no line."""
    if file.size <= PART_BYTES:
        return
    wanted = PART_BYTES
    at = 0
    is_quoted = False
    with open(file.path, "rb") as stream:
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


def parquet_schema(path: str) -> pa.Schema:
    """The columns of a Parquet file."""
    return pq.read_schema(path)
