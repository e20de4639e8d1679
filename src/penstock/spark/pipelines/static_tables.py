"""Tables that a query joins with its topics, as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.spec import PipelineSpec, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.tables.table import TableReader
    from penstock.spark.tables.task_writer import DataFile


def read_static_table(spark: SparkSession, spec: PipelineSpec, field: str, table: TableSpec) -> DataFrame:
    """A snapshot of a table. Spark reads Parquet tables itself; the files of other formats are read in tasks."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.spark.releases import arrow_schema

    try:
        if table.format == "parquet" and table.location is not None:
            return spark.read.parquet(spec.path(table.location))
        from penstock.spark.tables.table import table_of

        opened = table_of(spec, table)
        opened.refresh()
        schema = opened.schema()
        if schema is None:
            raise spec.fault(field, f"there is no {table}")
        columns = from_arrow_schema(schema)
        files = opened.data_files()
        reader = replace(opened.reader(), schema=arrow_schema(columns))
        return spark.range(0, len(files), 1, max(len(files), 1)).mapInArrow(ReadTableTask(reader, files), columns)
    except PySparkException as error:
        raise spec.fault(field, str(error).strip().splitlines()[0]) from error
    except PenstockError as error:
        raise spec.fault(field, str(error)) from error


@dataclass(frozen=True)
class ReadTableTask:
    """A task that reads the files of a table with the given numbers."""

    reader: TableReader
    files: list[DataFile]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.reader.read(self.files[number])
