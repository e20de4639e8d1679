"""What protoc refuses in a file that can be parsed: numbers and names that are reserved or taken, and what its syntax lacks.

The library that links descriptors takes most of this, and some of it ends the whole process: a default of a repeated field. So
every descriptor passes here first, whether it was parsed from a text or sent as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schemas.errors import InvalidSchemaError

FIELD: Final = descriptor_pb2.FieldDescriptorProto
PACKAGE_SIZE_MAX: Final = 511
PACKAGE_DOTS_MAX: Final = 100
NESTING_MAX: Final = 31
MESSAGE_TYPES: Final = (FIELD.TYPE_MESSAGE, FIELD.TYPE_GROUP)
INT64_TYPES: Final = (FIELD.TYPE_INT64, FIELD.TYPE_UINT64, FIELD.TYPE_SINT64, FIELD.TYPE_FIXED64, FIELD.TYPE_SFIXED64)
_OPTIONS: Final = "google.protobuf."  # in proto3 nothing else is extended


def check_file(file: Any) -> None:
    """InvalidSchemaError if a rule is broken."""
    for name in file.dependency:
        if list(file.dependency).count(name) > 1:
            raise InvalidSchemaError(f"{name!r} is imported twice")
    if len(file.package) > PACKAGE_SIZE_MAX or file.package.count(".") > PACKAGE_DOTS_MAX:
        raise InvalidSchemaError(
            f"the name of the package is longer than {PACKAGE_SIZE_MAX} characters, or has more than {PACKAGE_DOTS_MAX} dots"
        )
    for message in file.message_type:
        _check_message(message, file.package, file.syntax, 1)
    for enum in file.enum_type:
        _check_enum(enum, file.package)
    _check_extensions(file.extension, file.package, file.syntax)


def _check_message(message: Any, scope: str, syntax: str, depth: int) -> None:
    name = _joined(scope, message.name)
    if depth > NESTING_MAX:
        raise InvalidSchemaError(f"{name}: messages are nested deeper than {NESTING_MAX} levels")
    if message.extension_range and syntax == "proto3":
        raise InvalidSchemaError(f"{name}: proto3 has no extension ranges")
    if message.options.message_set_wire_format and syntax == "proto3":
        raise InvalidSchemaError(f"{name}: proto3 has no message sets")
    reserved = [(span.start, span.end - 1) for span in message.reserved_range]
    extensions = [(span.start, span.end - 1) for span in message.extension_range]
    _check_apart(name, [*reserved, *extensions])
    _check_once(f"{name}: the reserved name", message.reserved_name)
    _check_once(f"{name}: the number of a field", (field.number for field in message.field))
    for field in message.field:
        _check_field(field, name, syntax)
        if field.name in message.reserved_name:
            raise InvalidSchemaError(f"{name}.{field.name}: the name is reserved")
        _check_outside(f"{name}.{field.name}", field.number, reserved, "reserved")
        _check_outside(f"{name}.{field.name}", field.number, extensions, "for extensions")
    if syntax == "proto3":
        _check_json_names(message, name)
    _check_extensions(message.extension, name, syntax)
    for nested in message.nested_type:
        _check_message(nested, name, syntax, depth + 1)
    for enum in message.enum_type:
        _check_enum(enum, name)


def _check_field(field: Any, scope: str, syntax: str) -> None:
    name = _joined(scope, field.name)
    if field.HasField("default_value"):
        if field.label == FIELD.LABEL_REPEATED:
            raise InvalidSchemaError(f"{name}: a repeated field has no default")
        if field.type in MESSAGE_TYPES:
            raise InvalidSchemaError(f"{name}: a message has no default")
        if syntax == "proto3":
            raise InvalidSchemaError(f"{name}: proto3 has no defaults")
    if syntax in ("proto3", "editions"):
        if field.label == FIELD.LABEL_REQUIRED:
            raise InvalidSchemaError(f"{name}: there are no required fields in {syntax}")
        if field.type == FIELD.TYPE_GROUP:
            raise InvalidSchemaError(f"{name}: there are no groups in {syntax}")
    if field.options.packed and (
        field.label != FIELD.LABEL_REPEATED or field.type in (*MESSAGE_TYPES, FIELD.TYPE_STRING, FIELD.TYPE_BYTES)
    ):
        raise InvalidSchemaError(f"{name}: only repeated numbers, booleans and enums can be packed")
    is_lazy = field.options.lazy or field.options.unverified_lazy
    if is_lazy and field.HasField("type") and field.type != FIELD.TYPE_MESSAGE:
        raise InvalidSchemaError(f"{name}: only messages can be lazy")
    if field.options.jstype and field.HasField("type") and field.type not in INT64_TYPES:
        raise InvalidSchemaError(f"{name}: only integers of 64 bits have a jstype")


def _check_extensions(extensions: Iterable[Any], scope: str, syntax: str) -> None:
    for field in extensions:
        name = _joined(scope, field.name)
        _check_field(field, scope, syntax)
        if field.label == FIELD.LABEL_REQUIRED:
            raise InvalidSchemaError(f"{name}: an extension cannot be required")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            raise InvalidSchemaError(f"{name}: an extension has no name in JSON of its own")
        extendee = field.extendee.removeprefix(".")
        if syntax == "proto3" and "." in extendee and not (extendee.startswith(_OPTIONS) and extendee.endswith("Options")):
            raise InvalidSchemaError(f"{name}: proto3 extends options only, not {extendee}")


def _check_enum(enum: Any, scope: str) -> None:
    name = _joined(scope, enum.name)
    reserved = [(span.start, span.end) for span in enum.reserved_range]
    _check_apart(name, reserved)
    _check_once(f"{name}: the reserved name", enum.reserved_name)
    numbers = [value.number for value in enum.value]
    if not enum.options.allow_alias:
        _check_once(f"{name}: the number of a value, without option allow_alias,", numbers)
    elif len(set(numbers)) == len(numbers):
        raise InvalidSchemaError(f"{name}: allow_alias is set, and no two values have the same number")
    for value in enum.value:
        if value.name in enum.reserved_name:
            raise InvalidSchemaError(f"{name}: the name {value.name} is reserved")
        _check_outside(f"{name}.{value.name}", value.number, reserved, "reserved")


def _check_apart(name: str, spans: list[tuple[int, int]]) -> None:
    for first, last in spans:
        if first > last:
            raise InvalidSchemaError(f"{name}: the range {first} to {last} ends before it begins")
    for (_, last), (first, end) in pairwise(sorted(spans)):
        if first <= last:
            raise InvalidSchemaError(f"{name}: the range {first} to {end} overlaps another one, which ends at {last}")


def _check_once(what: str, items: Iterable[Any]) -> None:
    seen: set[Any] = set()
    for item in items:
        if item in seen:
            raise InvalidSchemaError(f"{what} {item} is given twice")
        seen.add(item)


def _check_outside(name: str, number: int, spans: list[tuple[int, int]], what: str) -> None:
    for first, last in spans:
        if first <= number <= last:
            raise InvalidSchemaError(f"{name}: the numbers {first} to {last} are {what}, and it has {number}")


def _check_json_names(message: Any, name: str) -> None:
    _check_once(f"{name}: the name in JSON", (field.json_name or _json_name(field.name) for field in message.field))


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
