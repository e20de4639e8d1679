"""Partitioning of a table: by a column, or by the year, month, day or hour of a timestamp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.errors import TableSchemaError

UNITS: Final = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"  # what every reader of such directories takes for a null
_FORM: Final = re.compile(r"\s*(?:(\w+)\(\s*([^()]+?)\s*\)|([^()]+?))\s*")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")

Values = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One level of partitioning: a column, or a `unit` of its timestamp."""

    source: str
    unit: str | None = None

    def __str__(self) -> str:
        return self.source if self.unit is None else f"{self.unit}({self.source})"

    @property
    def name(self) -> str:
        """The name of the partition column. Readers skip directories that begin with an underscore, so no derived name does."""
        return self.source if self.unit is None else f"{self.source.lstrip('_')}_{self.unit}"

    @property
    def derived_type(self) -> pa.DataType:
        """The type of the column derived by a unit."""
        return {"year": pa.int32(), "day": pa.date32()}.get(self.unit or "", pa.string())

    def values(self, column: pa.Array) -> pa.DictionaryArray:
        """The partition of each row, as dictionary-encoded text."""
        encoded = (column if self.unit is None else pc.floor_temporal(column, unit=self.unit)).dictionary_encode()
        kinds = encoded.dictionary
        text = pc.cast(kinds, pa.string()) if self.unit is None else pc.strftime(kinds, format=UNITS[self.unit])
        return pa.DictionaryArray.from_arrays(encoded.indices, text)

    def check(self, schema: pa.Schema) -> None:
        """Check that a table of this schema can be partitioned so."""
        if self.source not in schema.names:
            raise TableSchemaError(f"partition_by names {self}, but the table has no column {self.source!r}: {schema.names}")
        kind = schema.field(self.source).type
        if self.unit is not None:
            if not (pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and self.unit != "hour")):
                raise TableSchemaError(f"partition_by {self} needs a time, but column {self.source!r} is {kind}")
            if self.name in schema.names:
                raise TableSchemaError(f"partition_by {self} makes a column {self.name!r}, which the table has already")
        elif not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind)):
            raise TableSchemaError(f"partition_by names column {self.source!r} of type {kind}; it takes text, integers and dates")


def parse_cuts(given: Sequence[str]) -> tuple[PartitionField, ...]:
    """Parse expressions such as `day(ts)` and `country`."""
    fields = []
    for text in given:
        matched = _FORM.fullmatch(text)
        if matched is None:
            raise TableSchemaError(f"partition_by has {text!r}; it takes a column, or one of {', '.join(UNITS)} of it: day(time)")
        unit, of, plain = matched.groups()
        if unit is not None and unit not in UNITS:
            raise TableSchemaError(f"partition_by has {text!r}; there are {', '.join(UNITS)}")
        fields.append(PartitionField(of or plain, unit))
    return tuple(fields)


def split(batch: pa.RecordBatch, cuts: Sequence[PartitionField]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of a batch by partition, in their order within each."""
    if not cuts:
        yield (), batch
        return
    columns = [cut.values(batch.column(cut.source)) for cut in cuts]
    numbers: Any = np.zeros(batch.num_rows, np.int64)
    for column in columns:
        codes = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        numbers = numbers * (len(column.dictionary) + 1) + codes
    which, first, inverse, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    keys = [tuple(column[int(row)].as_py() for column in columns) for row in first]
    if len(which) == 1:
        yield keys[0], batch
        return
    ordered = batch.take(pa.array(np.argsort(inverse, kind="stable")))
    start = 0
    for key, count in zip(keys, counts, strict=True):
        yield key, ordered.slice(start, int(count))
        start += int(count)


def hive_folder(cuts: Sequence[PartitionField], values: Values) -> str:
    """The directory of a partition in Hive's form."""
    return "".join(
        f"{cut.name}={NO_VALUE if value is None else quote(value, safe=' ')}/" for cut, value in zip(cuts, values, strict=True)
    )


def plain_folder(cuts: Sequence[PartitionField], values: Values) -> str:
    """The directory of a partition, informational only: the format stores the values itself, and characters that it might encode
    are left out."""
    return "".join(
        f"{_UNSAFE.sub('_', cut.name)}={'null' if value is None else _UNSAFE.sub('_', value)[:80]}/"
        for cut, value in zip(cuts, values, strict=True)
    )
