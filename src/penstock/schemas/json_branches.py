"""How often a JSON Schema looks at one value: a small schema can ask for it more often than a node could ever answer.

Where two parts of a schema look at the same field, what is in it is looked at twice, and in a schema that refers to itself twice
as often with every level. So a schema has a depth to which its values are checked, and deeper ones are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from penstock.schemas.errors import InvalidSchemaError
from penstock.schemas.json_schema import JsonSchema

BRANCHES_MAX: Final = 10_000
DEPTH_MAX: Final = 200  # of schemas that are combined of others
LEVELS_MAX: Final = 100
_OF_ALL: Final = (
    *("additionalProperties", "unevaluatedProperties", "items", "additionalItems", "prefixItems"),
    *("contains", "unevaluatedItems"),
)
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


def depth_limit(schema: JsonSchema) -> int | None:
    """The deepest level of a value that the schema looks at no more than BRANCHES_MAX times; None if all are so."""
    visits: Counter[int] = Counter({id(schema.root): 1})
    nodes: dict[int, Any] = {id(schema.root): schema.root}
    seen: set[frozenset[tuple[int, int]]] = set()
    for level in range(LEVELS_MAX):
        whole = _with_branches(schema, visits, nodes)
        visits = Counter() if whole is None else _below(whole, nodes)
        if whole is None or visits.total() > BRANCHES_MAX:
            return level
        state = frozenset(visits.items())
        if not visits or state in seen:
            return None  # the levels below are as those above
        seen.add(state)
    return LEVELS_MAX


def depth_of(value: Any) -> int:
    """How many levels of objects and arrays are within each other."""
    level, depth = [value], -1
    while level:
        depth += 1
        level = [
            item for one in level if isinstance(one, dict | list) for item in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _with_branches(schema: JsonSchema, visits: Counter[int], nodes: dict[int, Any]) -> Counter[int] | None:
    """How often each part of a schema looks at a value, given how often those do that it is checked against first; None if that
    is more than BRANCHES_MAX times."""
    whole: Counter[int] = Counter()
    waiting = list(visits.items())
    total = 0
    while waiting:
        node_id, count = waiting.pop()
        whole[node_id] += count
        total += count
        if total > BRANCHES_MAX:
            return None
        for branch in _branches(schema, nodes[node_id]) if isinstance(nodes[node_id], dict) else ():
            if isinstance(branch, dict):
                nodes[id(branch)] = branch
                waiting.append((id(branch), count))
    return whole


def _below(whole: Counter[int], nodes: dict[int, Any]) -> Counter[int]:
    """How often parts of a schema look at a field or an item: the most that any of them is looked at."""
    of_all: Counter[int] = Counter()
    by_field: dict[str, Counter[int]] = {}
    for node_id, count in whole.items():
        node = nodes[node_id]
        for name, part in _parts_of_fields(node):
            nodes[id(part)] = part
            by_field.setdefault(name, Counter())[id(part)] += count
        for part in _parts_of_all(node):
            nodes[id(part)] = part
            of_all[id(part)] += count
    most: Counter[int] = Counter()
    for of_field in by_field.values():
        most |= of_field
    return most + of_all


def _parts_of_fields(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    fields = node.get("properties") if isinstance(node, dict) else None
    for name, part in fields.items() if isinstance(fields, dict) else ():
        if isinstance(part, dict):
            yield name, part


def _parts_of_all(node: Any) -> Iterator[dict[str, Any]]:
    """The schemas that any field or item may be checked against."""
    if not isinstance(node, dict):
        return
    patterns = node.get("patternProperties")
    parts: list[Any] = list(patterns.values()) if isinstance(patterns, dict) else []
    for name in _OF_ALL:
        part = node.get(name)
        parts += part if isinstance(part, list) else [part]
    yield from (part for part in parts if isinstance(part, dict))


def _branches(schema: JsonSchema, node: dict[str, Any]) -> Iterator[Any]:
    """The schemas that the same value is checked against."""
    if isinstance(node.get("$ref"), str):
        yield schema.resolve(node)
    for name in ("$recursiveRef", "$dynamicRef"):
        if isinstance(node.get(name), str):
            yield schema.root  # or a part of it, which is looked at no more often
    for name in _LISTS:
        branches = node.get(name)
        yield from branches if isinstance(branches, list) else ()
    for name in _SINGLE:
        yield node.get(name)
    for name in _BY_FIELD:
        by_field = node.get(name)
        yield from by_field.values() if isinstance(by_field, dict) else ()
