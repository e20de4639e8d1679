"""Pipelines whose columns are those of a subject of the schema registry, and follow it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.core.varint import varint
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.tables.errors import TableSchemaError
from tests.e2e.running_node import RunningNode
from tests.spark.pipelines.runs import Runs
from tests.spark.pipelines.table_pipelines import again, audit, declare, read_table
from tests.spark.reads import produce

pytestmark = pytest.mark.slow

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
WIDER = {**FIRST, "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"], "default": None}]}
OTHER = {**FIRST, "fields": [{"name": "n", "type": "string"}]}


@pytest.fixture(scope="module")
def url(node: RunningNode) -> str:
    return f"http://127.0.0.1:{node.ready['listeners']['schema_registry']['port']}"


@pytest.fixture(scope="module")
def registry(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def send(runs: Runs, registry: SchemaRegistryClient, topic: str, written: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Rows with a schema, which is registered for them."""
    serialize = AvroSerializer(registry, json.dumps(written))
    context = SerializationContext(topic, MessageField.VALUE)
    produce(runs.node.bootstrap, topic, [serialize(row, context) for row in rows])


def export(runs: Runs, url: str, topic: str, form: str) -> PipelineSpec:
    """A pipeline to a table, with the columns of the subject."""
    source = {"topics": [topic], "value": {"format": "registry", "registry": url}}
    return declare(runs.node.bootstrap, runs.directory, topic, form, source=source)


def test_a_table_follows_its_subject_and_stops_where_it_cannot(runs: Runs, url: str, registry: SchemaRegistryClient) -> None:
    topic = runs.topic("followed", 1)
    send(runs, registry, topic, FIRST, [{"n": 1}])
    before = export(runs, url, topic, "iceberg")
    assert runs.run(before)["rows_written"] == 1
    send(runs, registry, topic, WIDER, [{"n": 1 << 40, "s": "x"}])
    assert runs.run(before)["rows_written"] == 1, "its file was read before the subject changed"
    assert "new schema" in runs.said
    rows = read_table("iceberg", runs.directory / "lake").sort_by("_offset").select(["n", "s"]).to_pylist()
    assert rows == [{"n": 1, "s": None}, {"n": 1 << 40, "s": "x"}]
    registry.set_compatibility(f"{topic}-value", "NONE")
    send(runs, registry, topic, OTHER, [{"n": "text"}])
    with pytest.raises(TableSchemaError, match="n "):
        runs.run(before)


def test_the_sink_writes_with_a_schema_that_the_source_reads(runs: Runs, url: str, registry: SchemaRegistryClient) -> None:
    topic = runs.topic("written", 1)
    registry.register_schema(f"{topic}-value", Schema(json.dumps(WIDER), "AVRO"))
    options = {"kafka.bootstrap.servers": runs.node.bootstrap, "valueFormat": "registry", "valueRegistry": url}
    rows = runs.spark.range(3).selectExpr("struct(id AS n, CAST(id AS STRING) AS s) AS value")
    rows.write.format("penstock").options(**options, topic=topic).mode("append").save()
    found = runs.spark.read.format("penstock").options(**options, subscribe=topic).load().select("value.*").collect()
    assert sorted((row["n"], row["s"]) for row in found) == [(0, "0"), (1, "1"), (2, "2")]


@pytest.mark.soak
@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_an_export_of_each_kind_of_schema_has_each_row_once(
    runs: Runs, url: str, registry: SchemaRegistryClient, kind: str, form: str
) -> None:
    topic = runs.topic(f"audited-{kind}-{form}", 2)
    schema_id = registry.register_schema(f"{topic}-value", Schema(TEXTS[kind], kind))
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    for partition in (0, 1):
        values: list[bytes | None] = [prefix + payload(kind, number) for number in range(partition, 2000, 2)]
        produce(runs.node.bootstrap, topic, values, partition=partition)
    spec = export(runs, url, topic, form)
    assert runs.run(spec)["rows_written"] == 2000
    assert runs.run(again(spec))["rows_written"] == 0
    rows = read_table(form, runs.directory / "lake")
    assert sorted(rows["n"].to_pylist()) == list(range(2000))
    assert {row["s"] for row in rows.select(["s"]).to_pylist()} == {f"text {number}" for number in range(2000)}
    report = audit(runs.spark, spec)
    assert ("differs" in report, report.count("1,000 records, 1,000 rows")) == (False, 2)


TEXTS = {
    "AVRO": json.dumps({**FIRST, "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}),
    "JSON": json.dumps({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}),
    "PROTOBUF": 'syntax = "proto3"; message Order { int64 n = 1; string s = 2; }',
}


def payload(kind: str, number: int) -> bytes:
    """A value of a schema."""
    text = f"text {number}"
    if kind == "JSON":
        return json.dumps({"n": number, "s": text}).encode()
    encoded = bytes([len(text) * 2]) + text.encode() if kind == "AVRO" else bytes([18, len(text)]) + text.encode()
    return varint(number) + encoded if kind == "AVRO" else b"\0\x08" + plain_varint(number) + encoded


def plain_varint(number: int) -> bytes:
    """A number as Protobuf has it."""
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + plain_varint(number >> 7)
