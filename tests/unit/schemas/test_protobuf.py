"""Protobuf schemas: what is valid, what counts as the same, and which changes are compatible."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

from penstock.schemas import InvalidSchemaError, Schema, parse_schema

WHOLE = """
// An order.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import public 'confluent/meta.proto';
option java_package = "com.example"; option optimize_for = SPEED;
message Order {
  option deprecated = true;
  string id = 1 [json_name = "ID", (confluent.field_meta).doc = "the key"];
  repeated Item items = 2; /* nested below */
  map<string, double> prices = 3;
  oneof payment { string card = 4; int64 cash = 5; }
  google.protobuf.Timestamp at = 6;
  optional int32 priority = 7 [deprecated=true];
  State state = 8;
  reserved 9, 20 to 29, 1000 to max; reserved "old", "older";
  message Item { bytes code = 1; .shop.v1.Order parent = 2; }
  enum State { option allow_alias = true; NEW = 0; OPEN = 0; DONE = 1 [deprecated = true]; }
}
service Orders {
  rpc Get (Order) returns (stream Order) { option idempotency_level = IDEMPOTENT; }
  rpc Put (stream Order) returns (Order);
}
"""


def proto(text: str, references: dict[str, Schema] | None = None) -> Schema:
    """A parsed schema."""
    return parse_schema("PROTOBUF", text, references or {})


def message(fields: str, syntax: str = "proto3") -> str:
    """A file with one message."""
    return f'syntax = "{syntax}"; package p; message M {{ {fields} }} message N {{}} enum E {{ A = 0; }}'


def kinds(new: str, old: str, syntax: str = "proto3") -> list[str]:
    """What keeps a message from reading data of another."""
    return [problem.kind for problem in proto(message(new, syntax)).problems_reading(proto(message(old, syntax)))]


def descriptor_of(schema: Schema) -> Any:
    """The descriptor of a schema."""
    return descriptor_pb2.FileDescriptorProto.FromString(b64decode(schema.serialized()))


def test_a_whole_file_is_read_printed_and_read_again_without_a_change() -> None:
    schema = proto(WHOLE)
    again = proto(schema.text())
    assert again.text() == schema.text()
    assert again.serialized() == schema.serialized()
    assert "An order" not in schema.text()
    assert '(confluent.field_meta).doc = "the key"' in schema.text()
    sent = proto(schema.serialized())  # as clients send descriptors
    assert sent.serialized() == schema.serialized()
    order = descriptor_of(schema).message_type[0]
    assert [field.name for field in order.field] == ["id", "items", "prices", "card", "cash", "at", "priority", "state"]
    assert order.field[1].type_name == ".shop.v1.Order.Item"
    assert [oneof.name for oneof in order.oneof_decl] == ["payment", "_priority"]


def test_proto2_with_groups_extensions_and_defaults_is_read() -> None:
    schema = proto(
        'syntax = "proto2"; message M { required string a = 1 [default = "x\\"y"];optional group G = 2 { optional sint32 b = 1; }'
        "extensions 100 to 199; extend M { optional int32 inner = 101; } optional float f = 3 [default = -inf, packed = false];}"
        "extend M { optional fixed64 more = 100; }"
    )
    assert descriptor_of(schema).message_type[0].field[0].default_value == 'x"y'
    assert proto(schema.text()).serialized() == schema.serialized()


def test_descriptors_of_the_library_itself_are_taken() -> None:
    for module in (timestamp_pb2, wrappers_pb2, descriptor_pb2):
        sent = b64encode(module.DESCRIPTOR.serialized_pb).decode()
        printed = proto(sent).text()
        assert descriptor_of(proto(printed)).message_type[0].name


def test_spaces_and_comments_do_not_make_another_schema() -> None:
    one = proto('syntax="proto3";message M{int32 a=1;// first\nmap<string,N> b=2;}message N{}')
    two = proto('syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n  map < string , N > b = 2; }\nmessage N { }')
    assert one.text() == two.text()
    full = proto('syntax = "proto3"; message M { repeated .p.N a = 1; } message p { message N {} }')
    assert proto(full.text(normalize=True)).serialized() == full.serialized()
    swapped = proto('syntax="proto3";message M{map<string,N> b=2;int32 a=1;}message N{}')
    assert one.text() != swapped.text()
    assert one.text(normalize=True) == swapped.text(normalize=True)


def test_imports_are_references_by_name() -> None:
    item = proto('syntax = "proto3"; package shop; message Item { int32 a = 1; }')
    order = 'syntax = "proto3"; package shop; import "item.proto"; message Order { Item item = 1; }'
    old = proto(order, {"item.proto": item})
    new = proto(order, {"item.proto": proto('syntax = "proto3"; package shop; message Item { string a = 1; }')})
    assert [problem.kind for problem in new.problems_reading(old)] == ["FIELD_SCALAR_KIND_CHANGED"]
    with pytest.raises(InvalidSchemaError, match=r"'item\.proto' is imported"):
        proto(order)


def test_a_file_of_nothing_but_imports_is_a_schema() -> None:
    item = proto('syntax = "proto3"; package shop; message Item { int32 a = 1; }')
    only = proto('syntax = "proto3"; import public "item.proto";', {"item.proto": item})
    assert proto(only.serialized(), {"item.proto": item}).serialized() == only.serialized()


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("int32 a = 1; string b = 2;", "int32 a = 1;"),
        ("int32 a = 1;", "int32 a = 1; string b = 2;"),
        ("int32 renamed = 1;", "int32 a = 1;"),
        ("uint64 a = 1;", "int32 a = 1;"),
        ("bool a = 1;", "E a = 1;"),
        ("bytes a = 1;", "string a = 1;"),
        ("sint64 a = 1;", "sint32 a = 1;"),
        ("sfixed32 a = 1;", "fixed32 a = 1;"),
        ("repeated string a = 1;", "string a = 1;"),
        ("oneof o { int32 a = 1; }", "int32 a = 1;"),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }"),
        ("map<string, int64> a = 1;", "map<string, int32> a = 1;"),
        ("optional int32 a = 1;", "int32 a = 1;"),
        ("message X {}", ""),
    ],
)
def test_data_of_the_older_schema_is_read(new: str, old: str) -> None:
    assert kinds(new, old) == []


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("string a = 1;", "int32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("sint32 a = 1;", "int32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("N a = 1;", "int32 a = 1;", ["FIELD_KIND_CHANGED"]),
        ("N a = 1;", "bytes a = 1;", ["FIELD_KIND_CHANGED"]),
        ("M a = 1;", "N a = 1;", ["FIELD_NAMED_TYPE_CHANGED"]),
        ("repeated int32 a = 1;", "int32 a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        ("map<string, string> a = 1;", "map<string, int32> a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("repeated N a = 1;", "map<string, N> a = 1;", ["FIELD_KIND_CHANGED"]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; } int32 b = 2;", ["FIELD_MOVED_TO_EXISTING_ONEOF"]),
        ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", ["ONEOF_FIELD_REMOVED"]),
        ("", "message X {}", ["MESSAGE_REMOVED"]),
        ("message X { string a = 1; }", "message X { int32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
    ],
)
def test_data_of_the_older_schema_is_not_read(new: str, old: str, expected: list[str]) -> None:
    assert kinds(new, old) == expected


def test_required_fields_can_neither_come_nor_go() -> None:
    assert kinds("required int32 a = 1;", "", "proto2") == ["REQUIRED_FIELD_ADDED"]
    assert kinds("", "required int32 a = 1;", "proto2") == ["REQUIRED_FIELD_REMOVED"]


def test_a_problem_names_the_field_and_its_path() -> None:
    old, new = proto(message("N a = 1; int32 count = 4;")), proto(message("N a = 1; string count = 4;"))
    (problem,) = new.problems_reading(old)
    assert (problem.path, "'count'" in problem.description) == ("#/M/4", True)


def test_the_package_may_change() -> None:
    old, new = proto(message("N a = 1;")), proto(message("N a = 1;").replace("package p", "package q"))
    assert new.problems_reading(old) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M { optional int32 a = 1; ", "ends too early"),
        ("message M { optional int32 a 1; }", "line 1: '=' is missing before '1'"),
        ("\n\nmessage 1M {}", "line 3: a name is missing"),
        ("message M { optional int32 a = 0; }", "0 is not within"),
        ("message M { optional int32 a = 19000; }", "are reserved"),
        ('syntax = "proto3"; message M { required int32 a = 1; }', "no required fields"),
        ('syntax = "proto3"; enum E { A = 1; }', "which is 0 in proto3"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "number of a field 1 is given twice"),
        ('syntax = "proto3"; message M { Missing a = 1; }', "does not link"),
        ('syntax = "proto3"; message M {} message M {}', "does not link"),
        ('syntax = "proto4"; message M {}', "proto2 or proto3"),
        ('import "other.proto"; message M {}', "not among the references"),
        ("message M { $ }", "has no place"),
        ("AAAA", "neither a .proto file nor|is empty"),
        ("message M { optional int32 a = 1 [deprecated = maybe]; }", "no value of option deprecated"),
        ("message M {" * 100 + "}" * 100, "nested deeper"),
        ("message M { }" * 100_000, "bytes, and at most"),
        ("message M { /* no end", "has no place"),
        ("message M { int32 a = 1; }", "needs a label"),
        ('message M { repeated string a = 1 [default = "x"]; }', "a repeated field has no default"),
        ("message N {} message M { optional N a = 1 [default = x]; }", "link|default"),
        ("message M { optional int32 a = 1 [default = 3000000000]; }", "is not within"),
        ("message M { optional bool a = 1 [default = yes]; }", "true or false"),
        ("message M { optional string a = 1 [default = 5]; }", "in quotes"),
        ("message M { optional float a = 1 [default = -Inf]; }", "floating point"),
        ('syntax = "proto3"; message M { int32 a = 1 [default = 1]; }', "no defaults"),
        ("enum E { A = 1; B = 1; }", "allow_alias"),
        ("enum E { A = 1; reserved 1 to 5; }", "are reserved"),
        ("message M { reserved 1 to 10, 10 to 12; }", "overlaps"),
        ("message M { reserved 5 to 2; }", "ends before it begins"),
        ('message M { reserved "a"; optional int32 a = 1; }', "the name is reserved"),
        ("message M { extensions 1 to 10; optional int32 a = 1; }", "for extensions"),
        ("message M { extensions 1 to 9; } extend M { required int32 a = 1; }", "cannot be required"),
        ("message M { extensions 1 to 9; } extend M { }", "needs a field"),
        ("message M { option no_such_option = 1; }", "there is no option"),
        ("message M { option map_entry = true; }", "declare a map"),
        ("message M { oneof o { } }", "has no fields"),
        ('syntax = "proto3"; message M { int32 foo_bar = 1; int32 fooBar = 2; }', "name in JSON"),
        ('import "google/protobuf/any.proto"; import "google/protobuf/any.proto";', "imported twice"),
    ],
)
def test_an_invalid_schema_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        proto(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.message_type[0].field[0].__setattr__("default_value", "x"),  # of a repeated field
        lambda file: file.message_type[0].field[0].__setattr__("oneof_index", 7),
        lambda file: file.message_type[0].field[0].__setattr__("number", -1),
        lambda file: file.message_type[0].field[0].__setattr__("type", descriptor_pb2.FieldDescriptorProto.TYPE_GROUP),
        lambda file: file.message_type[0].field[0].__setattr__("name", ""),
        lambda file: file.message_type[0].__setattr__("name", "a b"),
    ],
)
def test_a_descriptor_that_no_file_gives_is_refused(change: Callable[[Any], None]) -> None:
    file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(proto("message M { repeated string a = 1; }").serialized()))
    change(file)
    with pytest.raises(InvalidSchemaError):
        proto(b64encode(file.SerializeToString()).decode())


def test_an_extension_may_be_a_group() -> None:
    text = proto("message M { extensions 1 to 9; } extend M { optional group G = 1 { optional int32 a = 1; } }").text()
    assert "group G = 1" in text
