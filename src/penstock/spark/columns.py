"""The columns of the source: their Spark types, and the layout of a read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from penstock.spark.errors import OptionError
from penstock.spark.options import COLUMNS, ReadOptions
from penstock.spark.releases import arrow_schema

# As the Kafka source has them.
TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_SIMPLE: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


@dataclass(frozen=True)
class Layout:
    """The columns that a read returns, in order, as Arrow knows them."""

    schema: pa.Schema

    def has(self, name: str) -> bool:
        """Whether a column is requested."""
        return name in self.schema.names

    @property
    def value_type(self) -> pa.DataType | None:
        """The struct that values are decoded to; None where they are bytes or left out."""
        value_type = self.schema.field("value").type if self.has("value") else None
        return value_type if value_type is not None and pa.types.is_struct(value_type) else None


def default_schema(options: ReadOptions, value_type: str | None, comment: str | None = None) -> str:
    """The columns of a read as Spark DDL; decoded values have their own type, and the first column has the comment."""
    types = {**TYPES, **({"value": value_type} if value_type is not None else {})}
    first, *others = (f"`{name}` {types[name]}" for name in options.columns)
    return ", ".join((first if comment is None else f"{first} COMMENT '{comment}'", *others))


def layout(schema: StructType, options: ReadOptions) -> Layout:
    """The layout of a schema: any of the columns, by name, in any order."""
    for field in schema.fields:
        _check(field, options)
    return Layout(arrow_schema(schema))


def _check(field: StructField, options: ReadOptions) -> None:
    if field.name not in COLUMNS:
        raise OptionError(f"the schema has a column {field.name!r}; there are {', '.join(COLUMNS)}")
    actual = field.dataType.simpleString()
    if field.name == "value" and options.value_format is not None:
        if not isinstance(field.dataType, StructType) or not field.dataType.fields:
            raise OptionError(
                f"valueFormat {options.value_format} decodes values to a struct, but the schema has {actual} for value; give "
                "valueSchema, or a schema in which value is a struct"
            )
        return
    if actual != _SIMPLE[field.name]:
        raise OptionError(f"column {field.name} is {_SIMPLE[field.name]}; the schema has {actual}")
