"""Which data comes with a message: one rule for what stream clients and Kafka clients have written, over gRPC and HTTP."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer

from penstock import minitoolstream as protos
from penstock.core.checksum import crc32c
from tests.e2e.running_node import RunningNode, penstock, running_node
from tests.e2e.stream.stream_client import StreamClient

MB = 1_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    base = tmp_path_factory.mktemp("inline")
    argv = ["--stream-port", "0", "--stream-http-port", "0", "--data-dir", str(base / "data")]
    with running_node(base / "log", argv) as running:
        yield running


@pytest.fixture
def client(node: RunningNode) -> Iterator[StreamClient]:
    with StreamClient(_address(node)) as made:
        yield made


def _address(node: RunningNode) -> str:
    return f"127.0.0.1:{node.ready['listeners']['stream']['port']}"


def _produce(node: RunningNode, topic: str, value: bytes, headers: dict[str, bytes] | None = None) -> None:
    node.ok("topic", "create", topic, "--partitions", "1", "--config", "max.message.bytes=30000000")
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.max.bytes": 30 * MB})
    producer.produce(topic, value, headers=list((headers or {}).items()))
    assert producer.flush(60) == 0


def _fetch(node: RunningNode, subject: str, inline: int | None) -> list[Any]:
    """As a client with gRPC's own limits, which are 4 MiB for a message."""
    metadata = [] if inline is None else [("penstock-inline-bytes", str(inline))]
    with grpc.insecure_channel(_address(node)) as channel:
        call = channel.unary_stream(
            f"/{protos.PACKAGE}.EgressService/Fetch",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=protos.Message.FromString,
        )
        request = protos.FetchRequest(subject=subject, durable_name="worker", batch_size=10)
        return list(call(request, timeout=60, metadata=metadata))


def test_data_up_to_ten_mebibytes_comes_with_its_message(client: StreamClient) -> None:
    small, large, too_large = b"s" * 2 * MB, b"l" * 10 * MB, b"t" * 11 * MB
    for data in (small, large, too_large):
        client.publish("inline", data, {"content-type": "x"})
    for found in (client.fetch("inline", "worker"), list(client.read("inline"))):
        assert [one.data for one in found] == [small, large, b""]
        assert [dict(one.headers) for one in found[:2]] == [{"content-type": "x"}] * 2
        headers = found[2].headers
        assert (headers["content-type"], headers["penstock.size"]) == ("x", str(len(too_large)))
        assert headers["penstock.crc32c"] == f"{crc32c(too_large):08x}"
    assert b"".join(client.download(found[2].sequence)) == too_large


def test_a_client_with_the_limits_of_grpc_asks_for_less(node: RunningNode, client: StreamClient) -> None:
    value = bytes(range(250)) * 24_000  # 6 MB
    _produce(node, "kafka-large", value)
    sequence = client.publish("kafka-large", b"small").sequence
    first, second = _fetch(node, "kafka-large", 4 * MB)
    assert (first.data, second.data, second.sequence) == (b"", b"small", sequence)
    assert first.headers["penstock.size"] == str(len(value))
    assert first.headers["penstock.crc32c"] == f"{crc32c(value):08x}"
    assert b"".join(client.download(first.sequence)) == value
    assert client.fetch("kafka-large", "worker")[0].data == value
    with pytest.raises(grpc.RpcError) as caught:
        _fetch(node, "kafka-large", None)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, "it is told, not left out"


def test_a_limit_is_a_number(node: RunningNode) -> None:
    with grpc.insecure_channel(_address(node)) as channel:
        call = channel.unary_stream(
            f"/{protos.PACKAGE}.EgressService/Read",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=protos.Message.FromString,
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(call(protos.ReadRequest(subject="inline"), timeout=60, metadata=[("penstock-inline-bytes", "much")]))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_headers_of_kafka_that_are_too_large_do_not_break_a_reader(node: RunningNode) -> None:
    _produce(node, "kafka-headers", b"v", {"huge": b"h" * 5 * MB, "small": b"s"})
    (message,) = _fetch(node, "kafka-headers", 4 * MB)
    assert (message.data, dict(message.headers)) == (b"v", {"small": "s", "penstock.headers_left_out": "1"})


def test_http_has_the_same_rule(node: RunningNode, client: StreamClient) -> None:
    data = "й" * MB
    sequence = client.publish("by-http", data.encode()).sequence
    (whole,) = _lines(node, "/streams/by-http", {})
    assert whole["data"] == data
    for path in ("/streams/by-http", "/streams/by-http/consumers/worker"):
        (shown,) = _lines(node, path, {"Penstock-Inline-Bytes": "1000"})
        assert "data" not in shown
        assert (shown["sequence"], shown["size"]) == (sequence, 2 * MB)
        assert shown["headers"]["penstock.size"] == str(2 * MB)


def test_the_first_read_over_http_of_a_topic_made_by_kafka_is_complete(node: RunningNode) -> None:
    for topic, path in (("first-read", "/streams/first-read"), ("first-fetch", "/streams/first-fetch/consumers/worker")):
        node.ok("topic", "create", topic, "--partitions", "1")
        node.ok("produce", topic, stdin=b"1\n2\n")
        assert [line["data"] for line in _lines(node, path, {})] == ["1", "2"]


def _lines(node: RunningNode, path: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", node.ready["listeners"]["stream_http"]["port"], timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        assert response.status == 200
        return [json.loads(line) for line in response.read().splitlines()]
    finally:
        connection.close()


def test_the_command_shows_what_fits_a_terminal(node: RunningNode, client: StreamClient) -> None:
    client.publish("shown", b"x" * 3 * MB)
    done = penstock("stream", "fetch", "shown", variables={"PENSTOCK_STREAM": _address(node)})
    assert b"<3000000 bytes; penstock stream download>" in done.stdout


def test_a_number_that_no_sequence_can_be_is_refused(node: RunningNode) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.ready["listeners"]["stream_http"]["port"], timeout=30)
    try:
        for path in ("/streams/x/" + "9" * 5000, "/streams/x?from=%C2%B2", "/streams/x?limit=" + "9" * 5000):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            assert response.status == 400, path[:40]
    finally:
        connection.close()


def test_odd_times_and_headers_break_neither_a_reader_nor_the_listener(node: RunningNode) -> None:
    anything = ("--config", "retention.ms=-1", "--config", f"message.timestamp.after.max.ms={(1 << 63) - 1}")
    node.ok("topic", "create", "odd-times", "--partitions", "1", *anything)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for timestamp in (1, (1 << 62)):
        producer.produce("odd-times", b"x", timestamp=timestamp)
    assert producer.flush(60) == 0
    done = penstock("stream", "fetch", "odd-times", "-o", "json", variables={"PENSTOCK_STREAM": _address(node)})
    assert [json.loads(line)["timestamp"][:4] for line in done.stdout.splitlines()] == ["1970", "9999"], done.stderr
    with socket.create_connection(("127.0.0.1", node.ready["listeners"]["stream_http"]["port"]), timeout=30) as raw:
        raw.sendall(b"POST /streams/odd HTTP/1.1\r\nHost: localhost\r\nPenstock-Header-X: \xff\r\nContent-Length: 1\r\n\r\nx")
        assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
