"""JSON Schemas: what is valid, what counts as the same, and which changes are compatible."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.schemas import InvalidSchemaError, Schema, parse_schema


def schema(source: Any, references: dict[str, Schema] | None = None) -> Schema:
    """A parsed schema."""
    return parse_schema("JSON", source if isinstance(source, str) else json.dumps(source), references or {})


def kinds(new: Any, old: Any) -> list[str]:
    """What keeps old data from being valid for a new schema."""
    return [problem.kind for problem in schema(new).problems_reading(schema(old))]


def closed(**properties: Any) -> dict[str, Any]:
    """An object with these properties and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    """An object with these properties, and any others."""
    return {"type": "object", "properties": properties}


NOT_COVERED = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
INT, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ({}, TEXT),
        (True, {"type": "object"}),
        ({"type": "number"}, INT),
        ({"type": ["string", "null"]}, TEXT),
        (TEXT, {**TEXT, "maxLength": 3, "pattern": "a"}),
        ({"type": "integer", "maximum": 9}, {"type": "integer", "maximum": 5}),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 5}),
        ({"type": "integer", "multipleOf": 5}, {"type": "integer", "multipleOf": 10}),
        ({"type": "number", "multipleOf": 0.1}, {"type": "number", "multipleOf": 0.3}),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}),
        ({"enum": ["a", "b"]}, {"const": "b"}),
        (TEXT, {"enum": ["a", "b"]}),
        (INT, {"enum": [1, 2.0, 10**400]}),
        (closed(a=INT, b=TEXT), closed(a=INT)),
        (opened(a=INT), opened(a=INT, b=TEXT)),
        (opened(a=INT, b={}), opened(a=INT)),
        (opened(a=INT), closed(a=INT, b=TEXT)),
        ({**closed(a={**INT, "default": 0}), "required": ["a"]}, closed(a=INT)),
        (opened(a=INT, b=TEXT), {**opened(a=INT), "additionalProperties": TEXT}),
        ({**opened(), "additionalProperties": TEXT}, {**closed(a=TEXT)}),
        ({**opened(), "patternProperties": {"^x": TEXT}}, {**closed(x1=TEXT), "patternProperties": {"^x": TEXT}}),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": INT}),
        ({"oneOf": [INT, TEXT]}, INT),
        ({"oneOf": [INT, TEXT, {"type": "null"}]}, {"oneOf": [TEXT, INT]}),
        ({"anyOf": [{"type": "number"}]}, {"oneOf": [INT]}),
        ({"type": ["integer", "string"]}, {"anyOf": [INT, TEXT]}),
        (closed(a=INT, b=TEXT), {"allOf": [closed(a=INT), {"type": "object"}]}),
        ({"allOf": [{"type": "object"}]}, {"allOf": [{"type": "object"}, opened(a=INT)]}),
        ({"not": INT}, {"not": {"type": "number"}}),
        ({"$ref": "#/definitions/a", "definitions": {"a": {"type": "number"}}}, INT),
        ({**INT, "title": "new"}, {**INT, "title": "old", "description": "x"}),
        ({"type": "integer", "exclusiveMinimum": 3}, {"type": "integer", "minimum": 3, "exclusiveMinimum": True, "$schema": "http://json-schema.org/draft-04/schema#"}),
    ],
)  # fmt: skip
def test_old_data_stays_valid(new: Any, old: Any) -> None:
    assert kinds(new, old) == []


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (INT, TEXT, ["TYPE_CHANGED"]),
        (INT, {"type": "number"}, ["TYPE_NARROWED"]),
        (INT, {"enum": [1, 1.5]}, ["TYPE_NARROWED"]),
        (TEXT, {"type": ["string", "null"]}, ["TYPE_NARROWED"]),
        (TEXT, {}, ["TYPE_NARROWED"]),
        (False, TEXT, ["TYPE_NARROWED"]),
        ({**TEXT, "maxLength": 3}, TEXT, ["MAX_LENGTH_ADDED"]),
        ({**TEXT, "maxLength": 3}, {**TEXT, "maxLength": 4}, ["MAX_LENGTH_DECREASED"]),
        ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, ["PATTERN_CHANGED"]),
        ({**INT, "minimum": 3}, {**INT, "minimum": 1}, ["MINIMUM_INCREASED"]),
        ({**INT, "multipleOf": 10}, {**INT, "multipleOf": 5}, ["MULTIPLE_OF_CHANGED"]),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_NARROWED"]),
        ({"enum": ["a", "c"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_CHANGED"]),
        (opened(a=INT, b=TEXT), opened(a=INT), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (closed(a=INT), closed(a=INT, b=TEXT), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        ({**closed(a=INT), "required": ["a"]}, closed(a=INT), ["REQUIRED_ATTRIBUTE_ADDED"]),
        (closed(a=INT), opened(a=INT), ["ADDITIONAL_PROPERTIES_REMOVED"]),
        (opened(a=INT, b=INT), {**opened(a=INT), "additionalProperties": TEXT}, [NOT_COVERED]),
        ({"type": "array", "items": INT}, {"type": "array", "items": TEXT}, ["TYPE_CHANGED"]),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["UNIQUE_ITEMS_ADDED"]),
        ({"oneOf": [INT]}, {"oneOf": [INT, TEXT]}, ["SUM_TYPE_NARROWED"]),
        (INT, {"anyOf": [INT, TEXT]}, ["COMBINED_TYPE_CHANGED"]),
        ({"not": {"type": "number"}}, {"not": INT}, ["NOT_TYPE_EXTENDED"]),
    ],
)  # fmt: skip
def test_old_data_becomes_invalid(new: Any, old: Any, expected: list[str]) -> None:
    assert kinds(new, old) == expected


def test_a_problem_names_the_property_and_its_path() -> None:
    (problem,) = schema(opened(a=opened(b=INT))).problems_reading(schema(opened(a=opened(b=TEXT))))
    assert problem.path == "#/properties/a/properties/b/type"


def test_a_schema_that_contains_itself_is_compared_to_its_end() -> None:
    def tree(of_type: str) -> dict[str, Any]:
        return {
            "$ref": "#/definitions/t",
            "definitions": {"t": closed(value={"type": of_type}, next={"$ref": "#/definitions/t"})},
        }

    assert kinds(tree("number"), tree("integer")) == []
    assert "TYPE_CHANGED" in kinds(tree("integer"), tree("string"))


def test_references_lead_to_other_schemas_by_name() -> None:
    address = schema(closed(street=TEXT))
    person = {"type": "object", "properties": {"home": {"$ref": "address.json"}}}
    old = schema(person, {"address.json": address})
    new = schema(person, {"address.json": schema(closed(street=INT))})
    assert [problem.kind for problem in new.problems_reading(old)] == ["TYPE_CHANGED"]
    with pytest.raises(InvalidSchemaError, match=r"nothing at reference 'address\.json'"):
        schema(person)
    relative = {"$id": "http://x.example/schemas/p.json", **person}
    assert schema(relative, {"address.json": address}).kind == "JSON"


def test_a_place_in_a_referenced_schema_is_looked_for_there() -> None:
    shared = schema({"definitions": {"code": TEXT}, "$ref": "#/definitions/code"})
    order = {**closed(code={"$ref": "shared.json#/definitions/code"}, whole={"$ref": "shared.json"}), "definitions": {}}
    new = {**closed(code=TEXT, whole=INT)}
    problems = schema(new).problems_reading(schema(order, {"shared.json": shared}))
    assert [problem.path for problem in problems] == ["#/properties/whole/type"]


def test_comparing_huge_unions_ends_with_an_error() -> None:
    new = {"oneOf": [*({"const": -number} for number in range(1, 300)), INT]}
    with pytest.raises(InvalidSchemaError, match="steps"):
        kinds(new, {"oneOf": [{"const": number} for number in range(300)]})


def test_order_of_keys_counts_unless_it_is_normalized() -> None:
    one, two = schema('{"type": "object", "title": "x"}'), schema('{"title":"x","type":"object"}')
    assert one.text() == '{"type":"object","title":"x"}'
    assert one.text() != two.text()
    assert one.text(normalize=True) == two.text(normalize=True)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"maximum": 1e999}', "too large"),
        ("[]", "an object, true or false"),
        ({"type": "strin"}, "at /type"),
        ({"properties": {"a": {"minimum": "x"}}}, "at /properties/a/minimum"),
        ({"$schema": "https://unknown.example/schema"}, r"\$schema is"),
        ({"$ref": "http://127.0.0.1:1/x.json"}, "nothing at reference"),
        ({"$ref": "#/definitions/none"}, "nothing at reference"),
        ({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}, "leads to itself"),
        ('{"not":' * 200 + "{}" + "}" * 200, "deeper than"),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_a_reason(source: Any, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        schema(source)


def test_a_hostile_pattern_holds_nothing_up() -> None:
    old = {**opened(**{"a" * 5000: INT}), "additionalProperties": False}
    new = {"type": "object", "patternProperties": {"(a+)+$b": TEXT, "(?=x)": TEXT}, "additionalProperties": INT}
    assert kinds(new, old) == []


@pytest.mark.parametrize(
    "source",
    [
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"$id": "urn:uuid:deadbeef", "properties": {"a": {"$ref": "#/definitions/b"}}, "definitions": {"b": INT}},
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "items": {"$ref": "#item"},
            "$defs": {"b": {"$dynamicAnchor": "item", "type": "string"}},
        },
    ],
    ids=["to a meta-schema", "within a URN", "to a dynamic anchor"],
)
def test_a_reference_that_needs_nothing_from_elsewhere_is_taken(source: Any) -> None:
    assert schema(source).problems_reading(schema(source)) == []
