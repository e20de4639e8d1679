"""Protobuf values to columns, by a file of descriptors that `protoc --descriptor_set_out --include_imports` writes. Values are
read one by one, so this takes several times as long as JSON.

The schema is `{"message": "shop.Order", "descriptors": "<the file in base64>"}`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import bytes_column, fitting_column

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import DecodeError
except ModuleNotFoundError as error:
    raise OptionError("valueFormat protobuf needs the package protobuf: pip install protobuf") from error

Read = Callable[[Any], Any]

# Unsigned numbers of 64 bits may exceed BIGINT; such a value is malformed.
_TYPES: Final = {
    FieldDescriptor.CPPTYPE_INT32: "INT",
    FieldDescriptor.CPPTYPE_INT64: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT32: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT64: "BIGINT",
    FieldDescriptor.CPPTYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.CPPTYPE_FLOAT: "FLOAT",
    FieldDescriptor.CPPTYPE_BOOL: "BOOLEAN",
    FieldDescriptor.CPPTYPE_ENUM: "STRING",
    FieldDescriptor.CPPTYPE_STRING: "STRING",
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"


def protobuf_schema(descriptors: bytes, message: str) -> str:
    """The schema of a message in a file of descriptors."""
    return json.dumps({"message": message, "descriptors": b64encode(descriptors).decode()})


def protobuf_type(schema: str) -> str:
    """The Spark type, as DDL, that values of a schema are decoded to."""
    return _type_of_message(_descriptor(schema), ())


class ProtobufFormat:
    """Values that are one message each, without a header."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(self, kind: pa.DataType, schema: str, *, fails: bool) -> None:
        descriptor = _descriptor(schema)
        self._message = message_factory.GetMessageClass(descriptor)
        self._read = _message_reader(descriptor)
        self._name = descriptor.full_name
        self._kind = kind
        self._fails = fails
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        rows: list[Any] = []
        for row, value in enumerate(bytes_column(text, starts, valid).to_pylist()):
            decoded = None
            if value is not None:
                try:
                    decoded = self._read(self._message.FromString(value))
                except (DecodeError, OverflowError, ValueError) as error:
                    self._note(row, error, offsets)
            rows.append(decoded)
        return fitting_column(rows, self._kind, lambda row, error: self._note(row, error, offsets))

    def _note(self, row: int, error: Exception, offsets: Any) -> None:
        if self._fails:
            raise MalformedValueError(
                f"the value at offset {offsets[row]} is no {self._name} of Protobuf: {error}. Set onMalformed to null to have "
                "null in its place"
            ) from error
        if self.malformed is not None:
            self.malformed.append(MalformedValue(row, f"no {self._name} of Protobuf: {error}"))


def _descriptor(schema: str) -> Descriptor:
    try:
        given = json.loads(schema)
        files = descriptor_pb2.FileDescriptorSet.FromString(b64decode(given["descriptors"], validate=True))
        name = str(given["message"])
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise OptionError(f"valueSchema must name a message and a file of descriptors, as `protoc` writes it: {error}") from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except (KeyError, TypeError) as error:
        known = sorted(f"{file.package}.{message.name}".lstrip(".") for file in files.file for message in file.message_type)
        raise OptionError(f"the descriptors have no message {name!r}; there are {', '.join(known)}") from error


def _type_of_message(descriptor: Descriptor, within: tuple[str, ...]) -> str:
    if descriptor.full_name in within:
        raise OptionError(f"message {descriptor.full_name} holds itself, which is no column; leave values as bytes")
    if not descriptor.fields:
        raise OptionError(f"message {descriptor.full_name} has no fields")
    inside = (*within, descriptor.full_name)
    return f"STRUCT<{', '.join(f'`{field.name}`: {_type_of_field(field, inside)}' for field in descriptor.fields)}>"


def _type_of_field(field: FieldDescriptor, within: tuple[str, ...]) -> str:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"MAP<{_type_of_one(key, within)}, {_type_of_one(value, within)}>"
    one = _type_of_one(field, within)
    return f"ARRAY<{one}>" if field.is_repeated else one


def _type_of_one(field: FieldDescriptor, within: tuple[str, ...]) -> str:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "BINARY"
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return "TIMESTAMP" if field.message_type.full_name == _TIMESTAMP else _type_of_message(field.message_type, within)
    return _TYPES[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _message_reader(descriptor: Descriptor) -> Read:
    """What makes a dictionary of a message."""
    fields = [(field.name, bool(field.has_presence), _field_reader(field)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else read_field(getattr(message, name))
            for name, has_presence, read_field in fields
        }

    return read


def _field_reader(field: FieldDescriptor) -> Read:
    if _is_map(field):
        read_item = _one_reader(field.message_type.fields_by_name["value"])
        return lambda items: [(key, read_item(item)) for key, item in items.items()]
    read_one = _one_reader(field)
    return (lambda items: [read_one(item) for item in items]) if field.is_repeated else read_one


def _one_reader(field: FieldDescriptor) -> Read:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return lambda value: value.ToMicroseconds()
        return _message_reader(field.message_type)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value) or str(value)
    return _same


def _same(value: Any) -> Any:
    return value
