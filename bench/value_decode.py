"""Values to columns: each format on one core, without a broker and without Spark, beside the Python library that decodes one
value at a time and a column made of the results.

Formats that are decoded a whole batch at a time by compiled code have a goal; the others tell what their flexibility costs."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import fastavro
import msgspec
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict

from bench.measure import Row, Setting, quartiles
from penstock.spark.arrow_types import arrow_type
from penstock.spark.options import read_options
from penstock.spark.protobuf_format import protobuf_schema
from penstock.spark.value_format import decode_column
from penstock.spark.value_formats import value_format, value_type_of

VALUES = 20_000
COLUMNS = "id BIGINT, name STRING, price DOUBLE, at BIGINT"
COMPILED_GOAL = 1.0
FLAT = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string"},
    {"name": "price", "type": "double"},
    {"name": "at", "type": "long"},
]


class Shape(NamedTuple):
    """A format, its schema, the values, and what decodes one of them in Python."""

    name: str
    format: str
    schema: str
    values: list[bytes]
    decode_one: Callable[[bytes], Any]
    goal: float | None


def row(number: int) -> dict[str, Any]:
    """A flat row of about a hundred bytes in JSON."""
    return {"id": number, "name": f"the name of number {number}", "price": number / 7, "at": 1_790_000_000_000 + number}


def shapes() -> list[Shape]:
    """All of them."""
    rows = [row(number) for number in range(VALUES)]
    flat = [json.dumps(one).encode() for one in rows]
    maps = [json.dumps({**one, "tags": {"a": "b", "n": str(one["id"])}}).encode() for one in rows]
    events = [json.dumps({"before": None, "after": one, "op": "u", "ts_ms": 1}).encode() for one in rows]
    message, descriptors = protobuf_message()
    return [
        Shape("JSON", "json", COLUMNS, flat, msgspec.json.decode, COMPILED_GOAL),
        Shape("JSON with a map", "json", f"{COLUMNS}, tags MAP<STRING, STRING>", maps, msgspec.json.decode, None),
        Shape("Debezium's JSON", "debezium-json", COLUMNS, events, _changed_row, COMPILED_GOAL),
        _avro("Avro", FLAT, rows, COMPILED_GOAL),
        _avro(
            "Avro with an array",
            [*FLAT, {"name": "tags", "type": {"type": "array", "items": "string"}}],
            [{**one, "tags": ["a", "b"]} for one in rows],
            None,
        ),
        Shape(
            "Protobuf",
            "protobuf",
            protobuf_schema(descriptors, "shop.Order"),
            [message(**one).SerializeToString() for one in rows],
            lambda value: MessageToDict(message.FromString(value)),
            None,
        ),
    ]


def _changed_row(value: bytes) -> Any:
    event = msgspec.json.decode(value)
    return {**event["after"], "__op": event["op"], "__ts_ms": event["ts_ms"]}


def _avro(name: str, fields: list[dict[str, Any]], rows: list[dict[str, Any]], goal: float | None) -> Shape:
    schema = {"type": "record", "name": "Row", "fields": fields}
    parsed = fastavro.parse_schema(schema)
    values = []
    for one in rows:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, parsed, one)
        values.append(data.getvalue())
    return Shape(name, "avro", json.dumps(schema), values, lambda value: _read_avro(value, parsed), goal)


def _read_avro(value: bytes, parsed: Any) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value), parsed, None)


def protobuf_message() -> tuple[Any, bytes]:
    """The class of a message, and its descriptors as protoc writes them."""
    kinds = {"id": 3, "name": 9, "price": 1, "at": 3}
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(kinds.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order")), descriptors


async def rows(setting: Setting) -> list[Row]:
    """All formats."""
    return [_measure(shape, setting.rounds(15)) for shape in shapes()]


def _measure(shape: Shape, rounds: int) -> Row:
    given = {"subscribe": "t", "bootstrap.servers": "h:1", "valueFormat": shape.format, "valueSchema": shape.schema}
    options = read_options(given, "any")
    kind = value_type_of(options)
    assert kind is not None
    form = value_format(options, arrow_type(kind), fails=True)
    assert form is not None
    column = pa.array(shape.values, pa.binary())

    def one_by_one() -> None:
        pa.array([shape.decode_one(value) for value in shape.values])

    def ours() -> None:
        decoded = decode_column(form, column)
        if decoded.null_count:
            raise RuntimeError(f"{shape.name}: {decoded.null_count} values were not decoded")

    # Both by processor time, since neither waits for anything: it varies less on a machine that is shared.
    pairs = [(_cost_us(ours), _cost_us(one_by_one)) for _ in range(rounds + 1)][1:]
    ratios = [theirs / own for own, theirs in pairs]
    low, high = quartiles(ratios)
    own, theirs = (f"{median(costs):.2f} us" for costs in zip(*pairs, strict=True))
    name = f"decode a value of {shape.name} to columns, processor time"
    return Row(name, own, f"one by one {theirs}", median(ratios), "x", shape.goal, True, low, high)


def _cost_us(work: Callable[[], None]) -> float:
    before = time.process_time()
    work()
    return (time.process_time() - before) / VALUES * 1e6
