"""Streams over gRPC against a real node, as a client of MiniToolStream uses them, and as Kafka's clients see them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from penstock.core.checksum import crc32c
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.stream.stream_client import StreamClient

ARGV = ("--stream-port", "0")


def address_of(node: RunningNode) -> str:
    """Where the stream listener of a node is."""
    return f"127.0.0.1:{node.ready['listeners']['stream']['port']}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    base = tmp_path_factory.mktemp("stream")
    with running_node(base / "log", [*ARGV, "--data-dir", str(base / "data")]) as running:
        yield running


@pytest.fixture
def client(node: RunningNode) -> Iterator[StreamClient]:
    with StreamClient(address_of(node)) as made:
        yield made


def test_what_is_published_is_fetched_until_it_is_acknowledged(client: StreamClient) -> None:
    sent = [client.publish("orders", b"%d" % at, {"content-type": "text/plain"}) for at in range(5)]
    assert [one.sequence for one in sent] == sorted({one.sequence for one in sent})
    fetched = client.fetch("orders", "worker")
    assert [(one.sequence, one.data) for one in fetched] == [(one.sequence, b"%d" % at) for at, one in enumerate(sent)]
    assert fetched[0].headers["content-type"] == "text/plain"
    assert abs(fetched[0].timestamp.seconds - time.time()) < 60
    assert client.fetch("orders", "worker") == fetched
    assert client.ack("worker", "orders", sent[2].sequence)
    assert [one.sequence for one in client.fetch("orders", "worker")] == [one.sequence for one in sent[3:]]
    assert client.last_sequence("orders") == sent[-1].sequence
    assert client.consumers("orders") == [("worker", sent[2].sequence)]


def test_an_empty_payload_is_a_message_like_others(client: StreamClient) -> None:
    sequence = client.publish("empty", b"").sequence
    after = client.publish("empty", b"next").sequence
    assert [(one.sequence, one.data) for one in client.fetch("empty", "reader")] == [(sequence, b""), (after, b"next")]


def test_an_acknowledgement_moves_back_only_when_asked(client: StreamClient) -> None:
    first, second = (client.publish("acks", b"x").sequence for _ in range(2))
    client.ack("reader", "acks", second)
    client.ack("reader", "acks", first)
    assert client.fetch("acks", "reader") == []
    client.ack("reader", "acks", 0, rewind=True)
    assert [one.sequence for one in client.fetch("acks", "reader")] == [first, second]


def test_a_subscriber_is_told_of_what_comes(client: StreamClient) -> None:
    first = client.publish("news", b"1").sequence
    told = client.subscribe("news")
    assert next(told).sequence == first
    second = client.publish("news", b"2").sequence
    assert next(told).sequence == second
    told.cancel()


def test_one_can_subscribe_to_what_is_not_there_yet(client: StreamClient) -> None:
    told = client.subscribe("later", start_sequence=1)
    sequence = client.publish("later", b"1").sequence
    assert next(told).sequence == sequence
    told.cancel()


def test_one_can_follow_what_is_not_there_yet(client: StreamClient) -> None:
    messages = client.read("much.later", follow=True, limit=1)
    sequence = client.publish("much.later", b"1").sequence
    assert [(one.sequence, one.data) for one in messages] == [(sequence, b"1")]


def test_a_batch_is_published_in_order(client: StreamClient) -> None:
    results = client.publish_batch([("batch.a", b"1"), ("batch.b", b"2"), ("batch.a", b"3")])
    assert [one.error_message for one in results] == ["", "", ""]
    assert [one.data for one in client.read("batch.a")] == [b"1", b"3"]
    assert [one.subject for one in client.read("batch.*")] == ["batch.a", "batch.a", "batch.b"]


def test_a_wrong_message_of_a_batch_has_its_own_status(client: StreamClient) -> None:
    good, bad = client.publish_batch([("fine", b"1"), ("not/fine", b"2")])
    assert good.sequence > 0
    assert bad.status_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "not/fine" in bad.error_message


def test_a_large_payload_goes_up_and_down_in_parts(client: StreamClient) -> None:
    data = os.urandom(11 << 20)
    chunks = [data[at : at + 700_001] for at in range(0, len(data), 700_001)]
    published = client.upload("files", chunks, size=len(data), crc32c=crc32c(data), headers={"name": "a.bin"})
    (message,) = client.read("files")
    assert (message.sequence, message.data, message.headers["name"]) == (published.sequence, b"", "a.bin")
    assert message.headers["penstock.size"] == str(len(data))
    assert message.headers["penstock.object_name"] == published.object_name
    assert b"".join(client.download(published.sequence)) == data
    assert b"".join(client.download(published.sequence, offset=4194300, length=10)) == data[4194300:4194310]


def test_a_large_payload_can_be_published_with_one_call(client: StreamClient) -> None:
    data = os.urandom(3 << 20)
    sequence = client.publish("pictures", data).sequence
    assert b"".join(client.download(sequence)) == data


def test_an_upload_that_is_not_as_announced_leaves_nothing(client: StreamClient) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.upload("broken", [b"abc"], crc32c=1)
    assert caught.value.code() is grpc.StatusCode.DATA_LOSS
    assert client.last_sequence("broken") == 0


def test_errors_have_a_status_and_a_code(client: StreamClient) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.fetch("nowhere", "reader")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert dict(caught.value.trailing_metadata())["penstock-error"] == "unknown_topic"
    with pytest.raises(grpc.RpcError) as caught:
        client.ack("reader", "orders", 10**9)
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE


def test_kafka_and_stream_clients_read_each_other(client: StreamClient, node: RunningNode) -> None:
    first = client.publish("shared", b"from a stream").sequence
    assert node.ok("consume", "shared").strip() == "from a stream"
    node.ok("produce", "shared", stdin=b"from kafka\n")
    found = next(one for one in client.read("shared", first + 1, follow=True))
    assert (found.sequence > first, found.data) == (True, b"from kafka")


def test_health_and_reflection_answer(client: StreamClient) -> None:
    stub = health_pb2_grpc.HealthStub(client.channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service="minitoolstream.IngressService"), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    services = ProtoReflectionDescriptorDatabase(client.channel).get_services()
    assert {"minitoolstream.IngressService", "minitoolstream.EgressService"} <= set(services)


def test_sequences_go_on_after_kill_9(tmp_path: Path) -> None:
    argv = [*ARGV, "--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as first, StreamClient(address_of(first)) as client:
        sent = [client.publish("orders", b"%d" % at).sequence for at in range(10)]
        client.ack("worker", "orders", sent[4])
        first.kill()
    with running_node(tmp_path / "log", argv) as second, StreamClient(address_of(second)) as client:
        assert [one.sequence for one in client.fetch("orders", "worker")] == sent[5:]
        assert client.publish("orders", b"after").sequence > sent[-1]


def test_nothing_acknowledged_is_lost_by_kill_9_under_load(tmp_path: Path) -> None:
    argv = [*ARGV, "--data-dir", str(tmp_path / "data")]
    told: dict[int, bytes] = {}
    with running_node(tmp_path / "log", argv) as first, StreamClient(address_of(first)) as client:

        def publish(name: int) -> None:
            with contextlib.suppress(grpc.RpcError):  # the node is gone
                for at in range(10_000):
                    data = (b"%d/%d " % (name, at)) * (1 if at % 20 else 300_000)
                    told[client.publish(f"load.{name % 3}", data).sequence] = data

        with ThreadPoolExecutor(8) as pool:
            publishers = [pool.submit(publish, name) for name in range(8)]
            while len(told) < 150:
                time.sleep(0.01)
            first.kill()
            for publisher in publishers:
                publisher.result(60)
    with running_node(tmp_path / "log", argv) as second, StreamClient(address_of(second)) as client:
        found = {message.sequence: message for message in client.read("load.*")}
        assert told.keys() <= found.keys()
        for sequence, data in told.items():
            stored = found[sequence].data or b"".join(client.download(sequence))
            assert stored == data
        assert client.publish("load.0", b"after").sequence > max(found)


def test_calls_without_an_end_do_not_keep_a_node_from_stopping(tmp_path: Path) -> None:
    argv = [*ARGV, "--data-dir", str(tmp_path / "data"), "--drain-timeout-s", "60"]
    with running_node(tmp_path / "log", argv) as running, StreamClient(address_of(running)) as client:
        sequence = client.publish("news", b"1").sequence
        told, messages = client.subscribe("news"), client.read("news", follow=True)
        assert (next(told).sequence, next(messages).sequence) == (sequence, sequence)
        watches = [health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        assert [next(watch).status for watch in watches] == [health_pb2.HealthCheckResponse.SERVING] * 2
        asked: SimpleQueue[reflection_pb2.ServerReflectionRequest] = SimpleQueue()
        asked.put(reflection_pb2.ServerReflectionRequest(list_services=""))
        reflected = reflection_pb2_grpc.ServerReflectionStub(client.channel).ServerReflectionInfo(iter(asked.get, None))
        assert next(reflected).list_services_response.service
        assert running.stop() == 0
        for stream in (told, messages, reflected, *watches):
            with pytest.raises(grpc.RpcError) as caught:
                list(stream)  # a watch may hear first that nothing is served
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_topic_that_kafka_made_is_read_at_once_and_one_that_is_empty_stops_nothing(node: RunningNode) -> None:
    for topic in ("kafka.read", "kafka.fetch", "kafka.last", "kafka-emptied"):
        node.ok("topic", "create", topic, "--partitions", "1")
        node.ok("produce", topic, stdin=b"1\n2\n")
    node.ok("topic", "trim", "kafka-emptied", "--before", "latest", "--yes")
    with StreamClient(address_of(node)) as client:
        assert [message.data for message in client.read("kafka.read")] == [b"1", b"2"]
        assert [message.data for message in client.fetch("kafka.fetch", "worker")] == [b"1", b"2"]
        assert client.last_sequence("kafka.last") > 0
        for _ in range(2):
            assert client.last_sequence("kafka-emptied") == 0
            assert client.fetch("*", "worker") is not None
    assert node.ok("consume", "kafka.read") == "1\n2\n"
