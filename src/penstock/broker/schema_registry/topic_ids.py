"""The ids of schemas that messages of a topic may name, kept until the registry changes."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from typing import Final

from penstock.broker.schema_registry.errors import RegistryError
from penstock.broker.schema_registry.names import DEFAULT_CONTEXT
from penstock.broker.schema_registry.registry import SchemaRegistry
from penstock.broker.schema_registry.state import RegistryState
from penstock.broker.schema_registry.value_checks import ValueChecks
from penstock.broker.schema_rules import AllowedIds, SchemaRule, SubjectStrategy
from penstock.schemas import InvalidSchemaError, MissingLibraryError, ValueCheck, record_names

RECORDS_MAX: Final = 10_000


class TopicIds:
    """Answers the intake of batches, on every batch of a topic that is checked."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._checks = ValueChecks(registry)
        self.current: dict[str, tuple[SchemaRule, AllowedIds]] = {}  # by topic; cleared by whatever may change it
        registry.on_change.append(self.current.clear)
        self._records: dict[int, frozenset[str]] = {}  # the names of the records of schemas that messages have named
        self._history = registry.history

    def may_learn(self, rule: SchemaRule) -> bool:
        """Whether a schema that is not allowed may be so after `learn`: other nodes register schemas too, and which record a
        schema is of is found out when a message first names it."""
        return self._registry.is_shared or rule.is_by_record

    async def learn(self, rule: SchemaRule, schema_ids: Collection[int]) -> None:
        """Learn of all schemas that are registered by now, and of which records these are."""
        await self._registry.state()
        if rule.is_by_record:
            for schema_id in schema_ids:
                await self._learn_records(schema_id)

    async def _learn_records(self, schema_id: int) -> None:
        self._drop_lost()
        if schema_id in self._records:
            return
        try:
            names = record_names(await self._registry.parsed_with_id(schema_id, DEFAULT_CONTEXT))
        except (RegistryError, InvalidSchemaError, MissingLibraryError):
            return  # it is refused as one that is not registered
        if len(self._records) >= RECORDS_MAX:
            del self._records[next(iter(self._records))]
        self._records[schema_id] = names
        self.current.clear()

    def _drop_lost(self) -> None:
        if self._history != self._registry.history:
            self._history, self._records = self._registry.history, {}  # ids may have come to mean something else
            self.current.clear()

    def allowed(self, topic: str, rule: SchemaRule) -> AllowedIds:
        """The ids that messages of a topic may name. PartitionUnavailableError while the registry is being loaded."""
        state = self._registry.loaded_state()
        kept = self.current.get(topic)
        if kept is not None and kept[0] == rule:
            return kept[1]
        self._drop_lost()
        key = None if rule.key is None else self._ids(state, topic, "key", rule.key)
        value = None if rule.value is None else self._ids(state, topic, "value", rule.value)
        allowed = AllowedIds(topic, key, value)
        self.current[topic] = (rule, allowed)
        return allowed

    def checks(self) -> Mapping[int, ValueCheck]:
        """The checks of values that are in memory. It may be read from other threads."""
        return self._checks.known()

    async def load_checks(self, schema_ids: Collection[int]) -> Mapping[int, ValueCheck]:
        """The checks of values of some schemas, by their ids. InvalidBatchError if there is none for one of them."""
        return await self._checks.load(schema_ids)

    def _ids(self, state: RegistryState, topic: str, what: str, strategy: SubjectStrategy) -> array[int]:
        """The ids of all schemas of the subject that a strategy has for a topic; where it goes by records, those of them whose
        records are known."""
        if not strategy.by_record:
            return array("q", sorted({version.id for version in state.live(f"{topic}-{what}").values()}))
        prefix = f"{topic}-" if strategy.by_topic else ""
        return array(
            "q",
            sorted(
                schema_id
                for schema_id, names in self._records.items()
                if any(
                    subject.removeprefix(prefix) in names and subject.startswith(prefix)
                    for subject, _, _ in state.versions_of_id(DEFAULT_CONTEXT, schema_id, deleted=False)
                )
            ),
        )
