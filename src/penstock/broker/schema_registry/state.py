"""What the records of `_schemas` say together: subjects, versions, ids, levels and modes. A pure state machine; texts stay in the
topic, and are here by the offset of their record.

A registry has hundreds of thousands of versions, so that one is a number here, in the dict of its subject, and no object:

     offset of its record | id, 31 bits | deleted, 1 bit
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from penstock.broker.schema_registry.names import DEFAULT_CONTEXT, context_of
from penstock.broker.schema_registry.records import (
    CONFIG,
    DELETE_SUBJECT,
    DELETIONS,
    ID_MAX,
    KEYS,
    MODE,
    NOOP,
    NOOPS,
    SCHEMA,
    SchemaValue,
    unpack_schema,
)

_OFFSET_SHIFT: Final = 32
_HASH_MASK: Final = (1 << 60) - 1  # an integer with more bits takes half as much memory again
_NO_VERSIONS: Final[dict[int, int]] = {}
_SCHEMA_KEY: Final = b'{"keytype":"SCHEMA",'


class Version(NamedTuple):
    """A version of a subject: the id of its schema, and the offset of the record that has it."""

    id: int
    offset: int
    deleted: bool


def _unpacked(packed: int) -> Version:
    return Version(packed >> 1 & ID_MAX, packed >> _OFFSET_SHIFT, bool(packed & 1))


class Context:
    """The schemas of a context, by id and by content."""

    __slots__ = ("by_content", "max_id", "subjects")

    def __init__(self) -> None:
        self.max_id = 0
        self.by_content: dict[int, int] = {}  # ids by the hash of their schema; another schema may have the same hash
        self.subjects: dict[int, str | tuple[str, ...]] = {}  # that have an id, deleted versions included

    def subjects_of(self, schema_id: int) -> tuple[str, ...]:
        """The subjects with an id, deleted versions included."""
        subjects = self.subjects.get(schema_id, ())
        return (subjects,) if isinstance(subjects, str) else subjects

    def add_subject(self, schema_id: int, subject: str) -> None:
        """Note that a version of a subject has an id."""
        if subject not in self.subjects_of(schema_id):
            self.subjects[schema_id] = (*self.subjects_of(schema_id), subject)

    def remove_subject(self, schema_id: int, subject: str) -> None:
        """Note that no version of a subject has an id any more; with its last subject the id is gone."""
        left = tuple(other for other in self.subjects_of(schema_id) if other != subject)
        if left:
            self.subjects[schema_id] = left
        else:
            self.subjects.pop(schema_id, None)


class RegistryState:
    """The state after all records up to `next_offset`."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._subjects: dict[str, dict[int, int]] = {}
        self.contexts: dict[str, Context] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
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
                versions = self._subjects.get(deletion.subject, {})
                versions.update({number: packed | 1 for number, packed in versions.items() if number <= deletion.version})
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

    def subjects(self) -> Collection[str]:
        """All subjects, those with deleted versions only included."""
        return self._subjects.keys()

    def versions(self, subject: str) -> dict[int, Version]:
        """The versions of a subject by number, deleted ones included."""
        return {number: _unpacked(packed) for number, packed in self._subjects.get(subject, _NO_VERSIONS).items()}

    def live(self, subject: str) -> dict[int, Version]:
        """The versions of a subject that are not deleted."""
        versions = self._subjects.get(subject, _NO_VERSIONS)
        return {number: _unpacked(packed) for number, packed in versions.items() if not packed & 1}

    def is_live(self, subject: str) -> bool:
        """Whether a subject has a version that is not deleted."""
        return any(not packed & 1 for packed in self._subjects.get(subject, _NO_VERSIONS).values())

    def versions_of_id(self, context: str, schema_id: int, *, deleted: bool) -> Iterator[tuple[str, int, Version]]:
        """The versions with an id."""
        for subject in self.context(context).subjects_of(schema_id) if context in self.contexts else ():
            for number, packed in self._subjects[subject].items():
                if packed >> 1 & ID_MAX == schema_id and (deleted or not packed & 1):
                    yield subject, number, _unpacked(packed)

    def _add(self, offset: int, value: SchemaValue) -> None:
        # Of all the equal names that records bring along, one is kept.
        subject, number, schema_id = intern(value.subject), value.version, value.id
        versions = self._subjects.get(subject)
        if versions is None:
            versions = self._subjects[subject] = {}
        context = self.context(context_of(subject) if subject[0:1] == ":" else DEFAULT_CONTEXT)
        before = versions.get(number)
        versions[number] = offset << _OFFSET_SHIFT | schema_id << 1 | value.deleted
        if before is not None and before >> 1 & ID_MAX != schema_id:
            self._release(context, before >> 1 & ID_MAX, subject)
        if context.subjects.setdefault(schema_id, subject) is not subject:
            context.add_subject(schema_id, subject)
        context.max_id = max(context.max_id, schema_id)
        context.by_content.setdefault(content_hash(value), schema_id)
        for reference in value.references:
            self.referrers.setdefault((reference.subject, reference.version), set()).add((subject, number))

    def _release(self, context: Context, schema_id: int, subject: str) -> None:
        """Note that a version of a subject does not have an id any more; others may."""
        if all(packed >> 1 & ID_MAX != schema_id for packed in self._subjects.get(subject, _NO_VERSIONS).values()):
            context.remove_subject(schema_id, subject)

    def _remove(self, subject: str, number: int) -> None:
        versions = self._subjects.get(subject, {})
        packed = versions.pop(number, None)
        if packed is None:
            return
        if not versions:
            del self._subjects[subject]
        self._release(self.context(context_of(subject)), packed >> 1 & ID_MAX, subject)
        for referrers in self.referrers.values():
            referrers.discard((subject, number))

    def _set(self, table: dict[str | None, Any], subject: str | None, raw_value: bytes | None) -> None:
        if raw_value is None:
            table.pop(subject, None)
            return
        value = msgspec.json.decode(raw_value, type=dict[str, Any])
        table[subject] = value.get("mode", "READWRITE") if table is self.modes else value


def content_hash(value: SchemaValue) -> int:
    """A hash for comparing schemas within this process: see `same_content`."""
    if value.schema_type == "AVRO" and not value.references and value.metadata is None and value.rule_set is None:
        return hash(value.schema) & _HASH_MASK
    more = msgspec.json.encode([value.schema_type, value.references, value.metadata, value.rule_set], order="sorted")
    return hash((value.schema, more)) & _HASH_MASK


def same_content(one: SchemaValue, other: SchemaValue) -> bool:
    """Whether two values are one schema: all but their subject, version and id is equal."""
    return (
        one.schema == other.schema
        and one.schema_type == other.schema_type
        and one.references == other.references
        and one.metadata == other.metadata
        and one.rule_set == other.rule_set
    )
