"""Types of Spark as Arrow has them, without Spark: executors decode values, and have no session to ask."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BINARY": pa.binary(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_TOKEN: Final = re.compile(r"\s*(`[^`]*`|\w+|[<>,:()])")


def arrow_type(ddl: str) -> pa.DataType:
    """The type of a column, such as `STRUCT<id: BIGINT, tags: ARRAY<STRING>>`."""
    tokens = _TOKEN.findall(ddl)
    kind, left = _read(tokens)
    assert not left, f"{ddl} is one type"
    return kind


def _read(tokens: list[str]) -> tuple[pa.DataType, list[str]]:
    name, left = tokens[0].upper(), tokens[1:]
    if name == "ARRAY":
        inner, left = _read(left[1:])
        return pa.list_(pa.field("element", inner)), left[1:]
    if name == "MAP":
        key, left = _read(left[1:])
        value, left = _read(left[1:])
        return pa.map_(key, value), left[1:]
    if name == "STRUCT":
        fields = []
        while left[0] in "<,":
            field, left = left[1].strip("`"), left[3:] if left[2] == ":" else left[2:]
            kind, left = _read(left)
            fields.append(pa.field(field, kind))
        return pa.struct(fields), left[1:]
    if name == "DECIMAL":
        return pa.decimal128(int(left[1]), int(left[3])), left[5:]
    return _PLAIN[name], left


def project(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as another type: fields of structs by name, null where one is missing, everything else cast."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        names = {field.name: number for number, field in enumerate(column.type)}
        flat = column.flatten()
        children = [
            project(flat[names[field.name]], field.type) if field.name in names else pa.nulls(len(column), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        inner = project(column.flatten(), kind.value_type)
        starts = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0))])
        return pa.ListArray.from_arrays(starts, inner, kind, mask=column.is_null())
    return column.cast(kind)
