"""Topics that take only messages with registered schemas: what other messages get, from real producers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

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


def frame(schema_id: int) -> bytes:
    """A value with the id of a schema."""
    return b"\0" + schema_id.to_bytes(4, "big") + b"\x02"


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


def test_subjects_are_named_by_the_strategy_of_the_topic(node: RunningNode, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as registry:
        record = registry.register_schema("com.example.Order", Schema('{"type":"fixed","name":"A","size":1}', "AVRO"))
        own = registry.register_schema("both-com.example.Order", Schema('{"type":"fixed","name":"B","size":1}', "AVRO"))
    node.ok("topic", "create", "any", "--config", "penstock.schema.validation=id", "--config", f"{STRATEGY}.RecordNameStrategy")
    assert produced(node, "any", [frame(record)]) == [None]
    node.ok(
        "topic", "create", "both", "--config", "penstock.schema.validation=id", "--config", f"{STRATEGY}.TopicRecordNameStrategy"
    )
    assert produced(node, "both", [frame(own)]) == [None]
    (outcome,) = produced(node, "both", [frame(record)])
    assert outcome is not None
