"""Decodes Avro values to columns: the schema is compiled to a program for the kernel, which fills the columns of a struct."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.kernels import avro_decode as kernel
from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import rows_without_utf8


class BeyondProgramError(Exception):
    """The schema has a type that the program does not support; `avro_any` may."""


class _Kind(NamedTuple):
    """How a type is read and what it becomes: operation and its two numbers, width of the column, types in Arrow and Spark."""

    operation: int
    a: int
    b: int
    width: int
    arrow: pa.DataType
    spark: str


_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_KINDS: Final = {
    "boolean": _Kind(kernel.BOOLEAN, 0, 0, kernel.BITS, pa.bool_(), "BOOLEAN"),
    "int": _Kind(kernel.INTEGER, 1, 1, 4, pa.int32(), "INT"),
    "long": _Kind(kernel.INTEGER, 1, 0, 8, pa.int64(), "BIGINT"),
    "float": _Kind(kernel.RAW, 4, 0, 4, pa.float32(), "FLOAT"),
    "double": _Kind(kernel.RAW, 8, 0, 8, pa.float64(), "DOUBLE"),
    "bytes": _Kind(kernel.OCTETS, 0, 0, kernel.STRINGS, pa.binary(), "BINARY"),
    "string": _Kind(kernel.OCTETS, 0, 0, kernel.STRINGS, pa.string(), "STRING"),
}
_LOGICAL: Final = {
    ("int", "date"): _Kind(kernel.INTEGER, 1, 1, 4, pa.date32(), "DATE"),
    ("long", "timestamp-millis"): _Kind(kernel.INTEGER, 1000, 0, 8, _TIMESTAMP, "TIMESTAMP"),
    ("long", "timestamp-micros"): _Kind(kernel.INTEGER, 1, 0, 8, _TIMESTAMP, "TIMESTAMP"),
}


@dataclass(frozen=True)
class _Node:
    """A type of the schema: a record with its fields, or a leaf; `column` is where a leaf or the nulls of a record go."""

    arrow: pa.DataType
    spark: str
    column: int
    fields: tuple[_Node, ...] | None = None


@dataclass
class AvroProgram:
    """What the kernel needs for a schema, and how the columns belong together."""

    steps: list[tuple[int, int, int, int]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    symbols: list[bytes] = field(default_factory=list)
    _named: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> tuple[AvroProgram, _Node]:
        """The program for a schema given as JSON."""
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise OptionError(f"valueSchema is not JSON, as schemas of Avro are: {error}") from error
        program = cls()
        if not (isinstance(schema, dict) and schema.get("type") == "record"):
            raise OptionError("valueSchema must be a record: its fields become the fields of value")
        return program, program._record(schema, "value", -1)

    def _read(self, schema: Any, where: str) -> _Node:
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(schema, dict):
            if isinstance(kind, (dict, list)):
                return self._read(kind, where)
            if schema.get("logicalType") == "decimal":
                raise BeyondProgramError(f"{where} is a decimal")
            if kind in ("record", "enum", "fixed"):
                return self._name(schema, where)
            logical = _LOGICAL.get((str(kind), str(schema.get("logicalType"))))
            if logical is not None:
                return self._leaf(logical)
        if kind not in _KINDS:
            raise BeyondProgramError(f"{where} is of type {kind!r}")
        return self._leaf(_KINDS[kind])

    def _name(self, schema: dict[str, Any], where: str) -> _Node:
        if schema["type"] == "record":
            return self._record(schema, where, -1)
        if schema["type"] == "enum":
            symbols = [str(symbol).encode() for symbol in schema.get("symbols", [])]
            kind = _Kind(kernel.ENUM, len(self.symbols), len(symbols), kernel.STRINGS, pa.string(), "STRING")
            self.symbols += symbols
            node = self._leaf(kind)
        else:
            node = self._leaf(_Kind(kernel.FIXED, int(schema.get("size", 0)), 0, kernel.STRINGS, pa.binary(), "BINARY"))
        self._remember(schema)
        return node

    def _remember(self, schema: dict[str, Any]) -> None:
        """Register a named type for later references; recursive references are not allowed."""
        name = str(schema.get("name"))
        self._named[name] = self._named[f"{schema.get('namespace', '')}.{name}"] = schema

    def _leaf(self, kind: _Kind) -> _Node:
        self.widths.append(kind.width)
        self.steps.append((kind.operation, len(self.widths) - 1, kind.a, kind.b))
        return _Node(kind.arrow, kind.spark, len(self.widths) - 1)

    def _record(self, schema: dict[str, Any], where: str, column: int) -> _Node:
        names, nodes = [], []
        for item in schema.get("fields", []):
            names.append(str(item["name"]))
            nodes.append(self._read(item["type"], f"{where}.{names[-1]}"))
        if not nodes:
            raise OptionError(f"{where} in valueSchema is a record without fields")
        self._remember(schema)
        arrow = pa.struct([pa.field(name, node.arrow) for name, node in zip(names, nodes, strict=True)])
        spark = ", ".join(f"`{name}`: {node.spark}" for name, node in zip(names, nodes, strict=True))
        return _Node(arrow, f"STRUCT<{spark}>", column, tuple(nodes))

    def _union(self, branches: list[Any], where: str) -> _Node:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1 or len(branches) != 2:
            raise BeyondProgramError(f"{where} is a union of other than null and one type")
        step = len(self.steps)
        other = self._named.get(others[0], others[0]) if isinstance(others[0], str) else others[0]
        is_record = isinstance(other, dict) and other.get("type") == "record"
        if is_record:
            self.widths.append(kernel.NO_DATA)
        column = len(self.widths) - 1 if is_record else -1
        self.steps.append((kernel.NULLABLE, column, branches.index("null"), 0))
        node = self._record(other, where, column) if is_record else self._read(others[0], where)
        self.steps[step] = (*self.steps[step][:3], len(self.steps) - step - 1)
        return node


class AvroFormat:
    """Values that are one Avro record each, without a header."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(self, kind: pa.DataType, schema: str, *, fails: bool) -> None:
        self._program, self._root = AvroProgram.of(schema)
        if self._root.arrow != kind:
            raise OptionError(f"valueSchema makes values {self._root.arrow}, but the schema of the read has {kind}")
        self._fails = fails
        self.malformed: list[MalformedValue] | None = None
        starts = [0, *np.cumsum([len(symbol) for symbol in self._program.symbols])]
        self._symbols, self._symbol_starts = b"".join(self._program.symbols), np.array(starts, np.int32)
        self._steps = np.array(self._program.steps, np.int64)
        self._growth = max((len(symbol) for symbol in self._program.symbols), default=0)

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        rows = len(starts) - 1
        validity = np.full((rows + 7) // 8, 255, np.uint8) if valid is None else np.frombuffer(valid, np.uint8).copy()
        # A symbol may be longer than the number that stands for it.
        columns = [_Column(width, rows, text.size + rows * self._growth) for width in self._program.widths]
        decoder = kernel.AvroDecoder(self._steps, [column.room for column in columns], self._symbols, self._symbol_starts)
        bad = decoder.decode(memoryview(text).cast("B"), starts, validity)
        if bad >= 0:
            self._refuse(offsets[bad])
        if bad >= 0 and self.malformed is not None:
            before = np.full((rows + 7) // 8, 255, np.uint8) if valid is None else np.frombuffer(valid, np.uint8)[: len(validity)]
            lost = np.unpackbits(before & ~validity, bitorder="little")[:rows]
            self.malformed += [MalformedValue(int(row), "not Avro of the schema given") for row in np.flatnonzero(lost)]
        children = [_array(node, columns, rows) for node in self._root.fields or ()]
        decoded = pa.Array.from_buffers(self._root.arrow, rows, [pa.py_buffer(validity)], children=children)
        wrong = rows_without_utf8(decoded)
        return self._without(decoded, wrong, offsets) if wrong else decoded

    def _without(self, decoded: pa.Array, wrong: set[int], offsets: Any) -> pa.Array:
        """The values but for those that hold texts that are none."""
        self._refuse(offsets[min(wrong)], ": a text in it is not UTF-8")
        if self.malformed is not None:
            self.malformed += [MalformedValue(row, "not Avro of the schema given: a text in it is not UTF-8") for row in wrong]
            self.malformed.sort(key=lambda value: value.row)
        return decoded.take(pa.array([None if row in wrong else row for row in range(len(decoded))], pa.int64()))

    def _refuse(self, offset: int, why: str = "") -> None:
        if self._fails:
            raise MalformedValueError(
                f"the value at offset {offset} is not Avro of the schema given as valueSchema{why}. Set onMalformed to null to "
                "have null in its place"
            )


class _Column:
    """Memory for one column, and the array made of it."""

    def __init__(self, width: int, rows: int, size: int) -> None:
        strings = width == kernel.STRINGS
        count = size if strings else (rows + 7) // 8 if width == kernel.BITS else rows * max(width, 0)
        self._data = pa.allocate_buffer(count)
        data: Any = np.frombuffer(self._data, np.uint8)
        if width == kernel.BITS:
            data.fill(0)
        self._validity, self._offsets = np.zeros((rows + 7) // 8 + 1, np.uint8), np.zeros(rows + 1 if strings else 1, np.int32)
        self.width = width
        self.room = kernel.AvroColumn(width, self._validity, data, self._offsets)

    @property
    def valid(self) -> pa.Buffer | None:
        """A bit for each row that is not null, or nothing if all are there."""
        return pa.py_buffer(self._validity) if self.room.nulls else None

    def array(self, kind: pa.DataType) -> pa.Array:
        """The rows as a column."""
        if self.width == kernel.STRINGS:
            buffers = [self.valid, pa.py_buffer(self._offsets), self._data.slice(0, self.room.used)]
        else:
            buffers = [self.valid, self._data]
        return pa.Array.from_buffers(kind, self.room.rows, buffers, self.room.nulls)


def _array(node: _Node, columns: list[_Column], rows: int) -> pa.Array:
    if node.fields is None:
        return columns[node.column].array(node.arrow)
    children = [_array(child, columns, rows) for child in node.fields]
    valid = columns[node.column].valid if node.column >= 0 else None
    return pa.Array.from_buffers(node.arrow, rows, [valid], children=children)


def avro_type(schema: str) -> str:
    """The Spark type, as DDL, that values of a schema are decoded to."""
    try:
        return AvroProgram.of(schema)[1].spark
    except BeyondProgramError:
        # Imported late: only few schemas need it.
        from penstock.spark.avro_any import any_avro_type

        return any_avro_type(schema)
