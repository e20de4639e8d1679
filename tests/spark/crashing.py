"""The sink with an accident built in: it dies once at a chosen point, as if its process had been killed there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.sink import StreamSink, TaskCommitMessage
from penstock.spark.source import PenstockDataSource
from penstock.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

POINTS = ("before the write", "in the write", "after the write", "before the commit", "after the commit")


class CrashingDataSource(PenstockDataSource):
    """`format("penstock_crashing")`, with two options more: where to die, and a file that says that it has been done."""

    @classmethod
    def name(cls) -> str:
        return "penstock_crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        point, done = self.options.pop("crashat"), self.options.pop("crashed")
        return CrashingSink(self._write(schema), point, Path(done))


class CrashingSink(StreamSink):
    """Dies without a word, once."""

    def __init__(self, options: WriteOptions, point: str, done: Path) -> None:
        super().__init__(options)
        self._point = point
        self._done = done

    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommitMessage:
        self._reach("before the write")
        told = super().write(self._half(iterator))
        self._reach("after the write")
        return told

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._reach("before the commit")
        super().commit(messages, batchId)
        self._reach("after the commit")

    def _half(self, iterator: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in iterator:
            yield batch.slice(0, batch.num_rows // 2)
            self._reach("in the write")
            yield batch.slice(batch.num_rows // 2)

    def _reach(self, point: str) -> None:
        if point != self._point:
            return
        try:
            self._done.touch(exist_ok=False)
        except FileExistsError:
            return
        os._exit(9)
