"""Tables that a query joins with its topics, as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.pipelines.spec import PipelineSpec, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_static_table(spark: SparkSession, spec: PipelineSpec, field: str, table: TableSpec) -> DataFrame:
    """A table as it is now."""
    from pyspark.errors import PySparkException

    assert table.location is not None
    try:
        return spark.read.parquet(spec.path(table.location))
    except PySparkException as error:
        raise spec.fault(field, str(error).strip().splitlines()[0]) from error
