"""The schema registry: schemas by subject, version and id, with Confluent's rules of registration and deletion.

One change of a node is in flight at a time. It is decided on the state that all records of the log give, and appended in one
batch, on condition that nothing was added since: registries of other nodes add to the same log. The state follows by reading the
log again. So a change whose answer was lost is there or not, and a repeated one finds what the first has done: no schema gets two
ids, and no id goes to two schemas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from penstock.broker.errors import PartitionUnavailableError
from penstock.broker.schema_registry.errors import (
    incompatible,
    operation_not_permitted,
    reference_exists,
    schema_not_found,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from penstock.broker.schema_registry.names import check_subject, context_of, in_context
from penstock.broker.schema_registry.parsed_schemas import ParsedSchemas
from penstock.broker.schema_registry.partition import LogChangedError, SchemaPartition
from penstock.broker.schema_registry.records import (
    CONFIG,
    DELETE_SUBJECT,
    ID_MAX,
    MODE,
    NOOP,
    SCHEMA,
    DeleteValue,
    NoopValue,
    RecordKey,
    Reference,
    SchemaValue,
)
from penstock.broker.schema_registry.settings import (
    IMPORT,
    check_writable,
    checked_config,
    checked_mode,
    level_of,
    setting_of,
)
from penstock.broker.schema_registry.state import RegistryState, Version, content_hash, same_content
from penstock.broker.schema_registry.topic_log import Entry, SchemaLog
from penstock.schemas import Conflict, Schema, ValueCodec, codec_of, is_transitive

LATEST: Final = -1
DECISIONS_MAX: Final = 50  # of one change, while other nodes are always first
DECISION_PAUSE_S: Final = 0.005
DECISION_PAUSE_MAX_S: Final = 0.1

Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class NewSchema(msgspec.Struct, frozen=True, rename="camel"):
    """A schema as it is sent. `id` and `version` are for imports."""

    schema: str
    schema_type: str | None = None
    references: tuple[Reference, ...] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    def value(self, subject: str) -> SchemaValue:
        """It as a version of a subject, without a number."""
        references = self.references or ()
        return SchemaValue(
            subject, 0, 0, self.schema, (self.schema_type or "AVRO").upper(), references, self.metadata, self.rule_set
        )


def _change(
    method: Callable[Concatenate[SchemaRegistry, Given], Coroutine[Any, Any, Answer]],
) -> Callable[Concatenate[SchemaRegistry, Given], Coroutine[Any, Any, Answer]]:
    """Make a method one change of the registry: alone on this node, and decided again if another node has changed something."""

    @wraps(method)
    async def changed(registry: SchemaRegistry, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        async with registry.changing:
            for attempt in range(DECISIONS_MAX):
                registry.decided_at = (await registry.state()).next_offset
                try:
                    return await method(registry, *given, **named)
                except LogChangedError:
                    if attempt == DECISIONS_MAX - 1:
                        raise
                    await asyncio.sleep(min(attempt * DECISION_PAUSE_S, DECISION_PAUSE_MAX_S))
        raise AssertionError("the last attempt returns or raises")

    return changed


class SchemaRegistry:
    """The registry on a partition. Its state is loaded with the first request."""

    def __init__(self, partition: SchemaPartition) -> None:
        self._partition = partition
        self._log = SchemaLog(partition)
        self.changing = asyncio.Lock()
        self.decided_at = 0  # where the log ended when the change in flight was begun
        self._reading = asyncio.Lock()
        self._reads_begun = self._last_read = 0
        self._state = RegistryState()
        self._parsed = ParsedSchemas(self.version)
        self._is_loaded = False
        self._loading: asyncio.Task[RegistryState] | None = None
        self.on_change: list[Callable[[], None]] = []  # called when schemas, levels or modes may have changed
        self.history = 0  # grows when the end of the log is lost, and ids may be given again

    @property
    def is_shared(self) -> bool:
        """Whether other nodes register schemas too."""
        return self._partition.is_shared

    def loaded_state(self) -> RegistryState:
        """The state without waiting for it. A schema that was registered on this node is in it before its id is told to anyone.
        Until it was read for the first time, PartitionUnavailableError."""
        if self._is_loaded or not self._partition.exists:
            return self._state
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self.state(), name="schema-registry-load")
        raise PartitionUnavailableError("the schemas that messages are checked against are being loaded; try again in a moment")

    async def state(self) -> RegistryState:
        """The state with everything that is in the log by now."""
        latest = self._reads_begun
        async with self._reading:
            if self._last_read <= latest:  # otherwise one that waited too has read it since this was called
                self._reads_begun += 1
                await self._read_log()
                self._last_read = self._reads_begun
        return self._state

    async def _read_log(self) -> None:
        while True:
            state, before = self._state, self._state.next_offset
            next_offset, end_offset = await self._log.read_on(state.next_offset, state.apply)
            if end_offset < state.next_offset:
                # The end of the log was lost, and given up: its offsets and ids may come to mean something else.
                self._state = RegistryState()
                self._log.forget()
                self._parsed.forget()
                self.history += 1
                self._tell_change()
                continue
            if next_offset > before:
                self._tell_change()
            state.next_offset = max(state.next_offset, next_offset)
            if state.next_offset >= end_offset:
                self._is_loaded = end_offset > 0 or self._partition.exists
                return
            await asyncio.sleep(0)

    def _tell_change(self) -> None:
        for call in self.on_change:
            call()

    async def version(self, subject: str, number: int, *, deleted: bool = False) -> SchemaValue:
        """A version of a subject, or its latest."""
        state = await self.state()
        versions = state.versions(subject) if deleted else state.live(subject)
        if not versions:
            raise subject_not_found(subject)
        number = max(versions) if number == LATEST else number
        if number not in versions:
            raise version_not_found(number)
        return await self._value(versions[number])

    async def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        """The numbers of a subject's versions."""
        state = await self.state()
        versions = state.versions(subject)
        numbers = sorted(
            number
            for number, version in versions.items()
            if (version.deleted if deleted_only else deleted or not version.deleted)
        )
        if not numbers:
            raise subject_not_found(subject)
        return numbers

    async def with_id(self, schema_id: int, context: str) -> SchemaValue:
        """The schema with an id; deleted versions keep theirs, so that what was written with them can be read."""
        state = await self.state()
        for _, _, version in state.versions_of_id(context, schema_id, deleted=True):
            return await self._value(version)
        raise schema_not_found(f"{schema_id} ")

    async def parsed_with_id(self, schema_id: int, context: str) -> Schema:
        """The schema with an id, parsed."""
        return await self.parsed(await self.with_id(schema_id, context))

    async def parsed(self, value: SchemaValue) -> Schema:
        """A registered schema, parsed."""
        return await self._parsed.stored(value)

    async def serialized(self, value: SchemaValue) -> str:
        """A registered schema in the form of `format=serialized`."""
        return (await self.parsed(value)).serialized()

    async def codec(self, value: SchemaValue) -> ValueCodec:
        """The codec of a registered schema's values. MissingLibraryError if it needs what is not installed."""
        return codec_of(await self._parsed.stored(value))

    @_change
    async def register(self, subject: str, new: NewSchema, *, normalize: bool = False) -> SchemaValue:
        """Register a schema. One that the subject has already is returned with the id and version it has."""
        check_subject(subject)
        state = await self.state()
        mode = check_writable(state, subject)
        if (new.id is not None or new.version is not None) and mode != IMPORT:
            raise operation_not_permitted(f"Subject {subject} is not in import mode")
        value, schema = await self._canonical(state, subject, new, normalize)
        if mode == IMPORT:
            imported = await self._imported(state, value, new)
            await self._append_schema(imported)
            return imported
        known = await self._find(state, value, deleted=False)
        if known is not None:
            return known
        level = level_of(state, subject)
        conflict = await self._conflict(state, value, schema, level, list(state.live(subject).values()))
        if conflict is not None:
            raise incompatible(
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
                f"[{', '.join(conflict.messages(level))}]"
            )
        context = state.context(context_of(subject))
        known_id = await self._id_of(state, value)
        schema_id = context.max_id + 1 if known_id is None else known_id
        number = max(state.versions(subject), default=0) + 1
        registered = msgspec.structs.replace(value, id=schema_id, version=number)
        await self._append_schema(registered)
        return registered

    async def look_up(self, subject: str, new: NewSchema, *, normalize: bool = False, deleted: bool = False) -> SchemaValue:
        """The version of a subject that has this schema."""
        state = await self.state()
        if not (state.versions(subject) if deleted else state.live(subject)):
            raise subject_not_found(subject)
        value, _ = await self._canonical(state, subject, new, normalize)
        known = await self._find(state, value, deleted=deleted)
        if known is None:
            raise schema_not_found()
        return known

    async def check(
        self, subject: str, new: NewSchema, number: int | None, *, normalize: bool = False
    ) -> tuple[str, Conflict | None]:
        """Whether a schema could be registered as far as compatibility goes: with one version, or with those that the level
        names. The level, and the first conflict."""
        state = await self.state()
        live = state.live(subject)
        if number is not None and not live:
            raise subject_not_found(subject)
        number = max(live) if number == LATEST else number
        if number is not None and number not in live:
            raise version_not_found(number)
        value, schema = await self._canonical(state, subject, new, normalize)
        level = level_of(state, subject)
        versions = list(live.values()) if number is None else [live[number]]
        return level, await self._conflict(state, value, schema, level, versions)

    @_change
    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete a subject: first softly, then for good. Returns its versions."""
        state = await self.state()
        check_writable(state, subject)
        versions, live = state.versions(subject), state.live(subject)
        if not versions:
            raise subject_not_found(subject)
        if permanent and live:
            raise subject_not_soft_deleted(subject)
        if not permanent and not live:
            raise subject_soft_deleted(subject)
        numbers = sorted(versions if permanent else live)
        for number in numbers:
            self._check_unreferenced(state, subject, number)
        if permanent:
            await self._erase(state, subject, numbers)
            return numbers
        entries: list[Entry] = [(RecordKey(kind, subject), None) for kind in (CONFIG, MODE) if _is_set(state, kind, subject)]
        deletion = msgspec.json.encode(DeleteValue(subject, numbers[-1]))
        await self._append([(RecordKey(DELETE_SUBJECT, subject), deletion), *entries])
        return numbers

    @_change
    async def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Delete one version: first softly, then for good. Returns its number."""
        state = await self.state()
        check_writable(state, subject)
        versions, live = state.versions(subject), state.live(subject)
        if not versions or (number == LATEST and not live):
            raise subject_not_found(subject)
        number = max(live) if number == LATEST else number
        if number not in versions:
            raise version_not_found(number)
        if permanent and number in live:
            raise version_not_soft_deleted(subject, number)
        if not permanent and number not in live:
            raise version_soft_deleted(subject, number)
        self._check_unreferenced(state, subject, number)
        if permanent:
            await self._erase(state, subject, [number])
        else:
            value = await self._value(versions[number])
            await self._append_schema(msgspec.structs.replace(value, deleted=True))
        return number

    @_change
    async def set_config(self, subject: str | None, given: dict[str, Any] | None) -> dict[str, Any]:
        """Change the settings of a subject, or of the registry; None deletes them. Returns what was set before, or is set now."""
        state = await self.state()
        before = state.configs.get(subject, {})
        after = None if given is None else checked_config(given, before)
        value = None if after is None else msgspec.json.encode({"subject": subject, **after})
        await self._append([(RecordKey(CONFIG, subject), value)])
        return before if after is None else after

    @_change
    async def set_mode(self, subject: str | None, mode: Any, *, force: bool = False) -> str:
        """Change the mode of a subject, or of the registry; None deletes it. Returns what was set before, or is set now."""
        state = await self.state()
        before = state.modes.get(subject, "READWRITE")
        after = None if mode is None else checked_mode(mode)
        if after == IMPORT and before != IMPORT and not force:
            has_schemas = bool(state.subjects()) if subject is None else bool(state.live(subject))
            if has_schemas:
                raise operation_not_permitted("Cannot import since found existing subjects; set force=true to import anyway")
        value = None if after is None else msgspec.json.encode({"mode": after})
        await self._append([(RecordKey(MODE, subject), value)])
        return before if after is None else after

    async def referenced_by(self, subject: str, number: int) -> list[int]:
        """The ids of the schemas that refer to a version."""
        value = await self.version(subject, number)
        state = await self.state()
        referrers = state.referrers.get((value.subject, value.version), set())
        versions = (state.live(referrer).get(at) for referrer, at in referrers)
        return sorted({version.id for version in versions if version is not None})

    async def _value(self, version: Version) -> SchemaValue:
        value = await self._log.value_at(version.offset)
        return value if value.deleted == version.deleted else msgspec.structs.replace(value, deleted=version.deleted)

    async def _canonical(self, state: RegistryState, subject: str, new: NewSchema, normalize: bool) -> tuple[SchemaValue, Schema]:
        """A schema as it is stored and compared: in its canonical text, with the versions of its references."""
        value = new.value(subject)
        resolved: list[Reference] = []
        for reference in value.references:
            target = in_context(context_of(subject), reference.subject)
            live = state.live(target)
            number = max(live) if reference.version == LATEST and live else reference.version
            resolved.append(Reference(reference.name, reference.subject, number))
        value = msgspec.structs.replace(value, references=tuple(resolved))
        schema = await self._parsed.parse(value)
        normalize = normalize or setting_of(state, subject, "normalize") is True
        return msgspec.structs.replace(value, schema=schema.text(normalize=normalize)), schema

    async def _find(self, state: RegistryState, value: SchemaValue, *, deleted: bool) -> SchemaValue | None:
        """The newest version of a subject with the content of a schema."""
        schema_id = await self._id_of(state, value)
        versions = state.versions(value.subject) if deleted else state.live(value.subject)
        numbers = [number for number, version in versions.items() if version.id == schema_id]
        return await self._value(versions[max(numbers)]) if numbers else None

    async def _id_of(self, state: RegistryState, value: SchemaValue) -> int | None:
        """The id that the content of a schema has in its context; None if it is new there."""
        context = context_of(value.subject)
        schema_id = state.context(context).by_content.get(content_hash(value))
        if schema_id is None:
            return None
        for _, _, version in state.versions_of_id(context, schema_id, deleted=True):
            return schema_id if same_content(await self._value(version), value) else None
        return schema_id  # all its versions are deleted for good

    async def _conflict(
        self, state: RegistryState, value: SchemaValue, schema: Schema, level: str, versions: list[Version]
    ) -> Conflict | None:
        if level == "NONE" or not versions:
            return None
        earlier = sorted([await self._value(version) for version in versions], key=lambda item: -item.version)
        group = setting_of(state, value.subject, "compatibilityGroup")
        if group is not None:
            earlier = [item for item in earlier if _property(item, group) == _property(value, group)]
        return await self._parsed.conflict(schema, len(value.schema), earlier if is_transitive(level) else earlier[:1], level)

    async def _imported(self, state: RegistryState, value: SchemaValue, new: NewSchema) -> SchemaValue:
        """A schema with the id and version that it had elsewhere."""
        context = state.context(context_of(value.subject))
        known_id = await self._id_of(state, value)
        schema_id = new.id if new.id is not None else known_id or context.max_id + 1
        if (context.subjects_of(schema_id) and known_id != schema_id) or not 0 < schema_id <= ID_MAX:
            raise operation_not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
        versions = state.versions(value.subject)
        same = [number for number, version in versions.items() if version.id == schema_id]
        number = new.version or (max(same) if same else max(versions, default=0) + 1)
        if not 0 < number < 1 << 31 or (number in versions and versions[number].id != schema_id):
            raise operation_not_permitted(f"Version {number} of subject {value.subject} has another schema")
        return msgspec.structs.replace(value, id=schema_id, version=number)

    def _check_unreferenced(self, state: RegistryState, subject: str, number: int) -> None:
        for referrer, at in state.referrers.get((subject, number), ()):
            if at in state.live(referrer):
                raise reference_exists(f"{{magic=1,keytype=SCHEMA,subject={subject},version={number}}}")

    async def _erase(self, state: RegistryState, subject: str, numbers: Iterable[int]) -> None:
        """Delete versions for good. The highest ids are noted with it: compaction removes the records that had them."""
        max_ids = {name: context.max_id for name, context in state.contexts.items()}
        entries: list[Entry] = [(RecordKey(NOOP), msgspec.json.encode(NoopValue(max_ids)))]
        entries += ((RecordKey(SCHEMA, subject, number), None) for number in numbers)
        await self._append(entries)

    async def _append_schema(self, value: SchemaValue) -> None:
        key = RecordKey(SCHEMA, value.subject, value.version)
        await self._append([(key, msgspec.json.encode(value))])

    async def _append(self, entries: list[Entry]) -> None:
        appending = asyncio.ensure_future(self._log.append(entries, self.decided_at))
        try:
            await asyncio.shield(appending)
        except asyncio.CancelledError:
            # The next change is decided on what becomes of this one, also if its caller is gone.
            await asyncio.wait([appending])
            raise
        await self.state()


def _is_set(state: RegistryState, kind: str, subject: str) -> bool:
    return subject in (state.configs if kind == CONFIG else state.modes)


def _property(value: SchemaValue, name: str) -> Any:
    return ((value.metadata or {}).get("properties") or {}).get(name)
