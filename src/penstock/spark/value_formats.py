"""Decodes values to columns in compiled code, a whole record batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.json

from penstock.spark.arrow_types import arrow_type
from penstock.spark.avro_format import AvroFormat, BeyondProgramError, avro_type
from penstock.spark.debezium_format import DebeziumFormat, JsonEventFormat, envelope_type, row_schema, row_type
from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.framing import FramedFormat
from penstock.spark.json_maps import MapJsonFormat, has_map, text_maps, without_maps
from penstock.spark.malformed import MalformedValue
from penstock.spark.options import REGISTRY, ReadOptions
from penstock.spark.registered_values import RegisteredProtobuf, avro_text, column_type
from penstock.spark.registry_client import RegisteredSchema, SchemaRegistry
from penstock.spark.value_format import ValueFormat, check_utf8

DEBEZIUM: Final = "debezium-"
Decode = Callable[[int, int], pa.Array]


class JsonFormat:
    """Values that are one JSON object each.

    Each is wrapped into an object of its own before all are parsed at once. So an empty value, or half of one, is an error and
    never a row too few, and two objects in one value are a row too many: if there are as many rows as values, row and value
    belong together.
    """

    wrapping: tuple[bytes, bytes, bytes] | None = (b'{"v":', b"}\n", b"null")

    def __init__(self, kind: pa.DataType, *, fails: bool) -> None:
        self._kind = kind
        self._fails = fails
        self.malformed: list[MalformedValue] | None = None
        self._parse = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", kind)]), unexpected_field_behavior="ignore"
        )
        try:
            self._rows(pa.py_buffer(b'{"v":null}\n'))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OptionError(f"valueFormat json cannot decode to {kind}: {error}") from error

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""

        def some(first: int, last: int) -> pa.Array:
            return self._rows(text.slice(int(starts[first]), int(starts[last] - starts[first])))

        return decode_valid_values(
            some, len(starts) - 1, self._kind, offsets if self._fails else None, "JSON", malformed=self.malformed
        )

    def _rows(self, text: pa.Buffer) -> pa.Array:
        check_utf8(text)
        # One block, whatever its size: pyarrow does not know where to cut one, so values may have lines of their own.
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=max(text.size + 1, 64))
        table = pyarrow.json.read_json(pa.BufferReader(text), read_options=reading, parse_options=self._parse)
        return table.column(0).combine_chunks() if table.num_rows != 0 else pa.nulls(0, self._kind)


def decode_valid_values(
    decode: Decode, rows: int, kind: pa.DataType, offsets: Any, name: str, *, malformed: list[MalformedValue] | None = None
) -> pa.Array:
    """Decode rows together; if that does not work, by halves, until the bad ones are alone. Those are null and noted in
    `malformed`, or an error that names the first by its offset, where `offsets` are given."""
    if rows == 0:
        return pa.nulls(0, kind)
    parts: list[pa.Array] = []
    left = [(0, rows)]
    while left:
        first, last = left.pop()
        why = "it holds more than one"
        try:
            values = decode(first, last)
            if len(values) == last - first:
                parts.append(values)
                continue
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            why = str(error)
        if last - first > 1:
            middle = (first + last) // 2
            left += [(middle, last), (first, middle)]
        elif offsets is not None:
            raise MalformedValueError(
                f"the value at offset {offsets[first]} is not {name} of type {kind}: {why}. Set onMalformed to null to have null "
                "in its place"
            )
        else:
            parts.append(pa.nulls(1, kind))
            if malformed is not None:
                malformed.append(MalformedValue(first, f"not {name} of type {kind}: {why}"))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def value_format(options: ReadOptions, kind: pa.DataType | None, *, fails: bool) -> ValueFormat | None:
    """The decoder for values of `kind`; None if they stay bytes."""
    name, schema = options.value_format, options.value_schema
    if name is None or kind is None:
        return None
    encoding, is_event = name.removeprefix(DEBEZIUM), name.startswith(DEBEZIUM)
    inner = envelope_type(kind, wrapped=encoding == "json") if is_event else kind
    if options.value_registry is not None:
        registry = SchemaRegistry(options.value_registry)

        def make(registered: RegisteredSchema) -> ValueFormat:
            return _registered_format(registry, registered, inner)

        form: ValueFormat = FramedFormat(inner, registry, make, fails=fails)
    elif encoding == "json":
        form = json_format(inner, fails=fails)
        if is_event:
            form = JsonEventFormat(form, json_format(envelope_type(kind, wrapped=False), fails=fails))
    elif schema is None:
        raise OptionError(f"valueFormat {name} needs valueSchema: the schema that the values were written with")
    elif encoding == "protobuf":
        from penstock.spark.protobuf_format import ProtobufFormat

        form = ProtobufFormat(kind, schema, fails=fails)
    else:
        form = _avro_format(schema, None if is_event else kind, fails=fails)
    return DebeziumFormat(kind, form, fails=fails) if is_event else form


def json_format(kind: pa.DataType, *, fails: bool) -> ValueFormat:
    """The decoder for JSON; maps are not known to the compiled one."""
    if not has_map(kind):
        return JsonFormat(kind, fails=fails)
    maps = text_maps(kind)
    others = None if maps is None else JsonFormat(maps.others, fails=True)
    return MapJsonFormat(kind, JsonFormat(without_maps(kind), fails=fails), maps, others)


def _avro_format(schema: str, kind: pa.DataType | None, *, fails: bool) -> ValueFormat:
    """The decoder for Avro; without a kind, to what the schema says."""
    kind = arrow_type(avro_type(schema)) if kind is None else kind
    try:
        return AvroFormat(kind, schema, fails=fails)
    except BeyondProgramError:
        from penstock.spark.avro_any import AnyAvroFormat

        return AnyAvroFormat(kind, schema, fails=fails)


def _registered_format(registry: SchemaRegistry, registered: RegisteredSchema, kind: pa.DataType) -> ValueFormat:
    if registered.kind == "JSON":
        return json_format(kind, fails=False)
    if registered.kind == "PROTOBUF":
        return RegisteredProtobuf(kind, registry.parsed(registered))
    if registered.kind != "AVRO":
        raise OptionError(f"a schema of the registry is of type {registered.kind}; AVRO, JSON and PROTOBUF are decoded")
    return _avro_format(avro_text(registry, registered), None, fails=False)


def value_type_of(options: ReadOptions) -> str | None:
    """The Spark type, as DDL, of decoded values; None if they stay bytes."""
    name, schema = options.value_format, options.value_schema
    if name is None:
        return None
    if name == REGISTRY:
        return _registered_type(options)
    if schema is None:
        raise OptionError(f"valueFormat {name} needs to know the columns: give valueSchema, or a schema with value as a struct")
    if name == "protobuf":
        from penstock.spark.protobuf_format import protobuf_type

        return protobuf_type(schema)
    is_avro = name.endswith("avro")
    if not name.startswith(DEBEZIUM):
        return avro_type(schema) if is_avro else f"STRUCT<{schema}>"
    return row_type(avro_type(row_schema(schema)).removeprefix("STRUCT<").removesuffix(">") if is_avro else schema)


def _registered_type(options: ReadOptions) -> str:
    """The type of values by the columns given, or by the last schema of the subject."""
    if options.value_schema is not None:
        return f"STRUCT<{options.value_schema}>"
    if options.value_registry is None or options.value_subject is None:
        raise OptionError("valueFormat registry needs valueRegistry, and valueSubject unless one topic is read by its name")
    registry = SchemaRegistry(options.value_registry)
    return column_type(registry, registry.latest(options.value_subject))
