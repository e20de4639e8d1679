"""Messages go through Confluent's own serializers, unchanged, to the broker and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tests.e2e.running_node import RunningNode

Serialize = Callable[[Any, SerializationContext], bytes | None]


@pytest.fixture
def registry(url: str) -> Any:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def sent(node: RunningNode, topic: str, serialize: Serialize, value: Any) -> bytes:
    """A value as consumers get it."""
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(topic, serialize(value, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    assert message.error() is None
    consumer.close()
    return bytes(message.value() or b"")


def received(raw: bytes, topic: str, deserialize: Any) -> Any:
    """What a deserializer makes of it."""
    return deserialize(raw, SerializationContext(topic, MessageField.VALUE))


def test_avro(node: RunningNode, registry: SchemaRegistryClient) -> None:
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]})
    raw = sent(node, "avro", AvroSerializer(registry, schema), {"n": 7})
    version = registry.get_latest_version("avro-value")
    assert int.from_bytes(raw[1:5], "big") == version.schema_id
    assert received(raw, "avro", AvroDeserializer(registry)) == {"n": 7}
    newer = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string", "default": "?"}],
    }
    assert received(raw, "avro", AvroDeserializer(registry, json.dumps(newer))) == {"n": 7, "s": "?"}
    broken = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "string"}]})
    with pytest.raises(SchemaRegistryError, match="TYPE_MISMATCH"):
        AvroSerializer(registry, broken)({"n": "7"}, SerializationContext("avro", MessageField.VALUE))


def test_json_schema(node: RunningNode, registry: SchemaRegistryClient) -> None:
    schema = json.dumps(
        {"title": "Order", "type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    )
    raw = sent(node, "json", JSONSerializer(schema, registry), {"n": 7})
    assert received(raw, "json", JSONDeserializer(None, schema_registry_client=registry)) == {"n": 7}
    assert registry.get_latest_version("json-value").schema.schema_type == "JSON"


def test_protobuf_with_an_import(node: RunningNode, registry: SchemaRegistryClient) -> None:
    order_type = _order_type()
    raw = sent(
        node,
        "proto",
        ProtobufSerializer(order_type, registry, {"use.deprecated.format": False}),
        order_type(n=7, item={"name": "x"}),
    )
    read = received(raw, "proto", ProtobufDeserializer(order_type, {"use.deprecated.format": False}, registry))
    assert (read.n, read.item.name) == (7, "x")
    version = registry.get_latest_version("proto-value")
    assert [reference.name for reference in version.schema.references or ()] == ["item.proto"]
    assert "message Order {" in (version.schema.schema_str or "")
    same = Schema(version.schema.schema_str, "PROTOBUF", version.schema.references)
    assert registry.register_schema("proto-value", same) == version.schema_id


def _order_type() -> Any:
    """A message in a file that imports another and one of the library."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    field = descriptor_pb2.FieldDescriptorProto
    item = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    item.message_type.add(name="Item").field.add(name="name", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["item.proto", "google/protobuf/timestamp.proto"])
    message = order.message_type.add(name="Order")
    for number, (name, kind, type_name) in enumerate(
        [
            ("n", field.TYPE_INT32, ""),
            ("item", field.TYPE_MESSAGE, ".shop.Item"),
            ("at", field.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, type_name=type_name or None, label=field.LABEL_OPTIONAL)
    for file in (item, order):
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
