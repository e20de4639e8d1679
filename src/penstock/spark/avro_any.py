"""Avro values of any schema to columns, for what the compiled program of `avro_format` does not know: arrays, maps, decimals, and
unions of numbers. Values are read one by one by fastavro, so this takes several times as long."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from struct import error as struct_error
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import fitting_column

Convert = Callable[[Any], Any]

_PRIMITIVE: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
# Other logical types are read as what they are made of.
_LOGICAL: Final = {("int", "date"): "DATE", ("long", "timestamp-millis"): "TIMESTAMP", ("long", "timestamp-micros"): "TIMESTAMP"}
_WIDER: Final = {frozenset({"int", "long"}): "BIGINT", frozenset({"float", "double"}): "DOUBLE"}
# What the reader raises for bytes that are not of the schema.
_MALFORMED: Final = (
    ArithmeticError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    StopIteration,
    TypeError,
    ValueError,
    pa.ArrowException,
    struct_error,
)


class _Column(NamedTuple):
    """A type of the schema: what it is in Spark, the schema to read it with, and what makes of the value read what Arrow takes;
    None if it takes it as it is."""

    spark: str
    schema: Any
    convert: Convert | None


class _Types:
    """Makes columns of types. A type with a name can be meant by it after its definition, but not within."""

    def __init__(self) -> None:
        self._named: dict[str, _Column] = {}

    def of(self, schema: Any, where: str) -> _Column:
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            if schema in self._named:
                return self._named[schema]._replace(schema=schema)
            return self._plain(schema, {"type": schema}, where)
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self.of(kind, where)
        if kind == "record":
            return self._record(schema, where)
        if kind == "array":
            item = self.of(schema["items"], f"{where}[]")
            convert = None if item.convert is None else _each(item.convert)
            return _Column(f"ARRAY<{item.spark}>", {"type": "array", "items": item.schema}, convert)
        if kind == "map":
            item = self.of(schema["values"], f"{where}{{}}")
            return _Column(f"MAP<STRING, {item.spark}>", {"type": "map", "values": item.schema}, _pairs(item.convert))
        column = self._plain(str(kind), schema, where)
        if kind in ("enum", "fixed"):
            self._remember(schema, column)
        return column

    def _plain(self, kind: str, schema: dict[str, Any], where: str) -> _Column:
        logical = str(schema.get("logicalType"))
        if (kind, logical) in _LOGICAL:
            return _Column(_LOGICAL[kind, logical], schema, None)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _Column(f"DECIMAL({schema.get('precision')}, {schema.get('scale', 0)})", schema, None)
        if kind not in _PRIMITIVE:
            raise OptionError(f"{where} in valueSchema is of type {kind!r}, which is not decoded; leave values as bytes")
        bare = {name: value for name, value in schema.items() if name != "logicalType"}
        return _Column(_PRIMITIVE[kind], bare, None)

    def _record(self, schema: dict[str, Any], where: str) -> _Column:
        names = [str(item["name"]) for item in schema.get("fields", [])]
        if not names:
            raise OptionError(f"{where} in valueSchema is a record without fields")
        columns = [self.of(item["type"], f"{where}.{name}") for name, item in zip(names, schema["fields"], strict=True)]
        spark = ", ".join(f"`{name}`: {column.spark}" for name, column in zip(names, columns, strict=True))
        fields = [{"name": item["name"], "type": column.schema} for item, column in zip(schema["fields"], columns, strict=True)]
        converts = {name: column.convert for name, column in zip(names, columns, strict=True) if column.convert is not None}
        record = _Column(f"STRUCT<{spark}>", {**schema, "fields": fields}, _some(converts) if converts else None)
        self._remember(schema, record)
        return record

    def _union(self, branches: list[Any], where: str) -> _Column:
        others = [branch for branch in branches if branch != "null"]
        columns = [self.of(branch, where) for branch in others]
        # The order of the branches is part of the format.
        ordered = iter(column.schema for column in columns)
        schema = ["null" if branch == "null" else next(ordered) for branch in branches]
        if len(columns) == 1:
            convert = columns[0].convert
            return _Column(columns[0].spark, schema, None if convert is None else _unless_none(convert))
        wider = _WIDER.get(frozenset(others)) if all(isinstance(branch, str) for branch in others) else None
        if wider is None:
            raise OptionError(f"{where} in valueSchema is a union of several types, which is no column; leave values as bytes")
        return _Column(wider, schema, None)

    def _remember(self, schema: dict[str, Any], column: _Column) -> None:
        name = str(schema.get("name"))
        self._named[name] = self._named[f"{schema.get('namespace', '')}.{name}"] = column


class AnyAvroFormat:
    """Values that are one Avro record each, without a header."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(self, kind: pa.DataType, schema: str, *, fails: bool) -> None:
        column = _column(schema)
        self._schema = parse_schema(column.schema)
        self._convert = column.convert
        self._kind = kind
        self._fails = fails
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        rows = len(starts) - 1
        data = memoryview(text).cast("B")
        is_valid = [True] * rows if valid is None else np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[:rows]
        values: list[Any] = []
        for row in range(rows):
            value = None
            if is_valid[row]:
                try:
                    value = self._value(data[int(starts[row]) : int(starts[row + 1])])
                except _MALFORMED as error:
                    self._note(row, error, offsets)
            values.append(value)
        return fitting_column(values, self._kind, lambda row, error: self._note(row, error, offsets))

    def _value(self, raw: memoryview) -> Any:
        stream = io.BytesIO(raw)
        value = schemaless_reader(stream, self._schema, None)
        if stream.tell() != len(raw):
            raise ValueError(f"{len(raw) - stream.tell()} bytes are left over")
        return value if self._convert is None else self._convert(value)

    def _note(self, row: int, error: Exception, offsets: Any) -> None:
        why = str(error) or type(error).__name__
        if self._fails:
            raise MalformedValueError(
                f"the value at offset {offsets[row]} is not Avro of the schema given as valueSchema: {why}. Set onMalformed to "
                "null to have null in its place"
            ) from error
        if self.malformed is not None:
            self.malformed.append(MalformedValue(row, f"not Avro of the schema given: {why}"))


def any_avro_type(schema: str) -> str:
    """The Spark type, as DDL, that values of a schema are decoded to."""
    return _column(schema).spark


def _column(text: str) -> _Column:
    schema = json.loads(text)
    try:
        column = _Types().of(schema, "value")
        parse_schema(column.schema)
    except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
        raise OptionError(f"valueSchema is no schema of Avro: {error}") from error
    return column


def _each(convert: Convert) -> Convert:
    return lambda items: [convert(item) for item in items]


def _pairs(convert: Convert | None) -> Convert:
    def pairs(value: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        return list(value.items()) if convert is None else [(key, convert(item)) for key, item in value.items()]

    return pairs


def _some(converts: dict[str, Convert]) -> Convert:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, convert in converts.items():
            value[name] = convert(value[name])
        return value

    return convert


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
