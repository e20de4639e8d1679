"""Whether data of an old Protobuf schema can be read with a new one, by the rules that Confluent documents: fields by number,
types by what they look like on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.protobuf_parser import FIELD

MESSAGES: Final = (FIELD.TYPE_MESSAGE, FIELD.TYPE_GROUP)
# Types within a set are read as each other.
_VARINTS: Final = frozenset(
    {FIELD.TYPE_INT32, FIELD.TYPE_INT64, FIELD.TYPE_UINT32, FIELD.TYPE_UINT64, FIELD.TYPE_BOOL, FIELD.TYPE_ENUM}
)
_ALIKE: Final = (
    _VARINTS,
    frozenset({FIELD.TYPE_SINT32, FIELD.TYPE_SINT64}),
    frozenset({FIELD.TYPE_STRING, FIELD.TYPE_BYTES}),
    frozenset({FIELD.TYPE_FIXED32, FIELD.TYPE_SFIXED32}),
    frozenset({FIELD.TYPE_FIXED64, FIELD.TYPE_SFIXED64}),
)


class ProtobufTypes(NamedTuple):
    """The messages of a schema and of its imports, by full name with a dot in front, and the package of the schema."""

    messages: Mapping[str, Any]
    package: str

    def local_name(self, name: str) -> str:
        """A name without the package, which may change."""
        prefix = f".{self.package}." if self.package else "."
        return name.removeprefix(prefix)


class ProtobufComparison:
    """Compares messages, each pair once."""

    def __init__(self, old: ProtobufTypes, new: ProtobufTypes) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()
        self.found: list[Incompatibility] = []

    def compare_files(self, old_file: Any, new_file: Any) -> None:
        """Compare all messages of two files."""
        old_prefix = f".{old_file.package}" if old_file.package else ""
        new_prefix = f".{new_file.package}" if new_file.package else ""
        self._compare_all(old_file.message_type, new_file.message_type, (old_prefix, new_prefix), "#")

    def _compare_all(self, old_messages: Any, new_messages: Any, prefixes: tuple[str, str], path: str) -> None:
        by_name = {message.name: message for message in new_messages}
        for message in old_messages:
            if message.options.map_entry:
                continue
            at = f"{path}/{message.name}"
            if message.name not in by_name:
                self._note("MESSAGE_REMOVED", at, f"message {message.name!r} is removed")
            else:
                self._messages(f"{prefixes[0]}.{message.name}", f"{prefixes[1]}.{message.name}", at)

    def _messages(self, old_name: str, new_name: str, path: str) -> None:
        if (old_name, new_name) in self._seen:
            return
        self._seen.add((old_name, new_name))
        old, new = self._old.messages[old_name], self._new.messages[new_name]
        new_fields = {field.number: field for field in new.field}
        for field in old.field:
            self._field(old, new, field, new_fields.get(field.number), path)
        old_numbers = {field.number for field in old.field}
        for field in new.field:
            if field.number not in old_numbers and field.label == FIELD.LABEL_REQUIRED:
                description = f"field {field.name!r} is new and required, and old data does not have it"
                self._note("REQUIRED_FIELD_ADDED", f"{path}/{field.number}", description)
        self._oneofs(old, new, path)
        self._compare_all(old.nested_type, new.nested_type, (old_name, new_name), path)

    def _field(self, old: Any, new: Any, field: Any, other: Any, path: str) -> None:
        at = f"{path}/{field.number}"
        if other is None:
            if field.label == FIELD.LABEL_REQUIRED:
                self._note("REQUIRED_FIELD_REMOVED", at, f"field {field.name!r} was required and is removed")
            return
        shown = f"field {field.name!r} with number {field.number}"
        if (field.label == FIELD.LABEL_REQUIRED) != (other.label == FIELD.LABEL_REQUIRED):
            kind = "REQUIRED_FIELD_ADDED" if other.label == FIELD.LABEL_REQUIRED else "REQUIRED_FIELD_REMOVED"
            self._note(kind, at, f"{shown} is required in one of the schemas only")
        old_entry, new_entry = _entry(self._old, field), _entry(self._new, other)
        if (old_entry is None) != (new_entry is None):
            self._note("FIELD_KIND_CHANGED", at, f"{shown} is a map in one of the schemas only")
        elif old_entry is not None and new_entry is not None:
            for name, old_part, new_part in zip(("key", "value"), old_entry.field, new_entry.field, strict=True):
                self._types(old_part, new_part, f"{at}/{name}", f"the {name} of {shown}")
        else:
            self._types(field, other, at, shown)
            is_repeated = field.label == FIELD.LABEL_REPEATED
            is_numeric = field.type not in (*MESSAGES, FIELD.TYPE_STRING, FIELD.TYPE_BYTES)
            if is_numeric and is_repeated != (other.label == FIELD.LABEL_REPEATED):
                self._note("FIELD_NUMERIC_LABEL_CHANGED", at, f"{shown} is repeated in one of the schemas only")

    def _types(self, field: Any, other: Any, path: str, shown: str) -> None:
        if (field.type in MESSAGES) != (other.type in MESSAGES):
            self._note("FIELD_KIND_CHANGED", path, f"{shown} is a message in one of the schemas only")
        elif field.type in MESSAGES:
            if self._old.local_name(field.type_name) != self._new.local_name(other.type_name):
                description = f"{shown} was a {field.type_name[1:]} and is a {other.type_name[1:]}"
                self._note("FIELD_NAMED_TYPE_CHANGED", path, description)
            else:
                self._messages(field.type_name, other.type_name, path)
        elif field.type != other.type and not any({field.type, other.type} <= alike for alike in _ALIKE):
            description = (
                f"{shown} was of type {_type_name(field)} and is of type {_type_name(other)}, which is written differently"
            )
            self._note("FIELD_SCALAR_KIND_CHANGED", path, description)

    def _oneofs(self, old: Any, new: Any, path: str) -> None:
        """Fields that leave a oneof, or of which several enter one, lose values."""
        old_place, new_place = _oneof_places(old), _oneof_places(new)
        old_names = set(old_place.values())
        entered: dict[str, list[str]] = {}
        for field in old.field:
            before, after = old_place.get(field.number), new_place.get(field.number)
            at = f"{path}/{field.number}"
            if before is not None and after != before:
                self._note("ONEOF_FIELD_REMOVED", at, f"field {field.name!r} is not in the oneof {before!r} any more")
            elif before is None and after is not None:
                if after in old_names:
                    self._note("FIELD_MOVED_TO_EXISTING_ONEOF", at, f"field {field.name!r} is moved to the oneof {after!r}")
                entered.setdefault(after, []).append(field.name)
        for oneof, names in entered.items():
            if len(names) > 1 and oneof not in old_names:
                description = f"the fields {', '.join(names)} are moved to the oneof {oneof!r}, which has room for one"
                self._note("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{oneof}", description)

    def _note(self, kind: str, path: str, description: str) -> None:
        self.found.append(Incompatibility(kind, path, description))


def _entry(types: ProtobufTypes, field: Any) -> Any:
    """The entry of a map; None if a field is no map."""
    if field.type != FIELD.TYPE_MESSAGE or field.label != FIELD.LABEL_REPEATED:
        return None
    message = types.messages[field.type_name]
    return message if message.options.map_entry else None


def _oneof_places(message: Any) -> dict[int, str]:
    """The oneof that each field is in, by the number of the field."""
    return {
        field.number: message.oneof_decl[field.oneof_index].name
        for field in message.field
        if field.HasField("oneof_index") and not field.proto3_optional
    }


def _type_name(field: Any) -> str:
    return str(FIELD.Type.Name(field.type)).removeprefix("TYPE_").lower()
