"""Whether all that is valid for an old JSON Schema is valid for a new one, by the rules that Confluent documents.

A property that is added to an open content model is a problem: old data may have it with any type. Added to a closed one, or
removed from an open one, it is none.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, Protocol

import re2

from penstock.schemas.errors import InvalidSchemaError
from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.json_schema_view import merged, types_of, view

STEPS_MAX: Final = 50_000  # pairs of schemas that one comparison looks at
_OLD_MAY_BE_LESS: Final = {
    "integer number": (("maximum", "MAXIMUM"), ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM")),
    "string": (("maxLength", "MAX_LENGTH"),),
    "array": (("maxItems", "MAX_ITEMS"),),
    "object": (("maxProperties", "MAX_PROPERTIES"),),
}
_OLD_MAY_BE_MORE: Final = {
    "integer number": (("minimum", "MINIMUM"), ("exclusiveMinimum", "EXCLUSIVE_MINIMUM")),
    "string": (("minLength", "MIN_LENGTH"),),
    "array": (("minItems", "MIN_ITEMS"),),
    "object": (("minProperties", "MIN_PROPERTIES"),),
}
_NEVER_NARROWER: Final = {"minLength": 0, "minItems": 0, "minProperties": 0}
_MUST_BE_EQUAL: Final = ("if", "then", "else", "unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains")


class Document(Protocol):
    """A schema with its references."""

    def follow(self, node: Any) -> Any:
        """What a schema refers to, or itself."""
        ...


Found = list[Incompatibility]


class Comparison:
    """Compares parts of two schemas, each pair once."""

    def __init__(self, old: Document, new: Document) -> None:
        self._old = old
        self._new = new
        self._found: dict[tuple[int, int], Found] = {}
        self._steps = 0
        self._kept: list[Any] = []  # an id must not be given to another object meanwhile

    def compare(self, old_node: Any, new_node: Any, path: str) -> Found:
        """What keeps values of the old schema from being valid for the new one; the path is that of the new one."""
        pair = (id(old_node), id(new_node))
        known = self._found.get(pair)
        if known is not None:
            return known
        self._kept += (old_node, new_node)
        self._found[pair] = []  # a schema that contains itself fits if all else does
        old, new = view(self._old.follow(old_node)), view(self._new.follow(new_node))
        self._found[pair] = found = self._views(old, new, path)
        return found

    def _views(self, old: dict[str, Any] | bool, new: dict[str, Any] | bool, path: str) -> Found:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise InvalidSchemaError(f"comparing the schemas takes more than {STEPS_MAX} steps; make them smaller")
        if new is True or old is False:
            return []
        if new is False:
            return [_problem("TYPE_NARROWED", path, "the new schema allows no value")]
        old = {} if old is True else old
        assert isinstance(new, dict)
        for keyword in ("anyOf", "oneOf"):
            if keyword in old:
                return self._from_sum(old, new, keyword, path)
        found: Found = []
        for number, part in enumerate(new.get("allOf", ())):
            found += self._against(old, part, f"{path}/allOf/{number}")
        for keyword in ("anyOf", "oneOf"):
            if keyword in new and all(self._against(old, part, path) for part in new[keyword]):
                found.append(
                    _problem(
                        "SUM_TYPE_NARROWED", f"{path}/{keyword}", "no branch of the new schema takes what the old one allows"
                    )
                )
        rest = {key: value for key, value in new.items() if key not in ("allOf", "anyOf", "oneOf")}
        return found + (self._plain(self._flat(old), rest, path) if rest else [])

    def _against(self, old: dict[str, Any], new_node: Any, path: str) -> Found:
        """Compare a view of the old schema with a node of the new one."""
        return self._views(old, view(self._new.follow(new_node)), path)

    def _from_sum(self, old: dict[str, Any], new: dict[str, Any], keyword: str, path: str) -> Found:
        """Each branch of the old schema must fit."""
        rest = {key: value for key, value in old.items() if key != keyword}
        for number, branch in enumerate(old[keyword]):
            branch_view = view(self._old.follow(branch))
            whole = branch_view if not rest or branch_view is False else merged({} if branch_view is True else branch_view, rest)
            problems = self._views(whole, new, path)
            if problems:
                kind = "SUM_TYPE_NARROWED" if {"anyOf", "oneOf"} & new.keys() else "COMBINED_TYPE_CHANGED"
                description = f"branch {number} of the old {keyword} does not fit: {problems[0].description}"
                return [_problem(kind, problems[0].path, description)]
        return []

    def _flat(self, old: dict[str, Any], depth: int = 0) -> dict[str, Any]:
        """The old schema with the parts of its allOf taken together."""
        flat = {key: value for key, value in old.items() if key != "allOf"}
        for part in old.get("allOf", ()) if depth < 20 else ():
            part_view = view(self._old.follow(part))
            if isinstance(part_view, dict):
                flat = merged(flat, self._flat(part_view, depth + 1))
        return flat

    def _plain(self, old: dict[str, Any], new: dict[str, Any], path: str) -> Found:
        """Compare keywords other than those that combine schemas."""
        old_types, new_types = types_of(old), types_of(new)
        missing = old_types - new_types
        if missing:
            kind = "TYPE_NARROWED" if old_types - missing else "TYPE_CHANGED"
            shown = f"{_names(old_types)} in the old schema and {_names(new_types)} in the new one"
            return [_problem(kind, f"{path}/type", f"the type is {shown}")]
        found = _values(old, new, path)
        for table, is_less in ((_OLD_MAY_BE_LESS, True), (_OLD_MAY_BE_MORE, False)):
            for kinds, keywords in table.items():
                if old_types & set(kinds.split()):
                    found += (problem for names in keywords for problem in _bounds(old, new, names, path, is_less=is_less))
        if old_types & {"integer", "number"}:
            found += _multiples(old, new, path)
        if "string" in old_types and "pattern" in new and old.get("pattern") != new["pattern"]:
            found.append(
                _problem("PATTERN_CHANGED" if "pattern" in old else "PATTERN_ADDED", f"{path}/pattern", "the pattern differs")
            )
        if "array" in old_types:
            found += self._arrays(old, new, path)
        if "object" in old_types:
            found += self._objects(old, new, path)
        if "not" in new:
            found += self._negations(old, new, path)
        changed = [keyword for keyword in _MUST_BE_EQUAL if keyword in new and old.get(keyword) != new[keyword]]
        return found + [_problem("COMBINED_TYPE_CHANGED", f"{path}/{keyword}", f"{keyword} differs") for keyword in changed]

    def _negations(self, old: dict[str, Any], new: dict[str, Any], path: str) -> Found:
        """What the new schema forbids, the old one must have forbidden."""
        if "not" in old and not Comparison(self._new, self._old).compare(new["not"], old["not"], path + "/not"):
            return []
        return [_problem("NOT_TYPE_EXTENDED", f"{path}/not", "the new schema forbids more than the old one")]

    def _arrays(self, old: dict[str, Any], new: dict[str, Any], path: str) -> Found:
        found: Found = []
        if new.get("uniqueItems") is True and old.get("uniqueItems") is not True:
            found.append(_problem("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "items must be unique now"))
        if "contains" in new and ("contains" not in old or self.compare(old["contains"], new["contains"], path + "/contains")):
            found.append(_problem("CONTAINED_ITEM_CHANGED", f"{path}/contains", "what an array must contain differs"))
        old_first, new_first = old.get("prefixItems", []), new.get("prefixItems", [])
        old_rest, new_rest = old.get("items", True), new.get("items", True)
        for number in range(max(len(old_first), len(new_first))):
            old_item = old_first[number] if number < len(old_first) else old_rest
            new_item = new_first[number] if number < len(new_first) else new_rest
            found += self.compare(old_item, new_item, f"{path}/items/{number}")
        return found + self.compare(old_rest, new_rest, f"{path}/items")

    def _objects(self, old: dict[str, Any], new: dict[str, Any], path: str) -> Found:
        found = self._required(old, new, path)
        old_properties, new_properties = old.get("properties", {}), new.get("properties", {})
        for name, schema in new_properties.items():
            at = f"{path}/properties/{name}"
            if name in old_properties:
                found += self.compare(old_properties[name], schema, at)
            else:
                found += self._added(old, name, schema, at)
        for name, schema in old_properties.items():
            if name not in new_properties:
                found += self._removed(new, name, schema, f"{path}/properties/{name}")
        old_more, new_more = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if self.compare(old_more, new_more, f"{path}/additionalProperties"):
            kind = "ADDITIONAL_PROPERTIES_REMOVED" if new_more is False else "ADDITIONAL_PROPERTIES_NARROWED"
            description = "the new schema allows fewer properties that it does not name"
            found.append(_problem(kind, f"{path}/additionalProperties", description))
        for pattern, schema in new.get("patternProperties", {}).items():
            before = old.get("patternProperties", {}).get(pattern, old_more)
            found += self.compare(before, schema, f"{path}/patternProperties/{pattern}")
        if "propertyNames" in new:
            found += self.compare(old.get("propertyNames", True), new["propertyNames"], f"{path}/propertyNames")
        for name, needed in new.get("dependentRequired", {}).items():
            if set(needed) - set(old.get("dependentRequired", {}).get(name, ())) - set(old.get("required", ())):
                found.append(
                    _problem("DEPENDENCY_ARRAY_EXTENDED", f"{path}/dependentRequired/{name}", f"{name!r} needs more properties")
                )
        for name, schema in new.get("dependentSchemas", {}).items():
            found += self.compare(old.get("dependentSchemas", {}).get(name, True), schema, f"{path}/dependentSchemas/{name}")
        return found

    def _required(self, old: dict[str, Any], new: dict[str, Any], path: str) -> Found:
        found: Found = []
        for name in new.get("required", ()):
            schema = self._new.follow(new.get("properties", {}).get(name, True))
            has_default = isinstance(schema, dict) and "default" in schema
            if name not in old.get("required", ()) and not has_default:
                description = f"property {name!r} is required in the new schema and not in the old one; give it a default"
                found.append(_problem("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}", description))
        return found

    def _added(self, old: dict[str, Any], name: str, schema: Any, path: str) -> Found:
        """A property that the old schema does not name."""
        before = _unnamed(old, name)
        if before is False or not self.compare(before, schema, path):
            return []
        if before is True:
            description = (
                f"property {name!r} is new, and old data may have it with any value; close the old schema, or add no type"
            )
            return [_problem("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path, description)]
        kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return [_problem(kind, path, f"property {name!r} is new, and narrower than what the old schema allows in its place")]

    def _removed(self, new: dict[str, Any], name: str, schema: Any, path: str) -> Found:
        """A property that the new schema does not name."""
        after = _unnamed(new, name)
        if not self.compare(schema, after, path):
            return []
        kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
        if after is not False:
            kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return [_problem(kind, path, f"property {name!r} is removed, and the new schema does not allow it any more")]


def _unnamed(schema: dict[str, Any], name: str) -> Any:
    """What holds for a property that a schema does not name."""
    for pattern, of_pattern in schema.get("patternProperties", {}).items():
        if _matches(pattern, name):
            return of_pattern
    return schema.get("additionalProperties", True)


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern is in a name. One that RE2 cannot express matches nothing: no pattern may hold up the node."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        return False


def _values(old: dict[str, Any], new: dict[str, Any], path: str) -> Found:
    """The listed values of the old schema must be among those of the new one."""
    if "enum" not in new and "const" not in new:
        return []
    allowed = new.get("enum", [new.get("const")])
    given = old.get("enum", [old["const"]] if "const" in old else None)
    if given is None:
        return [_problem("ENUM_ARRAY_ADDED", f"{path}/enum", "the new schema lists its values, and the old one allows others")]
    missing = [value for value in given if value not in allowed]
    kind = "ENUM_ARRAY_NARROWED" if all(value in given for value in allowed) else "ENUM_ARRAY_CHANGED"
    return [_problem(kind, f"{path}/enum", f"the value {missing[0]!r} is not allowed any more")] if missing else []


def _bounds(old: dict[str, Any], new: dict[str, Any], names: tuple[str, str], path: str, *, is_less: bool) -> Found:
    keyword, kind = names
    if keyword not in new or new[keyword] == _NEVER_NARROWER.get(keyword):
        return []
    if keyword not in old:
        return [_problem(f"{kind}_ADDED", f"{path}/{keyword}", f"{keyword} is {new[keyword]} now, and the old schema has none")]
    before, after = old[keyword], new[keyword]
    if before <= after if is_less else before >= after:
        return []
    change = "DECREASED" if is_less else "INCREASED"
    return [_problem(f"{kind}_{change}", f"{path}/{keyword}", f"{keyword} was {before} and is {after}")]


def _multiples(old: dict[str, Any], new: dict[str, Any], path: str) -> Found:
    after, before = new.get("multipleOf"), old.get("multipleOf")
    if after is None or before == after or (after == 1 and "number" not in types_of(old)):
        return []
    if before is not None and Fraction(str(before)) % Fraction(str(after)) == 0:
        return []
    kind = "MULTIPLE_OF_ADDED" if before is None else "MULTIPLE_OF_CHANGED"
    return [_problem(kind, f"{path}/multipleOf", f"values must be multiples of {after} now")]


def _names(types: frozenset[str]) -> str:
    return "any" if len(types) == 7 else ", ".join(sorted(types)) or "none"


def _problem(kind: str, path: str, description: str) -> Incompatibility:
    return Incompatibility(kind, path, description)
