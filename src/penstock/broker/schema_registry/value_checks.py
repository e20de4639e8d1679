"""The compiled checks of schemas that messages are decoded with, made when a message first names one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from penstock.broker.schema_registry.errors import RegistryError
from penstock.broker.schema_registry.names import DEFAULT_CONTEXT
from penstock.broker.schema_registry.registry import SchemaRegistry
from penstock.queue import InvalidBatchError
from penstock.schemas import InvalidSchemaError, MissingLibraryError, ValueCheck, check_of

KEPT_MAX: Final = 1000


class ValueChecks:
    """Compiles checks in threads, and keeps those that were compiled last."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._kept: dict[int, ValueCheck] = {}
        self._history = registry.history

    def known(self) -> Mapping[int, ValueCheck]:
        """The checks in memory, by the id of their schema."""
        if self._history != self._registry.history:
            self._history, self._kept = self._registry.history, {}  # ids may have come to mean something else
        return self._kept

    async def load(self, schema_ids: Collection[int]) -> Mapping[int, ValueCheck]:
        """The checks of some schemas. InvalidBatchError if there is none for one of them."""
        loaded: dict[int, ValueCheck] = {}
        for schema_id in schema_ids:
            check = self.known().get(schema_id)
            loaded[schema_id] = check if check is not None else await self._compile(schema_id)
        return loaded

    async def _compile(self, schema_id: int) -> ValueCheck:
        history = self._registry.history
        try:
            schema = await self._registry.parsed_with_id(schema_id, DEFAULT_CONTEXT)
            check = await asyncio.to_thread(check_of, schema)
        except (RegistryError, InvalidSchemaError, MissingLibraryError) as error:
            raise InvalidBatchError(f"messages cannot be checked against schema {schema_id}: {error}") from error
        if history == self._registry.history:
            kept = dict(self.known())  # the one before may be in use in other threads
            kept[schema_id] = check
            while len(kept) > KEPT_MAX:
                del kept[next(iter(kept))]
            self._kept = kept
        return check
