"""Values checked against their schemas: what is taken, what is refused, and which field the reason names."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pytest

from penstock.schemas import InvalidSchemaError, check_of, parse_schema

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "items", "type": {"type": "array", "items": {
            "type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}, {"name": "count", "type": "int"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}  # fmt: skip
VALUE = {
    "id": 1,
    "paid": True,
    "note": "ok",
    "state": "SENT",
    "digest": b"abcd",
    "items": [{"name": "pen", "count": 2}],
    "tags": {"a": 1.0},
}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
PROTO = """syntax = "proto3"; package shop;
message Order { int64 id = 1; string note = 2; Item item = 3; message Item { string name = 1; } }
message Other { string text = 1; }"""
JSON = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "items": {"type": "array", "items": {"properties": {"n": {"type": "number"}}}}},
    "required": ["id"],
}


def problems(kind: str, schema: Any, payloads: list[bytes], found_max: int = 10) -> list[tuple[int, str]]:
    """What is wrong with some payloads of a schema."""
    text = schema if isinstance(schema, str) and kind == "PROTOBUF" else json.dumps(schema)
    rows, at = [], 0
    for number, payload in enumerate(payloads):
        rows.append([number, 1, at, len(payload)])
        at += len(payload)
    return check_of(parse_schema(kind, text, {})).find_invalid(b"".join(payloads), np.array(rows, np.int64), found_max)


def avro(schema: Any, value: Any) -> bytes:
    """A value as Avro."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"\x02\x01\x02\x04ok", b"\x02\x05\x02\x04ok", "field 'paid': a boolean is 0 or 1"),
        (b"\x02\x01\x02\x04ok", b"\x02\x01\x04\x04ok", "field 'note': the union has no branch of that number"),
        (b"\x02\x01\x02\x04ok", b"\x02\x01\x02\x04\xc3\x28", "field 'note': the string is not UTF-8"),
        (b"ok\x02", b"ok\x08", "field 'state': the enum has no symbol of that number"),
        (b"\x06pen", b"\x05pen", "field 'items[].name': the length is negative"),
        (b"pen\x04", b"pen\x80\x80\x80\x80\x20", "field 'items[].count': the number does not fit an int"),
        (b"\x02a" + bytes(6), b"\x02a", "field 'tags[]': the value ends within it"),
    ],
)
def test_the_field_of_an_avro_value_that_does_not_match_is_named(old: bytes, new: bytes, expected: str) -> None:
    raw = avro(ORDER, VALUE)
    assert raw.count(old) == 1
    ((number, why),) = problems("AVRO", ORDER, [raw, raw.replace(old, new), raw])
    assert number == 1
    assert expected in why


def test_every_beginning_of_an_avro_value_is_too_short_and_more_bytes_are_too_many() -> None:
    raw = avro(ORDER, VALUE)
    assert not problems("AVRO", ORDER, [raw])
    for size in range(len(raw)):
        assert len(problems("AVRO", ORDER, [raw[:size]])) == 1
    assert "more bytes follow" in problems("AVRO", ORDER, [raw + b"\0"])[0][1]


def test_an_avro_value_is_taken_up_to_a_bounded_depth() -> None:
    assert not problems("AVRO", LIST, [b"\x02" * 400 + b"\0"])
    ((_, why),) = problems("AVRO", LIST, [b"\x02" * 100_000 + b"\0"])
    assert "nested deeper" in why


def test_a_record_within_itself_has_no_value() -> None:
    within_itself = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
    assert "nested deeper" in problems("AVRO", within_itself, [b""])[0][1]
    assert "nested deeper" in problems("AVRO", {"type": "array", "items": within_itself}, [b"\x02\x02\0"])[0][1]


def test_items_that_take_no_bytes_are_counted_and_not_gone_over() -> None:
    nulls = {"type": "array", "items": "null"}
    assert not problems("AVRO", nulls, [b"\x06\0"])
    assert not problems("AVRO", {"type": "map", "values": "null"}, [b"\x04\x02a\x02b\x02\x02c\0"])
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0"  # 2^63 - 1
    assert "block of items" in problems("AVRO", nulls, [huge])[0][1]
    least = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0"  # -2^63
    assert "block of items" in problems("AVRO", nulls, [least])[0][1]


def test_blocks_with_a_size_must_have_it() -> None:
    ints = {"type": "array", "items": "int"}
    assert not problems("AVRO", ints, [b"\x03\x04\x02\x02\0"])  # -2 items in 2 bytes
    assert "block of items" in problems("AVRO", ints, [b"\x03\x06\x02\x02\0"])[0][1]


def test_json_values_are_checked_with_their_schema() -> None:
    found = problems("JSON", JSON, [b'{"id":1}', b'{"id":"x"}', b"{}", b"{", b'{"id":1,"items":[{"n":1},{"n":"y"}]}', b"\xff"])
    assert [number for number, _ in found] == [1, 2, 3, 4, 5]
    assert "at /id:" in found[0][1]
    assert '"id" is a required property' in found[1][1]
    assert "not JSON" in found[2][1]
    assert "at /items/1/n:" in found[3][1]


def test_json_values_are_of_draft_7_if_the_schema_names_none() -> None:
    assert problems("JSON", {"items": [{"type": "string"}]}, [b"[1]"])


def _referring(count: int, per_schema: int) -> dict[str, Any]:
    """So many schemas, each with references to the next one."""
    schemas: dict[str, Any] = {
        f"d{number}": {"allOf": [{"$ref": f"#/definitions/d{number + 1}"}] * per_schema} for number in range(count)
    }
    return {"$ref": "#/definitions/d0", "definitions": {**schemas, f"d{count}": {"type": "object"}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (_referring(40, 2), "more than 10000 times"),
        (_referring(5_000, 1), "more than 200 schemas refer"),
        ({"allOf": [{"$ref": "#"}]}, "refers to itself for the same value"),
        ({"properties": {"a": {"anyOf": [_referring(40, 2) | {"definitions": {}}, {"$ref": "#/definitions/d0"}]}},
          "definitions": _referring(40, 2)["definitions"]}, "more than 10000 times"),
    ],
)  # fmt: skip
def test_a_json_schema_that_would_take_for_ever_checks_no_values(schema: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSchemaError, match=expected):
        check_of(parse_schema("JSON", json.dumps(schema), {}))


@pytest.mark.parametrize(
    "schema",
    [
        _referring(10, 2),
        {"properties": {"next": {"$ref": "#"}, "allOf": True, "not": {"$ref": "#"}, "dependencies": False}},
    ],
)
def test_json_schemas_may_refer_to_each_other_and_to_themselves(schema: dict[str, Any]) -> None:
    check_of(parse_schema("JSON", json.dumps(schema), {}))


def test_deep_json_values_are_refused() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    ((_, why),) = problems("JSON", {"items": {"$ref": "#"}}, [deep])
    assert "not JSON" in why


def test_protobuf_values_are_checked_with_the_message_they_name() -> None:
    good = [b"\0\x08\x01\x12\x02ok", b"\x02\x02\x0a\x01x", b"\0"]
    assert not problems("PROTOBUF", PROTO, good)
    bad = [
        b"\0\x12\x05ok",  # too short
        b"\0\x12\x02\xc3\x28",  # not UTF-8
        b"\0\x1a\x04\x0a\x08ab",  # within another message
        b"\x02\x08\0",  # no such message
        b"\x80",
        b"\0\x07",
    ]
    found = [why for _, why in problems("PROTOBUF", PROTO, bad)]
    assert len(found) == len(bad)
    assert "field 'note': the value ends within it" in found[0]
    assert "field 'note': the string is not UTF-8" in found[1]
    assert "field 'item.name': the value ends within it" in found[2]
    assert "no message at [4]" in found[3]
    assert "indexes" in found[4]


def test_a_protobuf_value_without_a_required_field_is_refused() -> None:
    schema = 'syntax = "proto2"; message A { required string name = 1; optional int32 n = 2; }'
    assert not problems("PROTOBUF", schema, [b"\0\x0a\x01x"])
    ((_, why),) = problems("PROTOBUF", schema, [b"\0\x10\x01"])
    assert "required field 'name'" in why


def test_only_so_many_faults_are_told() -> None:
    assert [number for number, _ in problems("AVRO", "boolean", [b"\x07"] * 5, found_max=2)] == [0, 1]
    assert [number for number, _ in problems("JSON", JSON, [b"1"] * 5, found_max=2)] == [0, 1]


def nested(levels: int) -> bytes:
    """An object in an object, so many times."""
    return b'{"a":' * levels + b"1" + b"}" * levels


TWICE = {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}
LEVELS: dict[str, Any] = {
    f"l{level}": {"anyOf": [{"properties": {"a": {"$ref": f"#/definitions/l{level + 1}"}}, "required": ["b"]}] * 2}
    for level in range(40)
}


@pytest.mark.parametrize(
    "schema",
    [{"anyOf": [TWICE, TWICE]}, {"$ref": "#/definitions/l0", "definitions": {**LEVELS, "l40": {"type": "string"}}}],
    ids=["that refers to itself", "of many levels"],
)
def test_a_json_schema_that_looks_twice_as_often_with_every_level_takes_values_of_few_levels(schema: Any) -> None:
    ((record, why),) = problems("JSON", schema, [nested(40)])
    assert (record, "nested deeper than 12 levels" in why) == (0, True), why
    assert all("nested deeper" not in why for _, why in problems("JSON", schema, [nested(3)]))


def test_a_json_schema_of_a_tree_takes_values_of_any_depth() -> None:
    tree = {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}}, "additionalProperties": False}
    assert problems("JSON", tree, [nested(300)]) == []
    assert problems("JSON", tree, [nested(300).replace(b"1", b'"x"')]) != []
