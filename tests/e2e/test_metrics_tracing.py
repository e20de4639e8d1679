"""Traces of a real node: spans for real clients' requests, in the traces that they named, and traces that go on with messages."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
import ydb
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock import minitoolstream as protos
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.ydb.ydb_node import connected
from tests.otlp_receiver import Receiver, attributes_of, otlp_receiver

WAIT_S = 20.0
ROWS = [{"name": "data", "type": "string"}]


def traceparent(number: int) -> str:
    """A trace of its own for each client."""
    return f"00-{number:032x}-{number:016x}-01"


def trace_of(header: str) -> int:
    return int(header.split("-")[1], 16)


def address(node: RunningNode, listener: str) -> str:
    found = node.ready["listeners"][listener]
    return f"{found['host']}:{found['port']}"


def http(node: RunningNode, listener: str, path: str, headers: dict[str, str], *, body: bytes = b"", method: str) -> bytes:
    request = urllib.request.Request(f"http://{address(node, listener)}{path}", body or None, headers, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return bytes(answer.read())


def yt(node: RunningNode, command: str, parameters: dict[str, Any], *, rows: bytes = b"", trace: str = "") -> None:
    """A command of the YT API, with its parameters in a header."""
    headers = {"X-YT-Header-Format": "json", "X-YT-Parameters": json.dumps(parameters), "Content-Type": "application/json"}
    if trace:
        headers["traceparent"] = trace
    http(node, "yt", f"/api/v4/{command}", headers, body=rows, method="PUT" if rows else "POST")


def stored_trace(node: RunningNode, topic: str) -> int:
    """The trace in the headers of the first message of a topic, as a Kafka client reads it."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "any"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(WAIT_S)
        assert message is not None
        headers: dict[str, Any] = dict(message.headers() or ())
        return trace_of(headers["traceparent"].decode())
    finally:
        consumer.close()


def publish_by_kafka(node: RunningNode) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": "zstd"})
    producer.produce("by-kafka", b"x" * 1000, headers=[("traceparent", traceparent(1).encode())])
    assert producer.flush(WAIT_S) == 0


def publish_by_stream(node: RunningNode) -> None:
    with grpc.insecure_channel(address(node, "stream")) as channel:
        call = channel.unary_unary(
            f"/{protos.PACKAGE}.IngressService/Publish",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=protos.PublishResponse.FromString,
        )
        request = protos.PublishRequest(subject="by-stream", data=b"payload")
        call(request, timeout=WAIT_S, metadata=(("traceparent", traceparent(2)),))
    http(node, "stream_http", "/streams/by-stream-http", {"traceparent": traceparent(3)}, body=b"payload", method="POST")


def publish_by_yt(node: RunningNode) -> None:
    yt(node, "create", {"path": "//tmp/rows", "type": "table", "attributes": {"dynamic": True, "schema": ROWS}})
    yt(node, "mount_table", {"path": "//tmp/rows"})
    yt(node, "insert_rows", {"path": "//tmp/rows", "input_format": "json"}, rows=b'{"data": "row"}\n', trace=traceparent(4))


def publish_by_ydb(node: RunningNode) -> None:
    with connected(node) as driver:
        driver.topic_client.create_topic("/local/by-ydb")
        with driver.topic_client.writer("/local/by-ydb") as writer:
            writer.write(ydb.TopicWriterMessage(b"payload", metadata_items={"traceparent": traceparent(5)}))
            writer.flush()


def spans_by_trace(receiver: Receiver) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for span in receiver.spans():
        found.setdefault(int(span.trace_id.hex(), 16), []).append(span.name)
        assert attributes_of(span)["penstock.outcome"]
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_traces_of_all_gateways_reach_the_collector_and_go_on_with_messages(tmp_path: Path) -> None:
    ports = [word for name in ("http", "yt", "ydb", "stream", "stream-http") for word in (f"--{name}-port", "0")]
    with otlp_receiver() as (receiver, endpoint):
        argv = ["--data-dir", str(tmp_path / "data"), *ports, "--otel-endpoint", endpoint, "--log-format", "json"]
        with running_node(tmp_path / "log", argv) as node:
            publish_by_kafka(node)
            publish_by_stream(node)
            publish_by_yt(node)
            publish_by_ydb(node)
            http(node, "http", "/api/v1/topics", {"traceparent": traceparent(6)}, method="GET")
            for number, topic in enumerate(("by-kafka", "by-stream", "by-stream-http", "tmp.rows", "by-ydb"), start=1):
                assert stored_trace(node, topic) == number, topic
            assert node.stop() == 0
        found = spans_by_trace(receiver)
    assert found[1] == ["kafka Produce"]
    assert found[2] == ["stream Publish"]
    assert found[3] == ["stream POST /streams/{subject}"]
    assert found[4] == ["yt insert_rows"]
    assert found[5] == ["ydb StreamWrite"]
    assert found[6] == ["http GET /api/v1/topics"]
    assert any("kafka Fetch" in names for names in found.values())
    lines = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert {line["level"] for line in lines} <= {"info", "warning"}


def test_a_node_that_cannot_reach_its_collector_serves_all_the_same(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--otel-endpoint", "http://127.0.0.1:9", "--drain-timeout-s", "1"]
    with running_node(tmp_path / "log", argv) as node:
        publish_by_kafka(node)
        assert stored_trace(node, "by-kafka") == 1
        assert node.stop() == 0
