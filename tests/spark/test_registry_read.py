"""Values that Confluent's serializers wrote with the node's own schema registry, read as columns by the source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.spark.pipelines.spec_reading import read_spec
from tests.e2e.running_node import RunningNode, running_node
from tests.spark.reads import read, schema, values

OLD: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"], "default": None}]}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a schema registry at a port of its own."""
    path = tmp_path_factory.mktemp("registry")
    with running_node(path / "log", ["--data-dir", str(path / "data"), "--schema-registry-port", "0"]) as running:
        yield running


def test_values_of_two_versions_of_a_schema_are_read_with_the_columns_of_the_last(node: RunningNode, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{node.ready['listeners']['schema_registry']['port']}"
    producer = Producer({"bootstrap.servers": node.bootstrap})
    with SchemaRegistryClient({"url": url}) as registry:
        for written, value in ((OLD, {"n": 1}), (NEW, {"n": 1 << 40, "s": "x"})):
            serialize = AvroSerializer(registry, json.dumps(written))
            producer.produce("orders", serialize(value, SerializationContext("orders", MessageField.VALUE)))
    assert producer.flush(60) == 0
    file = tmp_path / "p.yaml"
    decoding = f"{{format: avro, registry: '{url}'}}"
    source = f"{{topics: [orders], value: {decoding}}}"
    file.write_text(f"pipeline: p\nkind: export\nsource: {source}\ntarget: {{table: {{format: delta, location: lake}}}}\n")
    spec = read_spec(str(file)).source.value  # the subject is that of the topic
    assert spec.schema is not None
    columns = schema("value", value=StructType([StructField("n", LongType()), StructField("s", StringType())]))
    options = {"valueFormat": "avro", "valueSchema": spec.schema, "valueRegistry": url}
    found = values(read(node.bootstrap, columns, subscribe="orders", **options))
    assert found == [{"n": 1, "s": None}, {"n": 1 << 40, "s": "x"}]
