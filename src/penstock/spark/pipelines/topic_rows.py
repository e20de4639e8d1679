"""Converts result rows to rows of a topic: value, and optionally key, headers and partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.spark.pipelines.spec import FAN_OUT, PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WRITTEN: Final = ("value", "key", "headers", "partition")
_BYTES: Final = ("string", "binary")


def _topic_column(spec: PipelineSpec) -> Column:
    """The name of a row's topic: null if a column of it is."""
    from pyspark.sql import functions

    texts = FAN_OUT.split(spec.target.topic or "")
    # Every other part is the name of a column.
    parts = [functions.col(f"`{text}`").cast("string") if at % 2 else functions.lit(text) for at, text in enumerate(texts)]
    return functions.concat(*parts)


def topic_rows(spec: PipelineSpec, rows: DataFrame, field: str) -> DataFrame:
    """The columns to write. Without a column `value`, every column but `key` becomes a field of a JSON object. With a fan-out
    each row has the name of its topic. Raises SpecError at `field` if they cannot be written."""
    from pyspark.sql import functions

    names = rows.columns
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise spec.fault(field, f"the result has more than one column {', '.join(twice)}; name them with AS")
    fan_out = spec.target.fan_out
    missing = [name for name in fan_out if name not in names]
    if missing:
        raise spec.fault("target.topic", f"the result has no column {', '.join(missing)}; there are {', '.join(names)}")
    topic = [_topic_column(spec).alias("topic")] if fan_out else []
    if "value" not in names:
        fields = [functions.col(f"`{name}`") for name in names if name != "key"]
        if not fields:
            raise spec.fault(field, "the result has no column but key; select what is to be written")
        value = functions.to_json(functions.struct(*fields), {"ignoreNullFields": "false"}).alias("value")
        rows = rows.select(value, *(["key"] if "key" in names else []), *topic)
    else:
        unknown = [name for name in names if name not in (*WRITTEN, *fan_out)]
        if unknown:
            raise spec.fault(
                field,
                f"with a column value the result is written as it is, and {', '.join(unknown)} cannot be; select only "
                f"{', '.join(WRITTEN)}, or call value another name to have whole rows written as JSON",
            )
        if types["value"] not in _BYTES:
            raise spec.fault(field, f"column value is {types['value']}; it must be string or binary: cast it, or use to_json")
        if topic:
            rows = rows.select(*(name for name in names if name in WRITTEN), *topic)
    if "key" in types and types["key"] not in _BYTES:
        rows = rows.withColumn("key", functions.col("key").cast("string"))
    if "partition" in rows.columns and types["partition"] not in ("tinyint", "smallint", "int", "bigint"):
        raise spec.fault(field, f"column partition is {types['partition']}; it must be a whole number")
    return rows
