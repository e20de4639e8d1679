"""The ids of schemas that messages of a topic may name, kept until the registry changes."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping

from penstock.broker.schema_registry.names import DEFAULT_CONTEXT, context_of
from penstock.broker.schema_registry.registry import SchemaRegistry
from penstock.broker.schema_registry.state import RegistryState
from penstock.broker.schema_registry.value_checks import ValueChecks
from penstock.broker.schema_rules import AllowedIds, SchemaRule, SubjectStrategy
from penstock.schemas import ValueCheck


class TopicIds:
    """Answers the intake of batches, on every batch of a topic that is checked."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._checks = ValueChecks(registry)
        self._kept: dict[str, tuple[int, SchemaRule, AllowedIds]] = {}  # by topic

    @property
    def may_be_behind(self) -> bool:
        """Whether other nodes register schemas, so that one may be missing here."""
        return self._registry.is_shared

    async def catch_up(self) -> None:
        """Learn of all schemas that are registered by now."""
        await self._registry.state()

    def allowed(self, topic: str, rule: SchemaRule) -> AllowedIds:
        """The ids that messages of a topic may name. PartitionUnavailableError while the registry is being loaded."""
        state = self._registry.loaded_state()
        kept = self._kept.get(topic)
        if kept is not None and kept[0] == state.next_offset and kept[1] == rule:
            return kept[2]
        key = None if rule.key is None else _ids(state, topic, "key", rule.key)
        value = None if rule.value is None else _ids(state, topic, "value", rule.value)
        allowed = AllowedIds(topic, key, value)
        self._kept[topic] = (state.next_offset, rule, allowed)
        return allowed

    def checks(self) -> Mapping[int, ValueCheck]:
        """The checks of values that are in memory. It may be read from other threads."""
        return self._checks.known()

    async def load_checks(self, schema_ids: Collection[int]) -> Mapping[int, ValueCheck]:
        """The checks of values of some schemas, by their ids. InvalidBatchError if there is none for one of them."""
        return await self._checks.load(schema_ids)


def _ids(state: RegistryState, topic: str, what: str, strategy: SubjectStrategy) -> array[int]:
    """The ids of all schemas of the subjects that a strategy has for a topic. The name of a record is not looked for in its
    schema: any subject may be one."""
    if not strategy.by_record:
        subjects = [f"{topic}-{what}"]
    else:
        prefix = f"{topic}-" if strategy.by_topic else ""
        subjects = [name for name in state.subjects() if name.startswith(prefix) and context_of(name) == DEFAULT_CONTEXT]
    ids = {version.id for subject in subjects for version in state.live(subject).values()}
    return array("q", sorted(ids))
