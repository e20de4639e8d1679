"""Parses schemas with all their references, and caches the parsed ones. Large schemas are parsed in a thread."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from penstock.broker.schema_registry.errors import RegistryError, invalid_schema
from penstock.broker.schema_registry.names import context_of, in_context
from penstock.broker.schema_registry.records import Reference, SchemaValue
from penstock.broker.schema_registry.state import content_hash
from penstock.schemas import Conflict, EarlierSchema, InvalidSchemaError, MissingLibraryError, Schema, find_conflict, parse_schema

INLINE_BYTES: Final = 16 << 10  # what is longer is parsed and compared in a thread
CACHE_BYTES: Final = 8 << 20  # of texts; the objects take some times that
REFERENCES_MAX: Final = 1000  # of a schema, those of its references included
REFERENCE_DEPTH_MAX: Final = 50

Resolve = Callable[[str, int], Awaitable[SchemaValue]]


class ParsedSchemas:
    """Parsed schemas, by context, id and content. `resolve` finds a version of a subject."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._cache: OrderedDict[tuple[str, int, int], tuple[Schema, int]] = OrderedDict()
        self._cached_bytes = 0

    async def stored(self, value: SchemaValue) -> Schema:
        """A registered schema."""
        key = (context_of(value.subject), value.id, content_hash(value))
        kept = self._cache.get(key)
        if kept is not None:
            self._cache.move_to_end(key)
            return kept[0]
        schema = await self.parse(value)
        self._cache[key] = (schema, len(value.schema))
        self._cached_bytes += len(value.schema)
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            _, (_, size) = self._cache.popitem(last=False)
            self._cached_bytes -= size
        return schema

    def forget(self) -> None:
        """Drop what is in memory."""
        self._cache.clear()
        self._cached_bytes = 0

    async def parse(self, value: SchemaValue) -> Schema:
        """Parse a schema. A RegistryError says what is wrong with it."""
        references = await self._references(value.references, context_of(value.subject))
        try:
            if len(value.schema) <= INLINE_BYTES:
                return parse_schema(value.schema_type, value.schema, references)
            return await asyncio.to_thread(parse_schema, value.schema_type, value.schema, references)
        except (InvalidSchemaError, MissingLibraryError) as error:
            raise invalid_schema(f"{error}; the schema is of type {value.schema_type}") from error

    async def conflict(self, new: Schema, size: int, earlier: Iterable[SchemaValue], level: str) -> Conflict | None:
        """The first of some versions that a new schema, with a text of this size, is not compatible with."""
        values = list(earlier)
        versions = [EarlierSchema(value.version, value.schema, await self.stored(value)) for value in values]
        try:
            if size + sum(len(value.schema) for value in values) <= INLINE_BYTES:
                return find_conflict(new, versions, level)
            return await asyncio.to_thread(find_conflict, new, versions, level)
        except (InvalidSchemaError, RecursionError) as error:
            raise invalid_schema(f"it cannot be compared with earlier versions: {error}") from error

    async def _references(self, references: Sequence[Reference], context: str) -> dict[str, Schema]:
        """All schemas that are referenced, directly or not, each after those that it references itself."""
        schemas: dict[str, Schema] = {}
        visiting: set[tuple[str, int]] = set()

        async def visit(reference: Reference) -> None:
            subject = in_context(context, reference.subject)
            if (subject, reference.version) in visiting or len(visiting) > REFERENCE_DEPTH_MAX:
                raise invalid_schema(f"references go in a circle, or too deep, at {subject!r} version {reference.version}")
            if reference.name in schemas:
                return
            if len(schemas) >= REFERENCES_MAX:
                raise invalid_schema(f"it has more than {REFERENCES_MAX} references")
            try:
                value = await self._resolve(subject, reference.version)
            except RegistryError as error:
                raise invalid_schema(f"reference {reference.name!r}: {error}") from error
            visiting.add((subject, reference.version))
            for inner in value.references:
                await visit(inner)
            visiting.discard((subject, reference.version))
            schemas[reference.name] = await self.stored(value)

        for reference in references:
            await visit(reference)
        return schemas
