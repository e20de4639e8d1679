"""One form for the keywords of all drafts of JSON Schema, so that schemas are compared without looking at their draft."""

from __future__ import annotations

from typing import Any, Final

ALL_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
ANNOTATIONS: Final = frozenset(
    {
        *("$schema", "$id", "id", "$comment", "$anchor", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType", "$vocabulary"),
    }
)
_LOWEST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")  # of several, the tightest counts
_HIGHEST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def view(schema: Any) -> dict[str, Any] | bool:
    """The keywords that decide what is valid; true and false as they are."""
    if isinstance(schema, bool):
        return schema
    shown = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(shown.get(exclusive), bool) and shown.pop(exclusive) and bound in shown:  # draft 4
            shown[exclusive] = shown.pop(bound)
    if isinstance(shown.get("items"), list):
        shown["prefixItems"] = shown.pop("items")
        if "additionalItems" in shown:
            shown["items"] = shown.pop("additionalItems")
    shown.pop("additionalItems", None)
    for key, needed in (shown.pop("dependencies", None) or {}).items():
        kind = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        shown[kind] = {**shown.get(kind, {}), key: needed}
    return shown or True


def types_of(schema: dict[str, Any]) -> frozenset[str]:
    """The types of valid values; those of its values if it lists them."""
    given = schema.get("type")
    types = ALL_TYPES if given is None else frozenset([given] if isinstance(given, str) else given)
    types |= {"integer"} if "number" in types else set()
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return types if values is None else types & frozenset(map(_type_of, values))


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One schema for values that are valid for both, as far as one can say it."""
    both = {**second, **first}
    if "type" in first and "type" in second:
        types = types_of({"type": first["type"]}) & types_of({"type": second["type"]})
        both["type"] = sorted(types)
    for keyword in _LOWEST:
        if keyword in first and keyword in second:
            both[keyword] = min(first[keyword], second[keyword])
    for keyword in _HIGHEST:
        if keyword in first and keyword in second:
            both[keyword] = max(first[keyword], second[keyword])
    if "required" in first and "required" in second:
        both["required"] = sorted({*first["required"], *second["required"]})
    for keyword in ("properties", "patternProperties"):
        if keyword in first and keyword in second:
            one, two = first[keyword], second[keyword]
            shared = {key: {"allOf": [one[key], two[key]]} for key in one.keys() & two.keys()}
            both[keyword] = {**one, **two, **shared}
    for keyword in ("allOf", "anyOf", "oneOf"):
        if keyword in first and keyword in second:
            both["allOf"] = [*both.get("allOf", ()), {keyword: second[keyword]}]
    return both


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
