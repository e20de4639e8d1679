"""Values with schemas of the node's own registry, read as columns by the source and written by the sink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.spark.arrow_types import arrow_type
from penstock.spark.errors import RowError
from penstock.spark.pipelines.spec_reading import read_spec
from penstock.spark.registered_encoding import RegisteredEncoder
from penstock.spark.registry_client import registry_address
from tests.e2e.running_node import RunningNode
from tests.spark.reads import produce, read, schema, source, values

OLD: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"], "default": None}]}


ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
PERSON = {"type": "record", "name": "Person", "fields": [{"name": "n", "type": "long"}, {"name": "home", "type": "Address"}]}
OBJECT = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}},
        "by": {"oneOf": [{"type": "null"}, {"type": "object", "additionalProperties": {"type": "number"}}]},
    },
    "definitions": {"tag": {"type": ["string", "null"]}},
}
MESSAGE = (
    'syntax = "proto3"; message Order { int64 n = 1; repeated string tags = 2; message Line { int32 at = 1; } Line line = 3; }'
)


@pytest.fixture(scope="module")
def url(node: RunningNode) -> str:
    """The registry of the node that all tests share."""
    return f"http://127.0.0.1:{node.ready['listeners']['schema_registry']['port']}"


@pytest.fixture(scope="module")
def registry(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def framed(schema_id: int, payload: bytes) -> bytes:
    """A value as serializers write it."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def test_columns_are_those_of_the_subject_whichever_its_kind(node: RunningNode, url: str, registry: SchemaRegistryClient) -> None:
    registry.register_schema("address", Schema(json.dumps(ADDRESS), "AVRO"))
    person = Schema(json.dumps(PERSON), "AVRO", [SchemaReference("Address", "address", 1)])
    kinds: dict[str, tuple[Schema, bytes, str, dict[str, Any]]] = {
        "people": (
            person,
            b"\x0e\x02X",
            "STRUCT<`n`: BIGINT, `home`: STRUCT<`city`: STRING>>",
            {"n": 7, "home": {"city": "X"}},
        ),
        "objects": (
            Schema(json.dumps(OBJECT), "JSON"),
            b'{"n": 7, "tags": ["a"], "by": {"x": 1}}',
            "STRUCT<`n`: BIGINT, `tags`: ARRAY<STRING>, `by`: MAP<STRING, DOUBLE>>",
            {"n": 7, "tags": ["a"], "by": [("x", 1.0)]},
        ),
        "messages": (
            Schema(MESSAGE, "PROTOBUF"),
            b"\0" + bytes([8, 7, 18, 1, 97, 26, 2, 8, 5]),
            "STRUCT<`n`: BIGINT, `tags`: ARRAY<STRING>, `line`: STRUCT<`at`: INT>>",
            {"n": 7, "tags": ["a"], "line": {"at": 5}},
        ),
    }
    for topic, (written, payload, columns, row) in kinds.items():
        schema_id = registry.register_schema(f"{topic}-value", written)
        produce(node.bootstrap, topic, [framed(schema_id, payload)])
        options = {"subscribe": topic, "valueFormat": "registry", "valueRegistry": url}
        assert columns in source(node.bootstrap, **options).schema()
        value = from_arrow_type(arrow_type(columns))
        assert values(read(node.bootstrap, schema("value", value=value), **options)) == [row]


def test_rows_are_written_with_the_last_schema_of_a_subject(url: str, registry: SchemaRegistryClient) -> None:
    rows = pa.RecordBatch.from_pylist([{"value": {"n": 7, "tags": ["a", "b"]}}, {"value": None}])
    context = SerializationContext("t", MessageField.VALUE)
    fields = [{"name": "n", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]
    registry.register_schema("avro-value", Schema(json.dumps({"type": "record", "name": "R", "fields": fields}), "AVRO"))
    registry.register_schema("json-value", Schema(json.dumps(OBJECT), "JSON"))
    registry.register_schema("protobuf-value", Schema(MESSAGE, "PROTOBUF"))
    address = registry_address(url, {})
    for kind, deserialize in (
        ("avro", AvroDeserializer(registry)),
        ("json", JSONDeserializer(None, schema_registry_client=registry)),
    ):
        value, null = RegisteredEncoder(address, f"{kind}-value").encode(rows).column(0).to_pylist()
        assert (deserialize(value, context), null) == ({"n": 7, "tags": ["a", "b"]}, None)
    encoded = RegisteredEncoder(address, "protobuf-value").encode(rows).column(0).to_pylist()[0]
    assert encoded[5:] == b"\0" + bytes([8, 7, 18, 1, 97, 18, 1, 98])
    wrong = pa.RecordBatch.from_pylist([{"value": {"n": "seven", "tags": []}}])
    with pytest.raises(RowError, match="row 0 of a batch cannot be written with schema"):
        RegisteredEncoder(address, "avro-value").encode(wrong)


def test_values_of_two_versions_of_a_schema_are_read_with_the_columns_of_the_last(
    node: RunningNode, url: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    with SchemaRegistryClient({"url": url}) as registry:
        for written, value in ((OLD, {"n": 1}), (NEW, {"n": 1 << 40, "s": "x"})):
            serialize = AvroSerializer(registry, json.dumps(written))
            producer.produce(
                "orders-of-versions", serialize(value, SerializationContext("orders-of-versions", MessageField.VALUE))
            )
    assert producer.flush(60) == 0
    file = tmp_path / "p.yaml"
    decoding = f"{{format: avro, registry: '{url}'}}"
    source = f"{{topics: [orders-of-versions], value: {decoding}}}"
    file.write_text(f"pipeline: p\nkind: export\nsource: {source}\ntarget: {{table: {{format: delta, location: lake}}}}\n")
    spec = read_spec(str(file)).source.value  # the subject is that of the topic
    assert spec.schema is not None
    columns = schema("value", value=StructType([StructField("n", LongType()), StructField("s", StringType())]))
    options = {"valueFormat": "avro", "valueSchema": spec.schema, "valueRegistry": url}
    found = values(read(node.bootstrap, columns, subscribe="orders-of-versions", **options))
    assert found == [{"n": 1, "s": None}, {"n": 1 << 40, "s": "x"}]
