"""Fetch: what is read, how long it waits, and sessions."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.broker import BrokerOptions
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataResponse
from penstock.testing.batches import values_of
from tests.e2e.kafka.raw_client import RawClient, fetch_request
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_produce import batch_of


def read(data: PartitionData) -> list[tuple[int, bytes]]:
    """Offsets and values of what was fetched."""
    assert isinstance(data.records, memoryview)
    return values_of(data.records)


@pytest.mark.parametrize("version", range(4, 13))
def test_what_was_produced_is_read(client: RawClient, topic: str, version: int) -> None:
    client.produce(topic, batch_of(b"a", b"b"))
    client.produce(topic, batch_of(b"c"))
    data = client.fetch(topic, 0, version=version)
    assert read(data) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)


@pytest.mark.parametrize("version", range(13, 19))
def test_topics_are_named_by_id_from_version_13_on(gateway: RunningGateway, client: RawClient, topic: str, version: int) -> None:
    client.produce(topic, batch_of(b"a"))
    topic_id = gateway.broker.catalog.topic(topic).id.bytes
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=[asked])])
    response = client.call(keys.FETCH, version, request, FetchResponse)
    assert response.responses[0].topic_id == topic_id
    assert read(response.responses[0].partitions[0]) == [(0, b"a")]


def test_an_unknown_topic_id_is_said_to_be_unknown(client: RawClient) -> None:
    request = FetchRequest(topics=[FetchTopic(topic_id=b"?" * 16, partitions=[FetchPartition(partition=0)])])
    response = client.call(keys.FETCH, 13, request, FetchResponse)
    assert response.responses[0].partitions[0].error_code == errors.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [-1, 4, 1000])
def test_an_offset_outside_the_partition_is_out_of_range(client: RawClient, topic: str, offset: int) -> None:
    client.produce(topic, batch_of(b"a", b"b", b"c"))
    assert client.fetch(topic, offset).error_code == errors.OFFSET_OUT_OF_RANGE


def test_a_trimmed_offset_is_out_of_range(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    for value in (b"a", b"b", b"c"):
        client.produce(topic, batch_of(value))
    partition = gateway.partition(topic)
    gateway.run(partition.trim(2))
    data = client.fetch(topic, 0)
    assert (data.error_code, data.log_start_offset) == (errors.OFFSET_OUT_OF_RANGE, 2)
    assert read(client.fetch(topic, 2)) == [(2, b"c")]


def test_an_unknown_topic_or_partition_is_said_to_be_unknown(client: RawClient, topic: str) -> None:
    assert client.fetch("never-created", 0).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    response = client.call(keys.FETCH, 11, fetch_request(topic, 0, partition=5), FetchResponse)
    assert response.responses[0].partitions[0].error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_at_least_one_batch_is_given_however_little_is_asked(client: RawClient, topic: str) -> None:
    client.produce(topic, batch_of(bytes(5000)))
    client.produce(topic, batch_of(b"b"))
    assert [offset for offset, _ in read(client.fetch(topic, 0, max_bytes=1))] == [0]


def test_no_more_is_given_than_asked(client: RawClient, topic: str) -> None:
    for _ in range(100):
        client.produce(topic, batch_of(bytes(10_000)))
    data = client.fetch(topic, 0, max_bytes=200_000)
    assert isinstance(data.records, memoryview)
    assert 100_000 <= len(data.records) <= 200_000


@pytest.mark.parametrize("is_cold", [False, True], ids=["from memory", "from files"])
def test_several_partitions_together_give_no_more_than_asked(tmp_path: Path, is_cold: bool) -> None:
    with RunningGateway(tmp_path, broker_options=BrokerOptions(cache_bytes=0 if is_cold else 64 << 20)) as gateway:
        gateway.create_topic("wide", 4)
        with RawClient(gateway.port) as client:
            for partition in range(1, 4):  # the first has nothing
                for _ in range(70):
                    client.produce("wide", batch_of(bytes(100_000)), partition=partition)
        partitions = [FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=150_000) for each in range(4)]
        with RawClient(gateway.port) as client:
            for max_bytes, expected in ((0, [0, 1, 0, 0]), (1, [0, 1, 0, 0]), (210_000, [0, 1, 1, 0]), (10**6, [0, 1, 1, 1])):
                topics = [FetchTopic(topic="wide", partitions=partitions)]
                request = FetchRequest(min_bytes=0, max_bytes=max_bytes, topics=topics)
                response = client.call(keys.FETCH, 11, request, FetchResponse)
                found = {one.partition_index: len(read(one)) for one in response.responses[0].partitions}
                assert [found[each] for each in range(4)] == expected


def test_it_waits_for_data(client: RawClient, gateway: RunningGateway, topic: str) -> None:
    with RawClient(gateway.port) as producer:
        later = threading.Timer(0.3, lambda: producer.produce(topic, batch_of(b"late")))
        later.start()
        started = time.monotonic()
        data = client.fetch(topic, 0, max_wait_ms=10_000)
        later.join()
    assert read(data) == [(0, b"late")]
    assert 0.2 < time.monotonic() - started < 5


def test_it_waits_no_longer_than_asked(client: RawClient, topic: str) -> None:
    started = time.monotonic()
    assert read(client.fetch(topic, 0, max_wait_ms=300)) == []
    assert 0.25 < time.monotonic() - started < 3


def test_it_waits_for_enough(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    client.send(keys.FETCH, 11, fetch_request(topic, 0, max_wait_ms=10_000, min_bytes=400))
    with RawClient(gateway.port) as producer:
        for _ in range(10):
            producer.produce(topic, batch_of(b"x" * 50))
    _, response = client.receive(keys.FETCH, 11, FetchResponse)
    data = response.responses[0].partitions[0]
    assert isinstance(data.records, memoryview)
    assert len(data.records) >= 400


def test_another_request_ends_the_wait(client: RawClient, topic: str) -> None:
    started = time.monotonic()
    client.send(keys.FETCH, 11, fetch_request(topic, 0, max_wait_ms=20_000))
    client.send(keys.METADATA, 9, MetadataRequest(topics=[]))
    client.receive(keys.FETCH, 11, FetchResponse)
    client.receive(keys.METADATA, 9, MetadataResponse)
    assert time.monotonic() - started < 5


def test_a_leader_epoch_that_is_not_current_is_refused(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    epoch = gateway.partition(topic).epoch
    codes = {}
    for wrong in (epoch - 1, epoch, epoch + 1):
        asked = FetchPartition(partition=0, current_leader_epoch=wrong, partition_max_bytes=1000)
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[asked])])
        response = client.call(keys.FETCH, 11, request, FetchResponse)
        codes[wrong - epoch] = response.responses[0].partitions[0].error_code
    assert codes == {-1: errors.FENCED_LEADER_EPOCH, 0: errors.NONE, 1: errors.UNKNOWN_LEADER_EPOCH}


def test_data_that_is_not_in_memory_comes_from_files(tmp_path: Path) -> None:
    value = bytes(range(256)) * 2000
    count = 60
    with RunningGateway(tmp_path, broker_options=BrokerOptions(cache_bytes=0)) as gateway:
        gateway.create_topic("cold")
        with RawClient(gateway.port) as client:
            for number in range(count):
                client.produce("cold", batch_of(b"%03d" % number + value))
            gateway.restart()
        with RawClient(gateway.port) as client:
            found: list[tuple[int, bytes]] = []
            while len(found) < count:
                found += read(client.fetch("cold", len(found), max_bytes=20 << 20))
    assert [offset for offset, _ in found] == list(range(count))
    assert all(got == b"%03d" % number + value for number, got in found)


def session_request(topic: str, session_id: int, epoch: int, partitions: list[FetchPartition]) -> FetchRequest:
    topics = [FetchTopic(topic=topic, partitions=partitions)] if partitions else []
    return FetchRequest(min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=topics)


def asked_from(partition: int, offset: int) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)


def test_a_session_names_only_what_changes(gateway: RunningGateway, client: RawClient) -> None:
    gateway.create_topic("sessions", 3)
    client.produce("sessions", batch_of(b"a"), partition=1)
    full = session_request("sessions", 0, 0, [asked_from(number, 0) for number in range(3)])
    first = client.call(keys.FETCH, 11, full, FetchResponse)
    assert first.session_id > 0
    assert {one.partition_index for one in first.responses[0].partitions} == {0, 1, 2}

    moved = session_request("sessions", first.session_id, 1, [asked_from(1, 1)])
    nothing = client.call(keys.FETCH, 11, moved, FetchResponse)
    assert (nothing.session_id, nothing.responses) == (first.session_id, [])

    client.produce("sessions", batch_of(b"b"), partition=2)
    more = client.call(keys.FETCH, 11, session_request("sessions", first.session_id, 2, []), FetchResponse)
    assert [one.partition_index for one in more.responses[0].partitions] == [2]
    assert read(more.responses[0].partitions[0]) == [(0, b"b")]


def test_a_session_forgets_what_it_is_told_to(gateway: RunningGateway, client: RawClient) -> None:
    gateway.create_topic("forgetful", 2)
    full = session_request("forgetful", 0, 0, [asked_from(0, 0), asked_from(1, 0)])
    session_id = client.call(keys.FETCH, 11, full, FetchResponse).session_id
    dropping = session_request("forgetful", session_id, 1, [])
    dropping.forgotten_topics_data = [ForgottenTopic(topic="forgetful", partitions=[0])]
    client.call(keys.FETCH, 11, dropping, FetchResponse)
    client.produce("forgetful", batch_of(b"a"), partition=0)
    client.produce("forgetful", batch_of(b"b"), partition=1)
    more = client.call(keys.FETCH, 11, session_request("forgetful", session_id, 2, []), FetchResponse)
    assert [one.partition_index for one in more.responses[0].partitions] == [1]


def test_a_session_that_is_not_known_or_out_of_turn_is_refused(client: RawClient, topic: str) -> None:
    unknown = client.call(keys.FETCH, 11, session_request(topic, 123_456, 1, []), FetchResponse)
    assert unknown.error_code == errors.FETCH_SESSION_ID_NOT_FOUND
    session_id = client.call(keys.FETCH, 11, session_request(topic, 0, 0, [asked_from(0, 0)]), FetchResponse).session_id
    late = client.call(keys.FETCH, 11, session_request(topic, session_id, 7, []), FetchResponse)
    assert late.error_code == errors.INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_is_ended_is_gone(client: RawClient, topic: str) -> None:
    session_id = client.call(keys.FETCH, 11, session_request(topic, 0, 0, [asked_from(0, 0)]), FetchResponse).session_id
    ended = client.call(keys.FETCH, 11, session_request(topic, session_id, -1, [asked_from(0, 0)]), FetchResponse)
    assert ended.session_id == 0
    gone = client.call(keys.FETCH, 11, session_request(topic, session_id, 1, []), FetchResponse)
    assert gone.error_code == errors.FETCH_SESSION_ID_NOT_FOUND
