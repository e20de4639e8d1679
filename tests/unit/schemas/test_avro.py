"""Avro schemas: what is valid, what counts as the same, and what can read what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.schemas import InvalidSchemaError, Schema, parse_schema


def avro(source: Any, **references: Schema) -> Schema:
    """A parsed schema; a string that is not the name of a type is its text."""
    is_text = isinstance(source, str) and not source.isalpha()
    return parse_schema("AVRO", source if is_text else json.dumps(source), references)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record; a field is a pair or an object."""
    made = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def kinds(reader: Any, writer: Any) -> list[str]:
    """What keeps a schema from reading data of another."""
    return [problem.kind for problem in avro(reader).problems_reading(avro(writer))]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("double", "float"),
        ("float", "long"),
        ("string", "bytes"),
        ("bytes", "string"),
        (["null", "long"], "int"),
        ("string", ["string", "bytes"]),
        (["null", "string"], ["null"]),
        (record(("a", "int")), record(("a", "int"), ("gone", "string"))),
        (record({"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}), record(("a", "int"))),
        (record({"name": "b", "type": "int", "aliases": ["a"]}), record(("a", "int"))),
        (record(("a", "int"), name="New", aliases=["Old"]), record(("a", "int"), name="Old")),
        (record(("a", "int"), name="R", namespace="x"), record(("a", "int"), name="R", namespace="y")),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        ({"type": "map", "values": ["null", "int"]}, {"type": "map", "values": "int"}),
    ],
)
def test_data_of_the_older_schema_is_read(reader: Any, writer: Any) -> None:
    assert kinds(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("int", "long", ["TYPE_MISMATCH"]),
        ("float", "double", ["TYPE_MISMATCH"]),
        ("string", "int", ["TYPE_MISMATCH"]),
        ("string", ["null", "string"], ["TYPE_MISMATCH"]),
        (["null", "int"], "string", ["MISSING_UNION_BRANCH"]),
        (["null", "int"], ["null", "int", "string"], ["MISSING_UNION_BRANCH"]),
        (record(("a", "int"), ("b", "int")), record(("a", "int")), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
        (record(("a", "int"), name="New"), record(("a", "int"), name="Old"), ["NAME_MISMATCH"]),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            ["MISSING_ENUM_SYMBOLS"],
        ),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, ["FIXED_SIZE_MISMATCH"]),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, ["TYPE_MISMATCH"]),
    ],
)
def test_data_of_the_older_schema_is_not_read(reader: Any, writer: Any, expected: list[str]) -> None:
    assert kinds(reader, writer) == expected


def test_a_problem_names_the_field_and_its_path() -> None:
    inner = record(("x", "int"), ("y", "int"), name="Inner")
    new, old = record(("a", "int"), ("b", inner)), record(("a", "int"), ("b", record(("x", "int"), name="Inner")))
    (problem,) = avro(new).problems_reading(avro(old))
    assert problem.path == "/fields/1/type/fields/1"
    assert "'y'" in problem.description


def test_a_type_that_contains_itself_is_compared_to_its_end() -> None:
    def tree(of_type: str) -> dict[str, Any]:
        return record(("value", of_type), {"name": "next", "type": ["null", "Tree"], "default": None}, name="Tree")

    assert kinds(tree("long"), tree("int")) == []
    assert "TYPE_MISMATCH" in kinds(tree("int"), tree("long"))


def test_spaces_order_of_keys_and_long_forms_do_not_make_another_schema() -> None:
    one = '{"type":"record","name":"x.R","fields":[{"name":"a","type":{"type":"int"}},{"name":"b","type":"x.R"}]}'
    two = '{"fields": [{"type": "int", "name": "a"}, {"name": "b", "type": "R"}], "namespace": "x", "name": "R", "type":"record"}'
    assert avro(one).text() == avro(two).text()
    assert avro(one).text() == (
        '{"type":"record","name":"R","namespace":"x","fields":[{"name":"a","type":"int"},{"name":"b","type":"R"}]}'
    )
    assert avro(avro(one).text()).text() == avro(one).text()


def test_what_does_not_change_data_is_kept_in_the_text() -> None:
    source = record({"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "doc": "when", "order": "ignore"})
    assert json.loads(avro(source).text()) == source


def test_a_referenced_type_is_known_by_its_full_name_and_not_written_again() -> None:
    address = avro(record(("street", "string"), name="Address", namespace="x"))
    person = avro(record(("home", "x.Address"), name="Person"), **{"x.Address": address})
    assert '"type":"x.Address"' in person.text()
    with pytest.raises(InvalidSchemaError, match=r"no type 'x\.Address'"):
        avro(record(("home", "x.Address"), name="Person"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "not JSON"),
        ('"strin"', "no type 'strin'"),
        ("1", "a type is a name"),
        ({"type": "record", "name": "R"}, "'fields' is missing"),
        ({"type": "record", "name": "1R", "fields": []}, "is no name"),
        (record(("a", "int"), ("a", "int")), "two fields 'a'"),
        (record({"name": "a", "type": "int", "default": "x"}), "at /fields/0: the default 'x' of field 'a'"),
        (record({"name": "a", "type": ["null", "int"], "default": "x"}), "union of null, int"),
        (record({"name": "a", "type": "int", "default": 1 << 31}), "no value of its type"),
        (["int", "int"], "'int' twice"),
        (["int", ["null"]], "cannot contain another"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "a symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "none of its symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "number of bytes"),
        (record(("a", record(name="R")), name="R"), "defined twice"),
        ('{"type":"array","items":' * 200 + '"int"' + "}" * 200, "deeper than"),
        ('"' + "x" * (1 << 20) + '"', "bytes, and at most"),
        (record({"name": "a", "type": "double", "default": "NaN"}), "no value"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":NaN}]}', "not JSON"),
    ],
)
def test_an_invalid_schema_is_refused_with_a_reason(source: Any, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        avro(source)


def test_comparing_huge_unions_ends_with_an_error() -> None:
    def union(first: int) -> list[dict[str, Any]]:
        return [record(("a", "int"), name=f"R{number}") for number in range(first, first + 500)]

    with pytest.raises(InvalidSchemaError, match="steps"):
        avro(union(0)).problems_reading(avro(union(500)))
