"""Connections that misbehave: whatever one sends, the broker stays up and serves the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker import BrokerOptions
from penstock.gateway.kafka import KafkaOptions
from penstock.kafka.protocol import APIS, errors, keys
from penstock.kafka.protocol.cluster import ApiVersionsRequest, ApiVersionsResponse
from penstock.kafka.protocol.fetch import FetchResponse
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataResponse
from penstock.kafka.protocol.produce import ProduceResponse
from penstock.kafka.protocol.share_groups import ShareFetchRequest
from tests.e2e.kafka.gateway_cluster import NODES
from tests.e2e.kafka.raw_client import RawClient, fetch_request, frame_of, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_produce import batch_of

_numbers = count()


@pytest.fixture
def witness(gateway: RunningGateway) -> Iterator[RawClient]:
    """A connection that was there before the trouble and must not notice it."""
    with RawClient(gateway.port) as client:
        yield client
        assert is_served(client)


def is_served(client: RawClient) -> bool:
    response = client.call(keys.METADATA, 9, MetadataRequest(topics=[]), MetadataResponse)
    return len(response.brokers) == NODES


def hangs_up(client: RawClient) -> bool:
    try:
        while client.receive_frame() is not None:
            pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("version", range(5))
def test_what_is_served_is_advertised(client: RawClient, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = client.call(keys.API_VERSIONS, version, request, ApiVersionsResponse)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert ranges[keys.PRODUCE] == (0, 13)
    assert ranges[keys.FETCH] == (4, 18)
    assert keys.SHARE_FETCH not in ranges
    assert all(ranges[key][1] == APIS[key].max_version for key in ranges)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: RawClient) -> None:
    client.socket.sendall(pack(">ihhih", 10, keys.API_VERSIONS, 99, 5, -1))
    correlation_id, response = client.receive(keys.API_VERSIONS, 0, ApiVersionsResponse)
    assert (correlation_id, response.error_code) == (5, errors.UNSUPPORTED_VERSION)
    assert {one.api_key for one in response.api_keys} >= {keys.API_VERSIONS, keys.PRODUCE}
    assert is_served(client)


@pytest.mark.parametrize(
    "frame",
    [
        pack(">i", 0),
        pack(">i", -1),
        pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        pack(">i", 1) + b"x",
        pack(">ihhih", 10, keys.PRODUCE, 0, 1, -1),
        pack(">ihhih", 10, 999, 0, 1, -1),
        pack(">ihhih", 10, keys.METADATA, 9, 1, 30_000),
        pack(">ihhihi", 14, keys.METADATA, 1, 1, -1, 2**31 - 1),
        frame_of(keys.SHARE_FETCH, 1, ShareFetchRequest()),
    ],
    ids=[
        "size 0",
        "negative size",
        "huge size",
        "HTTP",
        "TLS",
        "no header",
        "old produce",
        "unknown api",
        "long client id",
        "huge array",
        "not served",
    ],
)
def test_what_cannot_be_understood_closes_the_connection(witness: RawClient, client: RawClient, frame: bytes) -> None:
    client.socket.sendall(frame)
    assert hangs_up(client)


def test_requests_before_a_bad_one_are_answered(witness: RawClient, client: RawClient, topic: str) -> None:
    client.send(keys.PRODUCE, 9, produce_request(topic, batch_of(b"a")))
    client.socket.sendall(pack(">i", -5))
    _, response = client.receive(keys.PRODUCE, 9, ProduceResponse)
    assert response.responses[0].partition_responses[0].base_offset == 0
    assert client.receive_frame() is None


def test_a_client_that_closes_its_side_is_still_answered(witness: RawClient, client: RawClient, topic: str) -> None:
    client.send(keys.PRODUCE, 9, produce_request(topic, batch_of(b"last words")))
    client.socket.shutdown(socket.SHUT_WR)
    client.receive(keys.PRODUCE, 9, ProduceResponse)
    assert client.receive_frame() is None


def test_a_frame_may_come_byte_by_byte(witness: RawClient, client: RawClient) -> None:
    for byte in frame_of(keys.METADATA, 9, MetadataRequest(topics=[])):
        client.socket.sendall(bytes([byte]))
    client.receive(keys.METADATA, 9, MetadataResponse)


def test_a_frame_may_be_large(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    size = 40 << 20
    config = gateway.broker.catalog.topic(topic).config.changed({"max.message.bytes": str(64 << 20)})
    gateway.run(gateway.broker.configure_topic(topic, config))
    assert client.produce(topic, batch_of(bytes(size))).base_offset == 0
    data = client.fetch(topic, 0, max_bytes=1)
    assert isinstance(data.records, memoryview)
    assert len(data.records) > size


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(min_size=1, max_size=300))
def test_random_bytes_do_no_harm(gateway: RunningGateway, witness: RawClient, noise: bytes) -> None:
    with RawClient(gateway.port) as client:
        client.socket.sendall(noise)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.tuples(st.sampled_from(sorted(APIS)), st.integers(0, 20)), noise=st.binary(max_size=200))
def test_random_bodies_do_no_harm(gateway: RunningGateway, witness: RawClient, header: tuple[int, int], noise: bytes) -> None:
    body = pack(">hhih", *header, 1, -1) + noise
    with RawClient(gateway.port) as client:
        client.socket.sendall(pack(">i", len(body)) + body)
        client.socket.shutdown(socket.SHUT_WR)
        hangs_up(client)


def test_mutated_requests_do_no_harm(gateway: RunningGateway, witness: RawClient, topic: str) -> None:
    random = Random(1)
    frames = [
        frame_of(keys.PRODUCE, 9, produce_request(topic, batch_of(b"value" * 20))),
        frame_of(keys.FETCH, 12, fetch_request(topic, 0)),
        frame_of(keys.METADATA, 12, MetadataRequest(topics=None)),
    ]
    for _ in range(300):
        mutated = bytearray(random.choice(frames))
        for _ in range(random.randint(1, 6)):
            mutated[random.randrange(4, len(mutated))] = random.randrange(256)
        cut = random.choice([len(mutated), random.randrange(len(mutated))])
        with RawClient(gateway.port) as client:
            client.socket.sendall(mutated[:cut])
            client.socket.shutdown(socket.SHUT_WR)
            hangs_up(client)


def test_clients_that_vanish_are_forgotten(gateway: RunningGateway, witness: RawClient, topic: str) -> None:
    clients = [RawClient(gateway.port) for _ in range(50)]
    for client in clients:
        client.send(keys.FETCH, 11, fetch_request(topic, 0, max_wait_ms=60_000))
        client.socket.sendall(frame_of(keys.METADATA, 9, MetadataRequest(topics=[]))[:9])
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        client.socket.close()
    deadline = time.monotonic() + 10
    while gateway.gateway.connections > 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gateway.gateway.connections <= 2


def send_until_refused(client: RawClient, frame: bytes) -> int:
    """Send one frame again and again until the broker takes no more; how many it took."""
    client.socket.settimeout(2)
    for sent in range(1_000_000):
        try:
            client.socket.sendall(frame)
        except TimeoutError:
            return sent
    pytest.fail("the broker takes requests without end")


def test_a_client_that_does_not_read_is_not_read_from(tmp_path: Path) -> None:
    options = KafkaOptions(connection_bytes_max=1 << 20)
    with RunningGateway(tmp_path, options=options) as gateway, RawClient(gateway.port) as producer:
        gateway.create_topic("unread")
        for _ in range(20):
            producer.produce("unread", batch_of(bytes(500_000)))
        with RawClient(gateway.port) as lazy:
            request = frame_of(keys.FETCH, 11, fetch_request("unread", 0, max_bytes=10 << 20))
            sent = send_until_refused(lazy, request)
            assert is_served(producer)
            lazy.socket.settimeout(20)
            for _ in range(min(sent, 50)):
                _, response = lazy.receive(keys.FETCH, 11, FetchResponse)
                assert response.responses[0].partitions[0].error_code == errors.NONE


def test_idle_and_unfinished_connections_are_closed(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, options=KafkaOptions(idle_timeout_s=0.5)) as gateway:
        with RawClient(gateway.port) as idle, RawClient(gateway.port) as half:
            half.socket.sendall(b"\0\0")
            assert idle.receive_frame() is None
            assert half.receive_frame() is None
        gateway.create_topic("patient")
        with RawClient(gateway.port) as waiting:
            assert waiting.fetch("patient", 0, max_wait_ms=1500).error_code == errors.NONE


def test_a_frame_larger_than_allowed_is_refused(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, options=KafkaOptions(frame_bytes_max=1000)) as gateway:
        with RawClient(gateway.port) as client:
            client.socket.sendall(pack(">i", 1001))
            assert client.receive_frame() is None
        with RawClient(gateway.port) as client:
            assert is_served(client)


def test_too_many_connections_are_refused(tmp_path: Path) -> None:
    with (
        RunningGateway(tmp_path, options=KafkaOptions(connections_max=2)) as gateway,
        RawClient(gateway.port) as first,
        RawClient(gateway.port) as second,
    ):
        assert is_served(first)
        assert is_served(second)
        with RawClient(gateway.port) as third:
            assert third.receive_frame() is None
        assert is_served(first)


def test_memory_of_all_connections_is_bounded(tmp_path: Path) -> None:
    """Each announces a frame as large as all may have together; they are read one after another."""
    options = KafkaOptions(memory_bytes_max=8 << 20)
    with RunningGateway(tmp_path, options=options) as gateway:
        topic = gateway.create_topic("narrow")
        gateway.run(gateway.broker.configure_topic("narrow", topic.config.changed({"max.message.bytes": str(16 << 20)})))
        frame = frame_of(keys.PRODUCE, 9, produce_request("narrow", batch_of(bytes(8 << 20))))
        clients = [RawClient(gateway.port) for _ in range(6)]
        for client in clients:
            client.socket.sendall(frame[: 64 << 10])
        time.sleep(0.3)
        for client in clients:
            client.socket.sendall(frame[64 << 10 :])
            _, response = client.receive(keys.PRODUCE, 9, ProduceResponse)
            assert response.responses[0].partition_responses[0].error_code == errors.NONE
            client.socket.close()


def test_stopping_answers_requests_in_flight(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, nodes=1) as gateway:
        gateway.create_topic("ending")
        clients = [RawClient(gateway.port) for _ in range(3)]
        clients[0].send(keys.FETCH, 11, fetch_request("ending", 0, max_wait_ms=60_000))
        for _ in range(50):
            clients[1].send(keys.PRODUCE, 9, produce_request("ending", batch_of(bytes(1000))))
        time.sleep(0.1)
        started = time.monotonic()
        gateway.run(gateway.gateway.stop())
        assert time.monotonic() - started < 5
        clients[0].receive(keys.FETCH, 11, FetchResponse)
        for _ in range(50):
            clients[1].receive(keys.PRODUCE, 9, ProduceResponse)
        for client in clients:
            assert client.receive_frame() is None
            client.socket.close()


@pytest.mark.parametrize("api", ["produce", "fetch"])
def test_a_client_over_its_quota_is_told_and_throttled(tmp_path: Path, api: str) -> None:
    limits = BrokerOptions(produce_bytes_per_s=100_000) if api == "produce" else BrokerOptions(fetch_bytes_per_s=100_000)
    with RunningGateway(tmp_path, broker_options=limits) as gateway, RawClient(gateway.port) as client:
        gateway.create_topic("limited")
        started = time.monotonic()
        throttled = 0
        for _ in range(4):
            response = client.call(keys.PRODUCE, 9, produce_request("limited", batch_of(bytes(40_000))), ProduceResponse)
            throttled += response.throttle_time_ms
        if api == "fetch":
            for _ in range(4):
                fetched = client.call(keys.FETCH, 11, fetch_request("limited", 0), FetchResponse)
                throttled += fetched.throttle_time_ms
        assert throttled > 300
        assert is_served(client)
        assert time.monotonic() - started > 0.3
