"""How often a JSON Schema looks at one value: a small schema can ask for it more often than a node could ever answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.schemas.errors import InvalidSchemaError
from penstock.schemas.json_schema import JsonSchema

BRANCHES_MAX: Final = 10_000
DEPTH_MAX: Final = 200  # of schemas that are combined of others
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")
_BY_FIELD: Final = ("dependentSchemas", "dependencies")


def check_branches(schema: JsonSchema) -> None:
    """Refuse a schema that looks at one value more than BRANCHES_MAX times, or without end: with two references to the next
    one each, twenty definitions are a million. What it asks of fields and items counts where it is asked."""
    counts: dict[int, int] = {}
    for node in schema.nodes():
        _count(schema, node, counts, set())


def _count(schema: JsonSchema, node: Any, counts: dict[int, int], open_nodes: set[int]) -> int:
    if not isinstance(node, dict):
        return 0
    if id(node) in counts:
        return counts[id(node)]
    if id(node) in open_nodes:
        raise InvalidSchemaError("a part of the schema refers to itself for the same value; let it do so for a field or an item")
    if len(open_nodes) == DEPTH_MAX:
        raise InvalidSchemaError(f"more than {DEPTH_MAX} schemas refer to each other for the same value; combine fewer")
    open_nodes.add(id(node))
    count = 1 + sum(_count(schema, branch, counts, open_nodes) for branch in _branches(schema, node))
    open_nodes.remove(id(node))
    if count > BRANCHES_MAX:
        raise InvalidSchemaError(f"the schema looks at one value more than {BRANCHES_MAX} times; combine fewer schemas")
    counts[id(node)] = count
    return count


def _branches(schema: JsonSchema, node: dict[str, Any]) -> Iterator[Any]:
    """The schemas that the same value is checked against."""
    if isinstance(node.get("$ref"), str):
        yield schema.resolve(node)
    for name in _LISTS:
        branches = node.get(name)
        yield from branches if isinstance(branches, list) else ()
    for name in _SINGLE:
        yield node.get(name)
    for name in _BY_FIELD:
        by_field = node.get(name)
        yield from by_field.values() if isinstance(by_field, dict) else ()
