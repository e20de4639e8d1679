"""Messages as the admin API shows them: decoded with the schema that they name, or as they were asked for."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.e2e.running_node import RunningNode

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]})
PROTO = 'syntax = "proto3"; message Order { int32 n = 1; string s = 2; }'


def shown(node: RunningNode, topic: str, **query: str) -> dict[str, Any]:
    """The only message of a topic."""
    api = f"http://127.0.0.1:{node.ready['listeners']['http']['port']}/api/v1/topics/{topic}/messages"
    with urllib.request.urlopen(f"{api}?{urlencode(query)}", timeout=60) as answer:
        (item,) = json.loads(answer.read())["items"]
    found: dict[str, Any] = item
    return found


def send(node: RunningNode, topic: str, value: bytes, key: bytes | None = None) -> None:
    """Send a message."""
    node.ok("topic", "create", topic)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(topic, value, key)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("kind", "text", "payload"),
    [("AVRO", ORDER, b"\x0e\x04ok"), ("PROTOBUF", PROTO, b"\0\x08\x07\x12\x02ok"), ("JSON", "{}", b'{"n":7,"s":"ok"}')],
)
def test_a_value_is_decoded_with_the_schema_that_it_names(
    node: RunningNode, url: str, kind: str, text: str, payload: bytes
) -> None:
    topic = f"shown-{kind.lower()}"
    with SchemaRegistryClient({"url": url}) as registry:
        schema_id = registry.register_schema(f"{topic}-value", Schema(text, kind))
    raw = b"\0" + schema_id.to_bytes(4, "big") + payload
    send(node, topic, raw, raw)
    message = shown(node, topic)
    assert message["value"]["data"] == {"n": 7, "s": "ok"}
    assert message["key"]["data"] == message["value"]["data"]
    assert message["value"]["schema"] == {"id": schema_id, "subject": f"{topic}-value", "version": 1, "type": kind}
    assert message["value"]["size"] == len(raw)
    assert shown(node, topic, decoder="hex")["value"]["data"] == raw.hex()


def test_a_value_that_does_not_match_its_schema_is_shown_with_the_reason(node: RunningNode, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as registry:
        schema_id = registry.register_schema("mismatch-value", Schema(ORDER, "AVRO"))
    raw = b"\0" + schema_id.to_bytes(4, "big") + b"\x0e\x40"
    send(node, "mismatch", raw)
    value = shown(node, "mismatch")["value"]
    assert (value["kind"], value["data"]) == ("hex", raw.hex())
    assert "does not match" in value["problem"]
    assert value["schema"]["id"] == schema_id


def test_a_decoder_is_chosen(node: RunningNode, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as registry:
        registry.register_schema("chosen-avro", Schema(ORDER, "AVRO"))
        registry.register_schema("chosen-proto", Schema(PROTO, "PROTOBUF"))
    send(node, "bare-avro", b"\x0e\x04ok")
    assert shown(node, "bare-avro", decoder="avro", schema="chosen-avro")["value"]["data"] == {"n": 7, "s": "ok"}
    send(node, "bare-proto", b"\x08\x07\x12\x02ok")
    assert shown(node, "bare-proto", decoder="protobuf", schema="chosen-proto")["value"]["data"] == {"n": 7, "s": "ok"}
    send(node, "packed", msgspec.msgpack.encode({"a": [1, b"\xff", float("inf")]}))
    assert shown(node, "packed", decoder="msgpack")["value"]["data"] == {"a": [1, "ff", "inf"]}
    assert shown(node, "packed", decoder="text")["value"]["kind"] == "text"
    assert shown(node, "packed", decoder="json")["value"]["problem"]
