"""The schema of a queue as a JSON Schema and as an Avro schema, for the subject of its topic."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.gateway.yt.errors import SCHEMA_VIOLATION, YtError
from penstock.gateway.yt.schema import ANY, DOUBLES, SIGNED, STRINGS, SYSTEM_COLUMNS, UNSIGNED, Column, Schema
from penstock.gateway.yt.stored_values import ESCAPE

DIALECT: Final = "http://json-schema.org/draft-07/schema#"
AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INT_BITS: Final = 32  # of Avro's int

# What JSON cannot say is stored as an object with its YSON.
_ESCAPED: Final = {"properties": {ESCAPE: {"type": "string"}}, "required": [ESCAPE], "additionalProperties": False}


def json_schema(schema: Schema) -> dict[str, Any]:
    """The rows of a queue as they are stored: objects with its columns alone."""
    columns = _own(schema)
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": {column.name: _json_type(column) for column in columns},
        "required": [column.name for column in columns if column.required],
        "additionalProperties": False,
    }


def avro_schema(schema: Schema) -> dict[str, Any]:
    """The rows of a queue as records. YtError if a column has no type in Avro, or no name."""
    fields: list[dict[str, Any]] = []
    for column in _own(schema):
        if not AVRO_NAME.fullmatch(column.name):
            raise YtError(SCHEMA_VIOLATION, f'Column "{column.name}" has no name that Avro allows; use letters, digits and _')
        type_ = _avro_type(column)
        fields.append(
            {"name": column.name, "type": type_}
            if column.required
            else {"name": column.name, "type": ["null", type_], "default": None}
        )
    return {"type": "record", "name": "Row", "fields": fields}


def _own(schema: Schema) -> list[Column]:
    return [column for column in schema.columns if column.name not in SYSTEM_COLUMNS]


def _json_type(column: Column) -> dict[str, Any]:
    null = [] if column.required else ["null"]
    if column.type in STRINGS:
        return {"type": ["string", "object", *null], **_ESCAPED}
    if column.type in SIGNED:
        limit = 1 << SIGNED[column.type] - 1
        return {"type": ["integer", *null], "minimum": -limit, "maximum": limit - 1}
    if column.type in UNSIGNED:
        return {"type": ["integer", *null], "minimum": 0, "maximum": (1 << UNSIGNED[column.type]) - 1}
    if column.type in DOUBLES:
        return {"type": ["number", "object", *null], **_ESCAPED}
    return {} if column.type in ANY else {"type": ["boolean", *null]}


def _avro_type(column: Column) -> str:
    if column.type in STRINGS:
        return "string"
    if column.type in SIGNED:
        return "int" if SIGNED[column.type] <= INT_BITS else "long"
    if column.type in UNSIGNED:
        return "int" if UNSIGNED[column.type] < INT_BITS else "long"
    if column.type in DOUBLES:
        return "double"
    if column.type in ANY:
        raise YtError(
            SCHEMA_VIOLATION, f'Column "{column.name}" is of type {column.type}, which Avro cannot say; use a JSON Schema'
        )
    return "boolean"
