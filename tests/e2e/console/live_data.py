"""A node with something to look at: topics of several kinds, consumers that keep up and one that does not, a subject, a pipeline
that reports, and a producer that goes on meanwhile. All of it is real: written and read by clients."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yt.wrapper
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.e2e.running_node import RunningNode, running_node

ORDERS = 60
BIG_NUMBER = 9_007_199_254_740_993  # one more than a float can hold exactly
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "orders": (3, {}),
    "readings": (1, {"retention.ms": "3600000"}),
    "users": (1, {"cleanup.policy": "compact"}),
    "notes": (1, {}),
    "invoices": (1, {"penstock.schema.validation": "full"}),
    "empty-topic": (2, {}),
    "__penstock_pipelines": (1, {"cleanup.policy": "compact"}),
}


def base_url(node: RunningNode) -> str:
    """Where its console is."""
    http = node.ready["listeners"]["http"]
    return f"http://{http['host']}:{http['port']}"


@contextmanager
def node_with_data(path: Path) -> Iterator[RunningNode]:
    """A node on eight disks with data in it, to which more is written until the end."""
    argv = ["--data-dir", str(path / "data"), "--http-port", "0", "--erasure", "block-4-2", "--durability", "os"]
    with running_node(
        path / "log", [*argv, "--stream-port", "0", "--yt-port", "0", "--group-initial-rebalance-delay-ms", "0"]
    ) as node:
        fill(node)
        with trickle(node.bootstrap), readers(node.bootstrap):
            yield node


def fill(node: RunningNode) -> None:
    """Topics with messages of every kind, a group that has stopped half-way, a queue of YT, a subject, a pipeline."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    new = [NewTopic(name, partitions, 1, config=config) for name, (partitions, config) in TOPICS.items()]
    for made in admin.create_topics(new).values():
        made.result()
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(ORDERS):
        producer.produce(
            "orders", json.dumps(order(number)), key=f"order-{number}", headers=[("source", b"web"), ("number", b"7")]
        )
    for number in range(20):
        producer.produce("readings", bytes([0, 255, number, 10]) * 8)
        producer.produce("users", json.dumps({"visits": number}), key=f"user-{number % 4}")
    producer.produce("notes", "plain words, всё хорошо")
    producer.produce("notes", "x" * 20_000)
    producer.produce("notes", None, key="gone")
    producer.produce("__penstock_pipelines", json.dumps(pipeline()), key="orders-to-lake")
    assert producer.flush(30) == 0
    read_some(node.bootstrap, "stopped-group", ORDERS // 2)
    register_vital(node)
    send_invoices(node)
    address = "{host}:{port}".format(**node.ready["listeners"]["stream"])
    node.ok("stream", "publish", "sensors.kitchen", "--stream", address, stdin=b"one\ntwo\nthree\n")
    node.ok("stream", "fetch", "sensors.kitchen", "--durable", "mobile", "--ack", "-n", "2", "--stream", address)


def invoice_schema(*more: dict[str, Any]) -> str:
    """A version of the schema of invoices."""
    fields = [{"name": "number", "type": "int"}, {"name": "customer", "type": "string"}, *more]
    return json.dumps({"type": "record", "name": "Invoice", "namespace": "shop", "fields": fields})


def send_invoices(node: RunningNode) -> None:
    """A subject of the schema registry with two versions, and messages in Avro."""
    versions = [invoice_schema(), invoice_schema({"name": "paid", "type": "boolean", "default": False})]
    with SchemaRegistryClient({"url": f"{base_url(node)}/schema-registry"}) as registry:
        for version in versions:
            registry.register_schema("invoices-value", Schema(version, "AVRO"))
        serialize = AvroSerializer(registry, versions[-1])
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(5):
            value = {"number": number, "customer": "anna", "paid": number % 2 == 0}
            producer.produce("invoices", serialize(value, SerializationContext("invoices", MessageField.VALUE)))
        assert producer.flush(60) == 0


def register_vital(node: RunningNode) -> None:
    """A YT queue with a vital consumer that has read half of it, and automatic trimming."""
    client = yt.wrapper.YtClient(proxy="http://{host}:{port}".format(**node.ready["listeners"]["yt"]))
    schema = [
        {"name": "data", "type": "string"},
        {"name": "$timestamp", "type": "uint64"},
        {"name": "$cumulative_data_weight", "type": "int64"},
    ]
    client.create("table", "//tmp/events", attributes={"dynamic": True, "schema": schema})
    client.mount_table("//tmp/events", sync=True)
    client.create("queue_consumer", "//tmp/reader")
    client.register_queue_consumer("//tmp/events", "//tmp/reader", vital=True)
    client.set("//tmp/events/@auto_trim_config", {"enable": True})
    client.insert_rows("//tmp/events", [{"data": str(number)} for number in range(10)])
    client.advance_consumer("//tmp/reader", "//tmp/events", partition_index=0, old_offset=0, new_offset=5)


def order(number: int) -> dict[str, Any]:
    """A message as shops write them."""
    return {
        "id": BIG_NUMBER + 2 * number,
        "customer": ("anna", "boris")[number % 2],
        "total": number * 1.5,
        "note": None,
        "paid": True,
    }


def pipeline(batches: int = 12) -> dict[str, Any]:
    """What the runner of a pipeline reports after some batches, as it writes it to the broker."""
    now_ms = time.time_ns() // 1_000_000
    wave = math.sin(batches / 7)
    return {
        "name": "orders-to-lake",
        "kind": "export",
        "state": "running",
        "run": "6f1c",
        "host": "worker-1",
        "pid": 4711,
        "user": "anna",
        "file": "orders.yaml",
        "source": "topic orders",
        "target": "delta table ./lake/orders",
        "plan": ["read orders", "one commit of rows and offsets a batch"],
        "trigger": "continuous",
        "started_ms": now_ms - 5000 * batches,
        "updated_ms": now_ms,
        "batches": batches,
        "rows_read": 100 * batches,
        "rows_written": 100 * batches - 4 - batches // 9,
        "dead_letters": 1 + batches // 9,
        "late_rows": 3,
        "rows_per_s": 99.5 + round(40 * wave),
        "last_batch_ms": 840 - round(300 * wave),
        "lag_rows": 30 - round(23 * wave),
        "last_error": "row 17 is not JSON",
        "spark_ui": None,
    }


def read_some(bootstrap: str, group: str, count: int) -> None:
    """Have a group read so many orders, commit, and leave."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    found = 0
    while found < count:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        found += 1
    consumer.commit(asynchronous=False)
    consumer.close()


@contextmanager
def trickle(bootstrap: str) -> Iterator[None]:
    """Write a few orders a second meanwhile, and report on the pipeline."""
    stop = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        number = ORDERS
        while not stop.wait(0.1):
            producer.produce("orders", json.dumps(order(number)), key=f"order-{number}")
            if number % 20 == 0:
                producer.produce("__penstock_pipelines", json.dumps(pipeline(number // 10)), key="orders-to-lake")
            producer.poll(0)
            number += 1
        producer.flush(10)

    writer = threading.Thread(target=write, name="trickle")
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@contextmanager
def readers(bootstrap: str) -> Iterator[None]:
    """A group with one member that keeps up."""
    stop = threading.Event()

    def read() -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "client.id": "billing-1",
        }
        consumer = Consumer({**settings, "auto.commit.interval.ms": 500})
        consumer.subscribe(["orders"])
        while not stop.is_set():
            consumer.poll(0.2)
        consumer.close()

    reader = threading.Thread(target=read, name="reader")
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()
