"""The schema of a YT queue as the subject of its topic: rows and messages of every client, read by every other."""

from __future__ import annotations

import json
from typing import Any

import pytest
import ydb
import yt.wrapper
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import connected, read_all

COLUMNS: list[dict[str, Any]] = [
    {"name": "n", "type": "int64", "required": True},
    {"name": "s", "type": "string"},
    {"name": "d", "type": "double"},
]


class CheckedQueue:
    """A queue whose topic takes only values with a schema of its subject, and its clients."""

    def __init__(self, node: RunningNode, registry: SchemaRegistryClient, name: str) -> None:
        self.node = node
        self.registry = registry
        self.path, self.topic = f"//tmp/{name}", f"tmp.{name}"
        self.yt: Any = yt.wrapper.YtClient(proxy=f"http://127.0.0.1:{node.ready['listeners']['yt']['port']}")
        self.yt.create("table", self.path, recursive=True, attributes={"dynamic": True, "schema": COLUMNS})
        self.yt.mount_table(self.path)
        node.ok("topic", "alter", self.topic, "--set", "penstock.schema.validation=id")

    def push(self, *rows: dict[str, Any]) -> None:
        """Insert rows by YT's client."""
        self.yt.insert_rows(self.path, rows)

    def produce(self, serializer: Any, value: Any) -> None:
        """Send a message by a serializer of Confluent's."""
        outcomes: list[Any] = []
        producer = Producer({"bootstrap.servers": self.node.bootstrap})
        context = SerializationContext(self.topic, MessageField.VALUE)
        producer.produce(self.topic, serializer(value, context), on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(60) == 0
        assert outcomes == [None]

    def consumed(self, deserializer: Any, count: int) -> list[Any]:
        """What a deserializer of Confluent's makes of the messages."""
        settings = {"bootstrap.servers": self.node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe([self.topic])
        context = SerializationContext(self.topic, MessageField.VALUE)
        values: list[Any] = []
        while len(values) < count:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            values.append(deserializer(message.value(), context))
        consumer.close()
        return values

    def pulled(self) -> list[dict[str, Any]]:
        """The rows as YT's client reads them, without their places; both forms must be the same."""
        pulled = [dict(row) for row in self.yt.pull_queue(self.path, offset=0, partition_index=0)]
        selected = [dict(row) for row in self.yt.select_rows(f"* from [{self.path}]")]
        columns = [column["name"] for column in COLUMNS]
        assert [[row[name] for name in columns] for row in pulled] == [[row[name] for name in columns] for row in selected]
        return [{name: value for name, value in row.items() if name not in ("$tablet_index", "$row_index")} for row in pulled]


@pytest.fixture
def registry(url: str) -> Any:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def test_rows_and_messages_with_a_json_schema(node: RunningNode, registry: SchemaRegistryClient) -> None:
    queue = CheckedQueue(node, registry, "json_rows")
    first, second = {"n": 1, "s": "one", "d": 0.5}, {"n": 2, "s": None, "d": None}
    queue.push(first, {"n": 2})
    version = registry.get_latest_version(f"{queue.topic}-value")
    assert version.schema.schema_type == "JSON"
    third = {"n": 3, "s": "three", "d": 3.0}
    queue.produce(JSONSerializer(version.schema, registry, conf={"auto.register.schemas": False}), third)
    assert queue.consumed(JSONDeserializer(None, schema_registry_client=registry), 3) == [first, {"n": 2}, third]
    assert queue.pulled() == [first, second, third]
    wider = json.dumps({"type": "object", "properties": {"n": {"type": "string"}}})
    with pytest.raises(SchemaRegistryError, match="incompatible"):
        registry.register_schema(f"{queue.topic}-value", Schema(wider, "JSON"))


def test_rows_and_messages_in_avro(node: RunningNode, registry: SchemaRegistryClient) -> None:
    queue = CheckedQueue(node, registry, "avro_rows")
    fields = [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"], "default": None}]
    text = json.dumps({"type": "record", "name": "Row", "fields": fields})
    queue.produce(AvroSerializer(registry, text), {"n": 1, "s": "one"})
    queue.push({"n": 2, "s": "two", "d": 0.25})
    versions = registry.get_versions(f"{queue.topic}-value")
    assert versions == [1, 2], "the schema of the queue follows that of the producer"
    one, two = {"n": 1, "s": "one", "d": None}, {"n": 2, "s": "two", "d": 0.25}
    latest = registry.get_latest_version(f"{queue.topic}-value").schema.schema_str
    assert queue.consumed(AvroDeserializer(registry, latest), 2) == [one, two]
    assert queue.pulled() == [one, two]
    with pytest.raises(yt.wrapper.YtResponseError, match="Required column"):
        queue.push({"s": "no number"})


def test_messages_that_are_not_rows_of_the_queue_are_told_apart(node: RunningNode, registry: SchemaRegistryClient) -> None:
    queue = CheckedQueue(node, registry, "other_rows")
    registry.set_compatibility(f"{queue.topic}-value", "NONE")
    other = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "n", "type": "string"}]})
    queue.produce(AvroSerializer(registry, other), {"n": "text"})
    (row,) = queue.pulled()
    assert (row["n"], row["s"]) == (None, None)
    assert "expected an integer" in row["$error"]


def test_messages_of_ydb_are_held_to_the_same_subject(node: RunningNode, registry: SchemaRegistryClient) -> None:
    queue = CheckedQueue(node, registry, "ydb_rows")
    queue.push({"n": 1})
    version = registry.get_latest_version(f"{queue.topic}-value")
    serializer = JSONSerializer(version.schema, registry, conf={"auto.register.schemas": False})
    raw = serializer({"n": 2, "s": "two"}, SerializationContext(queue.topic, MessageField.VALUE))
    with connected(node) as driver:
        client = driver.topic_client
        with client.writer(queue.topic, producer_id="p") as writer:
            writer.write_with_ack(raw)
        with pytest.raises((ydb.Error, TimeoutError)), client.writer(queue.topic, producer_id="q") as writer:
            writer.write_with_ack(b"plain", timeout=20)
        client.alter_topic(queue.topic, add_consumers=["reader"])
        messages = read_all(client, queue.topic, "reader", 2)
    assert bytes(messages[1].data) == raw
    assert queue.consumed(JSONDeserializer(None, schema_registry_client=registry), 2) == [{"n": 1}, {"n": 2, "s": "two"}]
    assert [row["n"] for row in queue.pulled()] == [1, 2]
