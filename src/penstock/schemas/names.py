"""The names that subjects are called by under Confluent's record strategies."""

from __future__ import annotations

from typing import Any

from penstock.schemas.schema import Schema


def record_names(schema: Schema) -> frozenset[str]:
    """The full names of what a value may be: the type of an Avro schema, the title of a JSON Schema, and each message of a
    Protobuf file. Empty if it has none."""
    some: Any = schema  # each kind has attributes of its own
    if schema.kind == "AVRO":
        return frozenset({getattr(some.root, "name", some.root.kind)})
    if schema.kind == "JSON":
        title = some.root.get("title") if isinstance(some.root, dict) else None
        return frozenset({title}) if isinstance(title, str) else frozenset()
    return frozenset(_message_names(some.file.message_type, some.file.package))


def _message_names(messages: Any, scope: str) -> set[str]:
    found: set[str] = set()
    for message in messages:
        name = f"{scope}.{message.name}" if scope else message.name
        found |= {name, *_message_names(message.nested_type, name)}
    return found
