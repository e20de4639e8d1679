"""Converts result rows to rows of a topic: value, and optionally key, headers and partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.spark.pipelines.spec import PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN: Final = ("value", "key", "headers", "partition")
_BYTES: Final = ("string", "binary")


def topic_rows(spec: PipelineSpec, rows: DataFrame, field: str) -> DataFrame:
    """The columns to write. Without a column `value`, every column but `key` becomes a field of a JSON object. Raises SpecError
    at `field` if they cannot be written."""
    from pyspark.sql import functions

    names = rows.columns
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise spec.fault(field, f"the result has more than one column {', '.join(twice)}; name them with AS")
    if "value" not in names:
        fields = [functions.col(f"`{name}`") for name in names if name != "key"]
        if not fields:
            raise spec.fault(field, "the result has no column but key; select what is to be written")
        value = functions.to_json(functions.struct(*fields), {"ignoreNullFields": "false"}).alias("value")
        rows = rows.select(value, *(["key"] if "key" in names else []))
    else:
        unknown = [name for name in names if name not in WRITTEN]
        if unknown:
            raise spec.fault(
                field,
                f"with a column value the result is written as it is, and {', '.join(unknown)} cannot be; select only "
                f"{', '.join(WRITTEN)}, or call value another name to have whole rows written as JSON",
            )
        if types["value"] not in _BYTES:
            raise spec.fault(field, f"column value is {types['value']}; it must be string or binary: cast it, or use to_json")
    if "key" in types and types["key"] not in _BYTES:
        rows = rows.withColumn("key", functions.col("key").cast("string"))
    if "partition" in rows.columns and types["partition"] not in ("tinyint", "smallint", "int", "bigint"):
        raise spec.fault(field, f"column partition is {types['partition']}; it must be a whole number")
    return rows
