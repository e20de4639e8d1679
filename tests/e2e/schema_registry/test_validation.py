"""Topics that take only messages with registered schemas: what other messages get, from real producers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from penstock.client.record_batch import Record, encode_batch
from penstock.kafka.protocol import errors
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.running_node import RunningNode

STRATEGY = "confluent.value.subject.name.strategy=io.confluent.kafka.serializers.subject"


def produced(node: RunningNode, topic: str, values: list[bytes | None], **settings: Any) -> list[KafkaError | None]:
    """The outcome of each message."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 50, **settings})
    outcomes: list[KafkaError | None] = [None] * len(values)

    def report(number: int) -> Any:
        return lambda error, _: outcomes.__setitem__(number, error)

    for number, value in enumerate(values):
        producer.produce(topic, value, b"key", on_delivery=report(number))
    assert producer.flush(60) == 0
    return outcomes


@pytest.fixture
def registry(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def frame(schema_id: int, payload: bytes = b"\x02") -> bytes:
    """A value with the id of a schema."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_values_must_name_a_schema_of_the_topics_subject(node: RunningNode, url: str, codec: str) -> None:
    topic = f"checked-{codec}"
    node.ok("topic", "create", topic, "--config", "penstock.schema.validation=id")
    with SchemaRegistryClient({"url": url}) as registry:
        own = registry.register_schema(f"{topic}-value", Schema('"int"', "AVRO"))
        other = registry.register_schema("elsewhere-value", Schema('"long"', "AVRO"))
    settings = {"compression.type": codec}
    assert produced(node, topic, [frame(own), None, frame(own)], **settings) == [None, None, None]
    for wrong in (frame(other), frame(9999), b"plain", b""):
        (outcome,) = produced(node, topic, [wrong], **settings)
        assert outcome is not None
        assert outcome.code() == KafkaError.INVALID_RECORD
    assert node.ok("topic", "describe", topic, "-o", "json")
    assert len(node.ok("consume", topic, "-f", "hex").splitlines()) == 3


def test_a_schema_is_known_as_soon_as_it_is_registered(node: RunningNode, url: str) -> None:
    node.ok("topic", "create", "fresh", "--config", "confluent.value.schema.validation=true")
    with SchemaRegistryClient({"url": url}) as registry:
        for number in range(10):
            name = json.dumps({"type": "fixed", "name": "F", "size": number, "n": number})
            registry.set_compatibility("fresh-value", "NONE")
            schema_id = registry.register_schema("fresh-value", Schema(name, "AVRO"))
            assert produced(node, "fresh", [frame(schema_id)]) == [None]


def fixed(name: str, size: int) -> Schema:
    """A type with a name."""
    return Schema(json.dumps({"type": "fixed", "name": name, "size": size}), "AVRO")


def test_subjects_are_named_by_the_strategy_of_the_topic(node: RunningNode, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as registry:
        record = registry.register_schema("com.example.Order", fixed("com.example.Order", 1))
        own = registry.register_schema("both-com.example.Order", fixed("com.example.Order", 2))
        other = registry.register_schema("com.example.Item", fixed("com.example.Other", 1))
        titled = registry.register_schema("Titled", Schema('{"title":"Titled"}', "JSON"))
        message = registry.register_schema("shop.Order", Schema('syntax="proto3";package shop;message Order{}', "PROTOBUF"))
    node.ok("topic", "create", "any", "--config", "penstock.schema.validation=id", "--config", f"{STRATEGY}.RecordNameStrategy")
    for schema_id in (record, titled, message, record):
        assert produced(node, "any", [frame(schema_id)]) == [None]
    for schema_id in (own, other):  # of subjects that are named otherwise than their records
        (outcome,) = produced(node, "any", [frame(schema_id)])
        assert outcome is not None
        assert outcome.code() == KafkaError.INVALID_RECORD
    node.ok(
        "topic", "create", "both", "--config", "penstock.schema.validation=id", "--config", f"{STRATEGY}.TopicRecordNameStrategy"
    )
    assert produced(node, "both", [frame(own)]) == [None]
    (outcome,) = produced(node, "both", [frame(record)])
    assert outcome is not None


ORDER: Final = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}, {"name": "paid", "type": "boolean"}]}
CLOSED: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "field"),
    [
        (Schema(json.dumps(ORDER), "AVRO"), b"\x02\x01", b"\x02\x07", "field 'paid'"),
        (Schema(json.dumps(CLOSED), "JSON"), b'{"n":1}', b'{"n":"x"}', "at /n"),
        (Schema('syntax = "proto3"; message A { string s = 1; }', "PROTOBUF"), b"\0\x0a\x01x", b"\0\x0a\x09x", "field 's'"),
    ],
)
def test_full_validation_refuses_what_does_not_match_and_names_message_and_field(
    registry: SchemaRegistryClient, node: RunningNode, *, schema: Schema, good: bytes, bad: bytes, field: str
) -> None:
    topic = f"decoded-{schema.schema_type}"
    node.ok("topic", "create", topic, "--config", "penstock.schema.validation=full")
    schema_id = registry.register_schema(f"{topic}-value", schema)
    values = [frame(schema_id, good), frame(schema_id, bad), None, frame(schema_id, bad)]
    with RawClient(int(node.bootstrap.rpartition(":")[2])) as client:
        refused = client.produce(topic, encode_batch([Record(0, 1, b"k", value) for value in values]))
        assert refused.error_code == errors.INVALID_RECORD
        assert [fault.batch_index for fault in refused.record_errors] == [1, 3]
        assert all(field in (fault.batch_index_error_message or "") for fault in refused.record_errors)
        assert "message 1 of the batch" in (refused.error_message or "")
        unknown = client.produce(topic, encode_batch([Record(0, 1, b"k", frame(9999, good))]))
        assert "names schema 9999" in (unknown.record_errors[0].batch_index_error_message or "")
    for codec in ("none", "zstd"):
        outcomes = produced(node, topic, [frame(schema_id, good)] * 200 + [None], **{"compression.type": codec})
        assert outcomes == [None] * 201
    assert len(node.ok("consume", topic, "-f", "hex").splitlines()) == 402


def test_keys_are_decoded_where_they_are_checked(node: RunningNode, registry: SchemaRegistryClient) -> None:
    settings = ("penstock.schema.validation=full", "confluent.key.schema.validation=true")
    node.ok("topic", "create", "keyed", *(part for setting in settings for part in ("--config", setting)))
    key = registry.register_schema("keyed-key", Schema('"boolean"', "AVRO"))
    value = registry.register_schema("keyed-value", Schema('"string"', "AVRO"))
    with RawClient(int(node.bootstrap.rpartition(":")[2])) as client:
        good = Record(0, 1, frame(key, b"\1"), frame(value, b"\2x"))
        assert client.produce("keyed", encode_batch([good])).error_code == errors.NONE
        refused = client.produce("keyed", encode_batch([good, good._replace(key=frame(key, b"\7"))]))
        assert [fault.batch_index for fault in refused.record_errors] == [1]
        assert "the key does not match" in (refused.error_message or "")
