"""What the records of `_schemas` say together: subjects, versions, ids, levels and modes. A pure state machine; texts stay in the
topic, and are here by the offset of their record."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from penstock.broker.schema_registry.names import context_of
from penstock.broker.schema_registry.records import (
    CONFIG,
    DELETE_SUBJECT,
    DELETIONS,
    KEYS,
    MODE,
    NOOP,
    NOOPS,
    SCHEMA,
    SchemaValue,
    unpack_schema,
)

_SCHEMA_KEY: Final = b'{"keytype":"SCHEMA",'


class Version(NamedTuple):
    """A version of a subject: the id of its schema, and the offset of the record that has it."""

    id: int
    offset: int
    deleted: bool


class Context:
    """The schemas of a context, by id and by content."""

    __slots__ = ("by_content", "max_id", "users")

    def __init__(self) -> None:
        self.max_id = 0
        self.by_content: dict[int, int] = {}
        self.users: dict[int, tuple[str, int] | list[tuple[str, int]]] = {}  # subjects and versions of each id

    def users_of(self, schema_id: int) -> list[tuple[str, int]]:
        """The subjects and versions with an id, deleted ones included."""
        users = self.users.get(schema_id, [])
        return [users] if isinstance(users, tuple) else users

    def add_user(self, schema_id: int, user: tuple[str, int]) -> None:
        """A version has an id."""
        users = self.users.get(schema_id)
        if users is None:
            self.users[schema_id] = user
        elif user not in self.users_of(schema_id):
            self.users[schema_id] = [*self.users_of(schema_id), user]

    def remove_user(self, schema_id: int, user: tuple[str, int]) -> None:
        """A version is gone; with the last one the id is."""
        left = [other for other in self.users_of(schema_id) if other != user]
        if left:
            self.users[schema_id] = left
        else:
            self.users.pop(schema_id, None)


class RegistryState:
    """The state after all records up to `next_offset`."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.subjects: dict[str, dict[int, Version]] = {}
        self.contexts: dict[str, Context] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._names: dict[str, str] = {}
        self.unreadable = 0  # records that are not of a registry

    def apply(self, offset: int, raw_key: bytes | None, raw_value: bytes | None) -> None:
        """Apply the record at an offset; one that was applied already changes nothing."""
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        try:
            if raw_value is not None and raw_key is not None and raw_key.startswith(_SCHEMA_KEY):
                self._add(offset, unpack_schema(raw_value))  # it says all that its key does
                return
            key = KEYS.decode(raw_key or b"")
            if key.keytype == SCHEMA and key.subject is not None:
                if raw_value is None:
                    self._remove(key.subject, key.version)
                else:
                    self._add(offset, unpack_schema(raw_value))
            elif key.keytype == CONFIG:
                self._set(self.configs, key.subject, raw_value)
            elif key.keytype == MODE:
                self._set(self.modes, key.subject, raw_value)
            elif key.keytype == DELETE_SUBJECT and raw_value is not None:
                deletion = DELETIONS.decode(raw_value)
                for number, version in self.subjects.get(deletion.subject, {}).items():
                    if number <= deletion.version:
                        self.subjects[deletion.subject][number] = version._replace(deleted=True)
            elif key.keytype == NOOP and raw_value is not None:
                for name, max_id in NOOPS.decode(raw_value).max_ids.items():
                    context = self.context(name)
                    context.max_id = max(context.max_id, max_id)
        except (msgspec.DecodeError, msgspec.ValidationError):
            self.unreadable += 1

    def context(self, name: str) -> Context:
        """A context, which begins with its first schema."""
        context = self.contexts.get(name)
        if context is None:
            context = self.contexts[name] = Context()
        return context

    def live(self, subject: str) -> dict[int, Version]:
        """The versions of a subject that are not deleted."""
        return {number: version for number, version in self.subjects.get(subject, {}).items() if not version.deleted}

    def versions_of_id(self, context: str, schema_id: int, *, deleted: bool) -> Iterator[tuple[str, int, Version]]:
        """The versions with an id."""
        for subject, number in self.context(context).users_of(schema_id) if context in self.contexts else ():
            version = self.subjects.get(subject, {}).get(number)
            if version is not None and (deleted or not version.deleted):
                yield subject, number, version

    def _add(self, offset: int, value: SchemaValue) -> None:
        # Of all the equal strings that records bring along, one is kept.
        subject = self._names.setdefault(value.subject, value.subject)
        context = self.context(context_of(subject))
        versions = self.subjects.setdefault(subject, {})
        before = versions.get(value.version)
        if before is not None and before.id != value.id:
            context.remove_user(before.id, (subject, value.version))
        versions[value.version] = Version(value.id, offset, value.deleted)
        context.add_user(value.id, (subject, value.version))
        context.max_id = max(context.max_id, value.id)
        context.by_content.setdefault(content_hash(value), value.id)
        for reference in value.references:
            self.referrers.setdefault((reference.subject, reference.version), set()).add((subject, value.version))

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        if not versions:
            del self.subjects[subject]
        self.context(context_of(subject)).remove_user(version.id, (subject, number))
        for referrers in self.referrers.values():
            referrers.discard((subject, number))

    def _set(self, table: dict[str | None, Any], subject: str | None, raw_value: bytes | None) -> None:
        if raw_value is None:
            table.pop(subject, None)
            return
        value = msgspec.json.decode(raw_value, type=dict[str, Any])
        table[subject] = value.get("mode", "READWRITE") if table is self.modes else value


def content_hash(value: SchemaValue) -> int:
    """What tells schemas apart: everything but their subject, version and id."""
    digest = blake2b(value.schema.encode(errors="surrogatepass"), digest_size=15)
    if value.schema_type != "AVRO" or value.references or value.metadata is not None or value.rule_set is not None:
        more = [value.schema_type, value.references, value.metadata, value.rule_set]
        digest.update(b"\0" + msgspec.json.encode(more, order="sorted"))
    return int.from_bytes(digest.digest(), "big")
