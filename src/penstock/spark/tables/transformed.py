"""Writes the result of a query to files of a table."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from penstock.spark.releases import arrow_schema
from penstock.spark.tables.task_writer import DataFile, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.pipelines.query import Query
    from penstock.spark.pipelines.views import View


def frame_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a DataFrame as an Arrow schema for tables."""
    return pa.schema([field.with_nullable(True) for field in arrow_schema(frame.schema)])


def query_schema(query: Query, views: Sequence[View]) -> pa.Schema:
    """The columns of a query's result."""
    return frame_schema(query.apply({view.name: view.frame(query.session, ()) for view in views}))


def write_frame(frame: DataFrame, writer: TaskWriter, name: str) -> list[DataFile]:
    """Write the rows of a DataFrame to files that are not committed yet."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        files = writer.write(batches, f"{name}-{number:05d}")
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(files)], pa.binary())], names=["files"])

    rows = frame.mapInArrow(write, "files BINARY").collect()
    return [file for row in rows for file in pickle.loads(bytes(row["files"]))]
