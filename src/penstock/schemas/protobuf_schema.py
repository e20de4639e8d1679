"""A Protobuf schema: a .proto file, or its descriptor in base64, linked with what it imports, and compared with others."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from penstock.schemas.errors import InvalidSchemaError
from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.json_text import check_size
from penstock.schemas.protobuf_diff import ProtobufComparison, ProtobufTypes
from penstock.schemas.protobuf_parser import ProtobufParser
from penstock.schemas.protobuf_printer import print_file
from penstock.schemas.protobuf_rules import check_file
from penstock.schemas.protobuf_tokens import formatted

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*\Z")
_LIBRARY: Final = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto\Z")
# Confluent's serializers import these; every registry has to know them.
_CONFLUENT: Final = {
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }'
    ),
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto"; '
        "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; } "
        "extend google.protobuf.FileOptions { Meta file_meta = 1088; } "
        "extend google.protobuf.MessageOptions { Meta message_meta = 1088; } "
        "extend google.protobuf.FieldOptions { Meta field_meta = 1088; } "
        "extend google.protobuf.EnumOptions { Meta enum_meta = 1088; } "
        "extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }"
    ),
}
OWN_NAME: Final = "default.proto"


class ProtobufSchema:
    """A linked file. `files` are the descriptors of what it imports, by name."""

    kind = "PROTOBUF"

    def __init__(self, file: Any, text: str, files: Mapping[str, Any], *, has_custom_options: bool) -> None:
        self.file = file
        self._text = text
        self._has_custom_options = has_custom_options
        self.files = files

    @classmethod
    def parse(cls, text: str, references: Mapping[str, ProtobufSchema]) -> ProtobufSchema:
        """Parse a text, or a descriptor in base64. InvalidSchemaError says what is wrong with it."""
        check_size(text)
        if _BASE64.match(text):
            file, has_custom_options, shown = _descriptor(text), False, None
        else:
            parser = ProtobufParser(text)
            file = parser.parse()
            has_custom_options = parser.has_custom_options
            shown = formatted(parser.tokens[:-1])
        given: dict[str, Any] = {}
        for name, schema in references.items():
            given |= schema.files
            given[name] = schema.file
        linked, files = _link(file, given)
        if shown is None:
            shown = _printed(file)
        return cls(linked, shown, files, has_custom_options=has_custom_options)

    def text(self, *, normalize: bool = False) -> str:
        """The canonical text: without comments, and with one way to place spaces. Normalized, fields are by number, and types by
        their full names; a text with options that only others know stays as it is."""
        if not normalize or self._has_custom_options:
            return self._text
        ordered = descriptor_pb2.FileDescriptorProto()
        ordered.CopyFrom(self.file)
        for message in _all_messages(ordered.message_type):
            fields = sorted(message.field, key=lambda field: field.number)
            del message.field[:]
            message.field.extend(fields)
        return print_file(ordered)

    def serialized(self) -> str:
        """The descriptor in base64, which some clients ask for."""
        return b64encode(self.file.SerializeToString(deterministic=True)).decode()

    def linked_file(self) -> Any:
        """The file in a pool of its own, to make messages of."""
        pool = descriptor_pool.DescriptorPool()
        for file in (*self.files.values(), self.file):
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(self.file.name)

    def problems_reading(self, writer: ProtobufSchema) -> list[Incompatibility]:
        """Everything that keeps this schema from reading data of another."""
        comparison = ProtobufComparison(writer._types(), self._types())
        comparison.compare_files(writer.file, self.file)
        return comparison.found

    def _types(self) -> ProtobufTypes:
        messages: dict[str, Any] = {}
        for file in (*self.files.values(), self.file):
            prefix = f".{file.package}" if file.package else ""
            messages |= _named(file.message_type, prefix)
        return ProtobufTypes(messages, self.file.package)


def _descriptor(text: str) -> Any:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(b64decode("".join(text.split()), validate=True))
    except (binascii.Error, DecodeError, ValueError) as error:
        raise InvalidSchemaError(f"the schema is neither a .proto file nor the base64 of a descriptor: {error}") from None
    if not (file.message_type or file.enum_type or file.service or file.extension or file.dependency):
        raise InvalidSchemaError("the descriptor is empty; send that of a whole file")
    if not _is_text(file):
        raise InvalidSchemaError("a name in the descriptor is not UTF-8")
    return file


def _is_text(message: Any) -> bool:
    """Whether all texts of a descriptor are UTF-8; others are bytes to the library."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.message_type is not None:
            if not all(map(_is_text, values)):
                return False
        elif field.type == field.TYPE_STRING and not all(isinstance(text, str) for text in values):
            return False
    return True


def _printed(file: Any) -> str:
    """The text of a descriptor. The library that links takes some that no .proto file gives."""
    try:
        text = print_file(file)
        ProtobufParser(text).parse()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InvalidSchemaError(f"the descriptor is not that of a .proto file: {error!r}") from error
    return text


def _link(file: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A file with the full names of all types, and the files that it imports."""
    pool = descriptor_pool.DescriptorPool()
    files: dict[str, Any] = {}
    visiting: set[str] = set()

    def add(name: str) -> None:
        if name in files:
            return
        if name in visiting:
            raise InvalidSchemaError(f"{name!r} imports itself")
        visiting.add(name)
        imported = descriptor_pb2.FileDescriptorProto()
        imported.CopyFrom(_imported(name, given))
        imported.name = name
        for dependency in imported.dependency:
            add(dependency)
        files[name] = _added(pool, imported)

    for name in file.dependency:
        add(name)
    own = descriptor_pb2.FileDescriptorProto()
    own.CopyFrom(file)
    own.name = own.name if own.name and own.name not in files else OWN_NAME
    return _added(pool, own), files


def _added(pool: Any, file: Any) -> Any:
    """A file as the pool has linked it."""
    check_file(file)
    try:
        pool.AddSerializedFile(file.SerializeToString())
        found = pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        reason = str(error).partition("into descriptor pool: ")[2] or str(error)
        raise InvalidSchemaError(f"the schema does not link: {reason}") from None
    linked = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(linked)
    check_file(linked)  # again, with what the names of types lead to
    return linked


def _imported(name: str, given: Mapping[str, Any]) -> Any:
    if name in given:
        return given[name]
    if name in _CONFLUENT:
        return ProtobufParser(_CONFLUENT[name]).parse()
    if _LIBRARY.match(name):
        try:
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ModuleNotFoundError:
            pass
        else:
            return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    raise InvalidSchemaError(f"{name!r} is imported, and not among the references; register it, and name it there")


def _named(messages: Any, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for message in messages:
        name = f"{prefix}.{message.name}"
        found[name] = message
        found |= _named(message.nested_type, name)
    return found


def _all_messages(messages: Any) -> Iterator[Any]:
    for message in messages:
        yield message
        yield from _all_messages(message.nested_type)
