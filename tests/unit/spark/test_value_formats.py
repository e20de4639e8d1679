"""Values of Debezium, of a schema registry, with maps, and of Protobuf, as columns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.spark.arrow_types import arrow_type
from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue
from penstock.spark.options import read_options
from penstock.spark.protobuf_format import protobuf_schema
from penstock.spark.registry_client import RegistryError
from penstock.spark.value_format import decode_column, replaced_utf8
from penstock.spark.value_formats import value_format, value_type_of

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "tags", "type": ["null", "string"]}],
}
WIDER = {**ROW, "fields": [{"name": "id", "type": "long"}, {"name": "list", "type": {"type": "array", "items": "int"}}]}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
SCHEMAS: dict[str, Any] = {
    "/schemas/ids/1": {"schema": json.dumps(ROW)},
    "/schemas/ids/2": {"schema": json.dumps(WIDER)},
    "/schemas/ids/3": {"schema": "{}", "schemaType": "JSON"},
    "/schemas/ids/4": {"schema": json.dumps(EVENT)},
}


def decode(values: list[bytes | None], form: str, schema: str, *, fails: bool = False, registry: str | None = None) -> Any:
    """The rows, and what could not be decoded."""
    given = {"subscribe": "t", "bootstrap.servers": "h:1", "valueFormat": form, "valueSchema": schema}
    options = read_options({**given, **({"valueRegistry": registry} if registry else {})}, "any")
    kind = value_type_of(options)
    assert kind is not None
    decoder = value_format(options, arrow_type(kind), fails=fails)
    assert decoder is not None
    bad: list[MalformedValue] = []
    decoder.malformed = None if fails else bad
    column = decode_column(decoder, pa.array(values, pa.binary()))
    column.validate(full=True)
    return column.to_pylist(), {value.row: value.reason for value in bad}


def avro(schema: dict[str, Any], record: dict[str, Any], frame: int | None = None) -> bytes:
    """A value, framed with the id of a schema if one is given."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return (b"" if frame is None else b"\0" + frame.to_bytes(4, "big")) + out.getvalue()


def event(op: str | None, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, **({"op": op} if op else {}), "ts_ms": 7}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The two requests of a schema registry that readers make."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = SCHEMAS.get(self.path)
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://me:secret@127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_events_of_debezium_become_rows_with_their_operation() -> None:
    events = [event("c", None, {"id": 1}), event("u", {"id": 1}, {"id": 2}), event("d", {"id": 3}), event("d")]
    values: list[bytes | None] = [json.dumps(each).encode() for each in events]
    values.append(json.dumps({"schema": {"type": "struct"}, "payload": event("r", None, {"id": 4, "name": "x"})}).encode())
    values += [None, json.dumps(event("t")).encode(), json.dumps({"id": 5}).encode(), b"{"]
    rows, bad = decode(values, "debezium-json", "id BIGINT, name STRING")
    assert [(row["id"], row["name"], row["__op"]) for row in rows[:5]] == [
        (1, None, "c"),
        (2, None, "u"),
        (3, None, "d"),
        (None, None, "d"),
        (4, "x", "r"),
    ]
    assert rows[5:] == [None] * 4
    assert (bad[6], bad[7]) == (
        "no change event of Debezium: its op 't' changes no row",
        "no change event of Debezium: it has no op",
    )
    assert set(bad) == {6, 7, 8}
    with pytest.raises(MalformedValueError, match="no change event of Debezium: it has no op"):
        decode([json.dumps({"id": 5}).encode()], "debezium-json", "id BIGINT", fails=True)


def test_events_in_avro_are_read_the_same_way() -> None:
    values: list[bytes | None] = [avro(EVENT, event("u", {"id": 1}, {"id": 2, "tags": "x"})), avro(EVENT, event("d", {"id": 3}))]
    rows, bad = decode(values, "debezium-avro", json.dumps(EVENT))
    assert rows == [
        {"id": 2, "tags": "x", "__op": "u", "__ts_ms": 7},
        {"id": 3, "tags": None, "__op": "d", "__ts_ms": 7},
    ]
    assert not bad


def test_values_of_several_schemas_of_a_registry_are_decoded_each_by_its_own(registry: str) -> None:
    values = [avro(ROW, {"id": 1, "tags": "a"}, 1), None, avro(WIDER, {"id": 2, "list": [1, 2]}, 2), b"\0\0\0\0\3" + b'{"id": 3}']
    values += [b'{"id": 4}', avro(ROW, {"id": 5, "tags": "b"}, 1)[:-1]]
    rows, bad = decode(values, "avro", json.dumps(ROW), registry=registry)
    assert rows == [{"id": 1, "tags": "a"}, None, {"id": 2, "tags": None}, {"id": 3, "tags": None}, None, None]
    assert bad == {
        4: "not framed with the id of a schema, though a registry is given",
        5: "not Avro of the schema given; schema 1",
    }
    events: list[bytes | None] = [avro(EVENT, event("c", None, {"id": 9}), 4)]
    assert decode(events, "debezium-avro", json.dumps(EVENT), registry=registry)[0][0]["id"] == 9
    with pytest.raises(RegistryError, match=r"answers /schemas/ids/77 with 404 Not Found: http://127.0.0.1") as failed:
        decode([avro(ROW, {"id": 1}, 77)], "avro", json.dumps(ROW), registry=registry)
    assert "secret" not in str(failed.value)


def test_maps_in_json_are_decoded_with_their_neighbours() -> None:
    schema = "id BIGINT, at TIMESTAMP, tags MAP<STRING, BIGINT>, deep ARRAY<STRUCT<m: MAP<STRING, STRING>>>"
    values = [
        b'{"id": 1, "tags": {"a": 1, "b": null}, "at": "2026-11-01T00:00:00Z", "deep": [{"m": {"x": "y"}}, {"m": {}}]}',
        b'{"id": 2}',
        None,
        b'{"id": 3, "tags": {"a": "no number"}}',
        b"{",
    ]
    rows, bad = decode(values, "json", schema)
    assert (rows[0]["tags"], rows[0]["deep"]) == ([("a", 1), ("b", None)], [{"m": [("x", "y")]}, {"m": []}])
    assert rows[0]["at"].isoformat() == "2026-11-01T00:00:00+00:00"
    assert rows[1] == {"id": 2, "at": None, "tags": None, "deep": None}
    assert rows[2:] == [None] * 3
    assert set(bad) == {3, 4}


def test_texts_that_are_not_utf8_are_malformed() -> None:
    rows, bad = decode([b'{"s": "a"}', b'{"s": "\xff"}', '{"s": "é"}'.encode()], "json", "s STRING")
    assert rows == [{"s": "a"}, None, {"s": "é"}]
    assert set(bad) == {1}
    record = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": ["null", "string"]}]}
    values: list[bytes | None] = [b"\2\0", b"\4\2\4\xc3\xa9", b"\6\2\2\xff", b"\6\2\4a", None, b"\2\2\6\xed\xa0\x80", b"\2\2\2a"]
    rows, bad = decode(values, "avro", json.dumps(record))
    assert rows == [{"n": 1, "s": None}, {"n": 2, "s": "é"}, None, None, None, None, {"n": 1, "s": "a"}]
    assert [*bad] == [2, 3, 5]
    with pytest.raises(MalformedValueError, match=r"the value at offset .* a text in it is not UTF-8"):
        decode(values[2:3], "avro", json.dumps(record), fails=True)


def test_names_of_headers_that_are_not_utf8_are_shown_with_replacements() -> None:
    names = pa.array([b"a", b"b\xff", None], pa.binary()).view(pa.string())
    assert replaced_utf8(names).to_pylist() == ["a", "b\ufffd", None]
    assert replaced_utf8(names[:1]).to_pylist() == ["a"]


TEXT_MAPS = [
    b'{"id": 1, "tags": {"a": "b", "c": null, "d\\u00e9": "\\n"}, "at": "2026-11-01T00:00:00Z", "other": {"x": [1]}}',
    b'{"tags": null, "id": 2}',
    None,
    b'{"id": 3}',
    b'{"my tags": {}, "id": null, "tags": {"x": "y"}}',
]


@pytest.mark.parametrize(
    "wrong", [b"{", b'{"id": "x"}', b'{"tags": {"a": 1}}', b'{"tags": []}', b"null", b"", b"5", b'{"tags":{"a":"\xff"}}']
)
def test_maps_of_texts_are_decoded_alike_whether_or_not_a_value_is_wrong(wrong: bytes) -> None:
    schema = "id BIGINT, tags MAP<STRING, STRING>, `my tags` MAP<STRING, STRING>, at TIMESTAMP"
    rows, bad = decode([*TEXT_MAPS], "json", schema)
    assert [row and (row["id"], row["tags"], row["my tags"]) for row in rows] == [
        (1, [("a", "b"), ("c", None), ("d\u00e9", "\n")], None),
        (2, None, None),
        None,
        (3, None, None),
        (None, [("x", "y")], []),
    ]
    assert rows[0]["at"].isoformat() == "2026-11-01T00:00:00+00:00"
    assert not bad
    among, bad = decode([*TEXT_MAPS, wrong], "json", schema)
    assert among == [*rows, None]
    assert set(bad) == ({5} if wrong != b"null" else set())


def test_protobuf_is_decoded_by_its_descriptors() -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="skus", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    order.field.add(name="state", number=3, type=kinds.TYPE_ENUM, type_name=".shop.State", label=kinds.LABEL_OPTIONAL)
    order.field.add(name="first", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Line", label=kinds.LABEL_OPTIONAL)
    file.message_type.add(name="Line").field.add(name="raw", number=1, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    values = [message(id=1, skus=["a", "b"], state=1, first={"raw": b"\0"}).SerializeToString(), b"", None, b"\xff"]
    rows, bad = decode(values, "protobuf", protobuf_schema(descriptors, "shop.Order"))
    assert rows == [
        {"id": 1, "skus": ["a", "b"], "state": "PAID", "first": {"raw": b"\0"}},
        {"id": 0, "skus": [], "state": "NEW", "first": None},
        None,
        None,
    ]
    assert set(bad) == {3}
    with pytest.raises(OptionError, match=r"no message 'shop.Cart'; there are shop.Line, shop.Order"):
        decode([], "protobuf", protobuf_schema(descriptors, "shop.Cart"))
