"""Columns and decoders of values by schemas of a registry: Avro, JSON Schema and Protobuf."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.varint import read_varint
from penstock.schemas import Schema, whole_avro_text
from penstock.spark.arrow_types import arrow_type, project
from penstock.spark.avro_format import avro_type
from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue
from penstock.spark.registry_client import RegisteredSchema, SchemaRegistry
from penstock.spark.value_format import ValueFormat, bytes_column, decode_column, in_order

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

INDEXES_MAX: Final = 100
REFERENCES_MAX: Final = 50
_JSON_TYPES: Final = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}


def avro_text(registry: SchemaRegistry, registered: RegisteredSchema) -> str:
    """An Avro schema in one text, with the types that it refers to."""
    return registered.text if not registered.references else whole_avro_text(registry.parsed(registered))


def column_type(registry: SchemaRegistry, registered: RegisteredSchema) -> str:
    """The Spark type, as DDL, of values of a schema. OptionError if there is none."""
    if registered.kind == "AVRO":
        return avro_type(avro_text(registry, registered))
    if registered.kind == "JSON":
        if registered.references:
            raise OptionError("the JSON Schema of the subject refers to others; give the columns as valueSchema")
        return json_type(json.loads(registered.text))
    if registered.kind == "PROTOBUF":
        from penstock.spark.protobuf_format import protobuf_type

        return protobuf_type(_message_schema(registry.parsed(registered), [0]))
    raise OptionError(f"a schema of the registry is of type {registered.kind}; AVRO, JSON and PROTOBUF are decoded")


def json_type(root: Any) -> str:
    """The Spark type of the values that a JSON Schema describes."""
    kind = _json_type(root, root, "", 0)
    if not kind.startswith("STRUCT<"):
        raise OptionError("the JSON Schema of the subject describes no object with properties; give the columns as valueSchema")
    return kind


def _json_type(schema: Any, root: Any, place: str, hops: int) -> str:
    where = place or "the top"
    if not isinstance(schema, Mapping) or hops > REFERENCES_MAX:
        raise OptionError(
            f"the JSON Schema of the subject says nothing of {where}, or holds itself; give the columns as valueSchema"
        )
    if "$ref" in schema:
        return _json_type(_local(root, str(schema["$ref"])), root, place, hops + 1)
    for union in ("oneOf", "anyOf"):
        branches = [branch for branch in schema.get(union, ()) if branch != {"type": "null"}]
        if len(branches) == 1:
            return _json_type(branches[0], root, place, hops + 1)
    kinds = schema.get("type", "object" if "properties" in schema else None)
    wanted = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
    if sorted(map(str, wanted)) == ["integer", "number"]:
        wanted = ["number"]
    if len(wanted) != 1:
        raise OptionError(f"the JSON Schema of the subject has no single type for {where}; give the columns as valueSchema")
    if wanted[0] in _JSON_TYPES:
        return _JSON_TYPES[wanted[0]]
    if wanted[0] == "array":
        return f"ARRAY<{_json_type(schema.get('items'), root, f'{place}[]', hops + 1)}>"
    properties = schema.get("properties") or {}
    if properties:
        fields = (f"`{name}`: {_json_type(each, root, f'{place}.{name}', hops + 1)}" for name, each in properties.items())
        return f"STRUCT<{', '.join(fields)}>"
    return f"MAP<STRING, {_json_type(schema.get('additionalProperties'), root, f'{place}.*', hops + 1)}>"


def _local(root: Any, reference: str) -> Any:
    """What a reference within a schema leads to."""
    if not reference.startswith("#/"):
        raise OptionError(f"the JSON Schema of the subject refers to {reference!r}; give the columns as valueSchema")
    found = root
    for name in reference[2:].split("/"):
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


class RegisteredProtobuf:
    """Values of Protobuf by a schema of a registry: before each message is its place in the file."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(self, kind: pa.DataType, schema: Schema) -> None:
        self._kind = kind
        self._schema = schema
        self._formats: dict[tuple[int, ...], ValueFormat] = {}
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        rows_of: dict[tuple[int, ...], list[int]] = {}
        messages: list[bytes | None] = []
        for row, value in enumerate(bytes_column(text, starts, valid).to_pylist()):
            place, message = (None, None) if value is None else _split_indexes(value)
            messages.append(message)
            if place is not None:
                rows_of.setdefault(place, []).append(row)
            elif value is not None:
                self._note(row, "it does not begin with the place of a message of its schema")
        parts: list[pa.Array] = []
        for place, rows in rows_of.items():
            form = self._format(place)
            form.malformed = [] if self.malformed is not None else None
            column = pa.array([messages[row] for row in rows], pa.binary())
            parts.append(project(decode_column(form, column, np.asarray(offsets)[rows]), self._kind))
            for bad in form.malformed or ():
                self._note(rows[bad.row], bad.reason)
        return in_order(parts, [np.array(rows) for rows in rows_of.values()], len(messages), self._kind)

    def _format(self, place: tuple[int, ...]) -> ValueFormat:
        from penstock.spark.protobuf_format import ProtobufFormat, protobuf_type

        form = self._formats.get(place)
        if form is None:
            schema = _message_schema(self._schema, place)
            form = self._formats[place] = ProtobufFormat(arrow_type(protobuf_type(schema)), schema, fails=False)
        return form

    def _note(self, row: int, reason: str) -> None:
        if self.malformed is not None:
            self.malformed.append(MalformedValue(row, reason))


def _split_indexes(value: bytes) -> tuple[tuple[int, ...] | None, bytes]:
    """The place of a message in its file, and the message; no place if the bytes have none."""
    try:
        count, at = read_varint(value, 0)
        if count == 0:
            return (0,), value[at:]
        place: list[int] = []
        while 0 < count <= INDEXES_MAX and len(place) < count:
            index, at = read_varint(value, at)
            place.append(index)
    except IndexError:
        return None, b""
    return (tuple(place), value[at:]) if place else (None, b"")


def _message_schema(schema: Any, place: Any) -> str:
    """The schema of a message of a file, in the form that its decoder takes."""
    from google.protobuf import descriptor_pb2

    from penstock.spark.protobuf_format import protobuf_schema

    file = schema.linked_file()
    files: dict[str, Any] = {}

    def collect(described: Any) -> None:
        for dependency in described.dependencies:
            if dependency.name not in files:
                collect(dependency)
        files[described.name] = described

    collect(file)
    descriptors = descriptor_pb2.FileDescriptorSet()
    for described in files.values():
        described.CopyToProto(descriptors.file.add())
    return protobuf_schema(descriptors.SerializeToString(), _message_at(file, place).full_name)


def _message_at(file: Any, place: Any) -> Descriptor:
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in place:
        if not 0 <= index < len(messages):
            raise MalformedValueError(f"there is no message at {list(place)} of the Protobuf schema")
        found = messages[index]
        messages = list(found.nested_types)
    assert found is not None, "a place has an index at least"
    return found
