"""Writes the descriptor of a .proto file as its text: what clients that send descriptors get back, as they would from protoc."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schemas.protobuf_parser import FIELD, LABELS, SCALARS
from penstock.schemas.protobuf_tokens import formatted, tokens_of

_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABEL_NAMES: Final = {number: name for name, number in LABELS.items()}


def print_file(file: Any) -> str:
    """The text of a file."""
    return formatted(tokens_of("\n".join(_file(file)))[:-1])


def _file(file: Any) -> Iterator[str]:
    if file.syntax == "editions":
        edition = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
        yield f'edition = "{edition}";'
    else:
        yield f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    for number, name in enumerate(file.dependency):
        how = "public " if number in file.public_dependency else "weak " if number in file.weak_dependency else ""
        yield f"import {how}{json.dumps(name)};"
    yield from (f"option {option};" for option in _options(file.options))
    for message in file.message_type:
        yield from _message(message, file.syntax)
    for enum in file.enum_type:
        yield from _enum(enum)
    yield from _extensions(file.extension, file.syntax)
    for service in file.service:
        yield f"service {service.name} {{"
        for method in service.method:
            sent, got = "stream " * method.client_streaming, "stream " * method.server_streaming
            yield f"rpc {method.name} ({sent}{method.input_type}) returns ({got}{method.output_type});"
        yield "}"


def _message(message: Any, syntax: str) -> Iterator[str]:
    yield f"message {message.name} {{"
    yield from (f"option {option};" for option in _options(message.options))
    yield from _reserved(message, 1)
    for extension in message.extension_range:
        yield f"extensions {extension.start} to {extension.end - 1};"
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    written: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield _field(field, entries, syntax)
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            yield f"oneof {message.oneof_decl[field.oneof_index].name} {{"
            for member in message.field:
                if member.HasField("oneof_index") and member.oneof_index == field.oneof_index and not member.proto3_optional:
                    yield _field(member, entries, syntax, is_in_oneof=True)
            yield "}"
    for nested in message.nested_type:
        if nested.name not in entries:
            yield from _message(nested, syntax)
    for enum in message.enum_type:
        yield from _enum(enum)
    yield from _extensions(message.extension, syntax)
    yield "}"


def _field(field: Any, entries: dict[str, Any], syntax: str, *, is_in_oneof: bool = False) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None and field.label == FIELD.LABEL_REPEATED:
        kind, label = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>", ""
    else:
        kind, label = _type(field), _LABEL_NAMES[field.label]
        is_implied = label == "optional" and syntax in ("proto3", "editions") and not field.proto3_optional
        label = "" if is_in_oneof or is_implied else label + " "
    options = _options(field.options)
    if field.HasField("default_value"):
        is_text = field.type in (FIELD.TYPE_STRING, FIELD.TYPE_BYTES)
        options = [f"default = {json.dumps(field.default_value) if is_text else field.default_value}", *options]
    if field.HasField("json_name") and field.json_name != _camel(field.name):
        options = [f"json_name = {json.dumps(field.json_name)}", *options]
    return f"{label}{kind} {field.name} = {field.number}{_in_brackets(options)};"


def _type(field: Any) -> str:
    return str(field.type_name) if field.type_name else _SCALAR_NAMES[field.type]


def _enum(enum: Any) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from (f"option {option};" for option in _options(enum.options))
    yield from _reserved(enum, 0)
    for value in enum.value:
        yield f"{value.name} = {value.number}{_in_brackets(_options(value.options))};"
    yield "}"


def _reserved(parent: Any, beyond: int) -> Iterator[str]:
    for reserved in parent.reserved_range:
        last = reserved.end - beyond
        yield f"reserved {reserved.start};" if last == reserved.start else f"reserved {reserved.start} to {last};"
    if parent.reserved_name:
        yield f"reserved {', '.join(json.dumps(name) for name in parent.reserved_name)};"


def _extensions(extensions: Any, syntax: str) -> Iterator[str]:
    for field in extensions:
        yield f"extend {field.extendee} {{ {_field(field, {}, syntax)} }}"


def _options(options: Any) -> list[str]:
    """Protobuf's own options, but those that only descriptors have."""
    found: list[str] = []
    for known, value in options.ListFields():
        is_shown = not known.is_extension and known.message_type is None and known.name != "map_entry"
        if not is_shown or not isinstance(value, bool | int | float | str):
            continue
        if known.enum_type is not None:
            found.append(f"{known.name} = {known.enum_type.values_by_number[value].name}")
        elif isinstance(value, bool):
            found.append(f"{known.name} = {str(value).lower()}")
        else:
            found.append(f"{known.name} = {json.dumps(value) if isinstance(value, str) else value}")
    return found


def _in_brackets(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
