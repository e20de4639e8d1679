"""The limit: a source in Python that hands over record batches it has ready, as many as asked, and does nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.columns import TYPES, Layout
from penstock.spark.options import COLUMNS

# Measured as the fastest: for larger batches Java has to allocate new memory.
ROWS_MAX = 1 << 16
BYTES_MAX = 16 << 20


class ReadySource(DataSource):
    """`rows` rows with values of `size` bytes, in `parts` partitions, with the columns of a topic; with `rate` a stream gets as
    many rows a second."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return ", ".join(f"{name} {TYPES[name]}" for name in COLUMNS[:-1])

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 # Spark's name
        return ReadyStreamReader(schema, self.options)


class _Ready:
    def __init__(self, schema: StructType, options: Any) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._layout = Layout(to_arrow_schema(schema, timezone="UTC"))
        self.rows, self._size, self._parts = (int(options[name]) for name in ("rows", "size", "parts"))

    def split(self, rows: int) -> list[InputPartition]:
        return [InputPartition(rows // self._parts) for _ in range(self._parts)]

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        batch = ready(self._layout.schema, self._size)
        while rows > 0:
            yield batch.slice(0, min(rows, batch.num_rows))
            rows -= batch.num_rows


@cache
def ready(schema: pa.Schema, size: int) -> pa.RecordBatch:
    """Rows, made once for all tasks of a process."""
    rows = min(ROWS_MAX, BYTES_MAX // size)
    columns = [
        pa.nulls(rows, pa.binary()),
        pa.repeat(pa.scalar(bytes(size), pa.binary()), rows),
        pa.repeat("topic", rows),
        pa.repeat(pa.scalar(0, pa.int32()), rows),
        pa.array(range(rows), pa.int64()),
        pa.array(range(rows), pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.repeat(pa.scalar(0, pa.int32()), rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class ReadyReader(_Ready, DataSourceReader):
    """A batch of them."""

    def partitions(self) -> list[InputPartition]:
        return self.split(self.rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.batches(partition.value)


class ReadyStreamReader(_Ready, DataSourceStreamReader):
    """The same as one micro-batch, or as they come in by the clock."""

    def __init__(self, schema: StructType, options: Any) -> None:
        super().__init__(schema, options)
        self._rate = int(options.get("rate", "0"))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 # Spark's name
        return {"rows": int(time.time() * self._rate)}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # noqa: N802 # the form without limits
        return {"rows": int(time.time() * self._rate) or self.rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self.split(end["rows"] - start["rows"]) if end["rows"] > start["rows"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.batches(partition.value)
