"""Client quotas: set and found by hand, since no client here can; seen at work by a real client."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from itertools import count
from typing import Any

import confluent_kafka
import pytest

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.fetch import FetchRequest, FetchResponse
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataResponse
from penstock.kafka.protocol.produce import ProduceResponse
from penstock.kafka.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    OpData,
)
from penstock.kafka.protocol.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.e2e.kafka.raw_client import CLIENT_ID, RawClient, fetch_request, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.secured import ADMIN, authenticate, python_options, secured
from tests.e2e.kafka.test_clients import Read, aiokafka_read, confluent_read, kafka_python_read
from tests.e2e.kafka.test_produce import batch_of
from tests.e2e.kafka.untidy_client import untidy_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import ThrottlingQuotaExceededError

TIMEOUT_S = 20
PRODUCE, FETCH, CHANGES = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
EXACT, BY_DEFAULT, ANY = range(3)

Entity = dict[str, str | None]
_names = count()


def alter(
    client: RawClient, entity: Entity, sets: dict[str, float], removes: tuple[str, ...] = (), *, validate_only: bool = False
) -> tuple[int, str | None]:
    """Change the quotas of an entity; the code and what was said."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value) for key, value in sets.items()] + [OpData(key=key, remove=True) for key in removes],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    response = client.call(keys.ALTER_CLIENT_QUOTAS, 1, request, AlterClientQuotasResponse)
    assert [(one.entity_type, one.entity_name) for one in response.entries[0].entity] == list(entity.items())
    return response.entries[0].error_code, response.entries[0].error_message


def described(client: RawClient, *components: ComponentData, strict: bool = False) -> list[tuple[Entity, dict[str, float]]]:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    response = client.call(keys.DESCRIBE_CLIENT_QUOTAS, 1, request, DescribeClientQuotasResponse)
    assert response.error_code == errors.NONE
    return [
        ({one.entity_type: one.entity_name for one in entry.entity}, {one.key: one.value for one in entry.values})
        for entry in response.entries or []
    ]


@pytest.fixture
def quiet(gateway: RunningGateway, client: RawClient) -> Iterator[RawClient]:
    """A client; what quotas a test has set are gone at its end."""
    yield client
    for entity, quotas in gateway.broker.quotas.entities():
        gateway.run(gateway.broker.quotas.change(entity, {}, frozenset(quotas)))


def test_quotas_are_set_found_and_removed(quiet: RawClient, gateway: RunningGateway) -> None:
    anna: Entity = {"user": "anna"}
    anna_app: Entity = {"user": "anna", "client-id": "app"}
    all_clients: Entity = {"client-id": None}
    for entity in (anna, anna_app, all_clients):
        assert alter(quiet, entity, {PRODUCE: 1000, FETCH: 2000}) == (errors.NONE, None)
    assert alter(quiet, anna, {CHANGES: 1.5}, (FETCH,)) == (errors.NONE, None)
    gateway.restart()
    with RawClient(gateway.port) as client:
        both = {PRODUCE: 1000.0, FETCH: 2000.0}
        found = described(client)
        assert len(found) == 3
        for expected in ((anna, {PRODUCE: 1000, CHANGES: 1.5}), (anna_app, both), (all_clients, both)):
            assert expected in found
        user = ComponentData(entity_type="user", match_type=EXACT, match="anna")
        any_client = ComponentData(entity_type="client-id", match_type=ANY, match=None)
        all_others = ComponentData(entity_type="client-id", match_type=BY_DEFAULT, match=None)
        assert [entity for entity, _ in described(client, user, strict=True)] == [anna]
        assert {len(entity) for entity, _ in described(client, user)} == {1, 2}
        assert {len(entity) for entity, _ in described(client, any_client)} == {1, 2}
        assert described(client, all_others) == [(all_clients, both)]
        for entity, quotas in found:
            alter(client, entity, {}, tuple(quotas))
        assert described(client) == []


@pytest.mark.parametrize(
    ("entity", "sets", "said"),
    [
        ({"user": "anna"}, {"request_percentage": 50.0}, "not measured"),
        ({"user": "anna"}, {"unheard_of": 50.0}, "unknown quota"),
        ({"user": "anna"}, {PRODUCE: -1.0}, "more than 0"),
        ({"user": ""}, {PRODUCE: 1.0}, "empty"),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.0}, "not limited"),
        ({"group": "g"}, {PRODUCE: 1.0}, "not for 'group'"),
        ({}, {PRODUCE: 1.0}, "none is named"),
    ],
)
def test_a_quota_that_cannot_be_kept_is_refused(quiet: RawClient, entity: Entity, sets: dict[str, float], said: str) -> None:
    code, message = alter(quiet, entity, sets)
    assert code == errors.INVALID_REQUEST
    assert said in (message or "")
    assert described(quiet) == []


def test_what_is_only_validated_is_not_set(quiet: RawClient) -> None:
    assert alter(quiet, {"user": "anna"}, {PRODUCE: 1}, validate_only=True) == (errors.NONE, None)
    assert described(quiet) == []


def test_a_fetch_over_the_quota_is_answered_with_nothing_and_the_connection_is_throttled(quiet: RawClient, topic: str) -> None:
    for _ in range(3):
        quiet.produce(topic, batch_of(bytes(40_000)))
    assert alter(quiet, {"client-id": CLIENT_ID}, {FETCH: 100_000}) == (errors.NONE, None)
    response = quiet.call(keys.FETCH, 11, fetch_request(topic, 0), FetchResponse)
    assert response.throttle_time_ms == 0
    for _ in range(20):
        if response.throttle_time_ms:
            break
        assert response.responses[0].partitions[0].records
        response = quiet.call(keys.FETCH, 11, fetch_request(topic, 0), FetchResponse)
    assert 0 < response.throttle_time_ms <= 1000
    assert response.responses == []
    started = time.monotonic()
    served = quiet.call(keys.FETCH, 11, fetch_request(topic, 0), FetchResponse)
    assert time.monotonic() - started >= response.throttle_time_ms / 1000 - 0.05
    assert served.responses[0].partitions[0].records


def test_a_fetch_session_goes_on_after_a_throttled_reply(quiet: RawClient, topic: str) -> None:
    quiet.produce(topic, batch_of(bytes(40_000)))
    assert alter(quiet, {"client-id": CLIENT_ID}, {FETCH: 200_000}) == (errors.NONE, None)
    begin = fetch_request(topic, 0)
    begin.session_epoch = 0
    session = quiet.call(keys.FETCH, 11, begin, FetchResponse).session_id
    assert session
    throttled = 0
    for epoch in range(1, 12):
        again = FetchRequest(session_id=session, session_epoch=epoch, max_bytes=1 << 20, topics=fetch_request(topic, 0).topics)
        response = quiet.call(keys.FETCH, 11, again, FetchResponse)
        assert (response.error_code, response.session_id) == (errors.NONE, session)
        throttled += response.throttle_time_ms
        assert bool(response.responses) == (response.throttle_time_ms == 0)
    assert throttled > 0


def test_a_session_does_not_begin_with_a_throttled_reply(quiet: RawClient, topic: str) -> None:
    quiet.produce(topic, batch_of(bytes(40_000)))
    assert alter(quiet, {"client-id": CLIENT_ID}, {FETCH: 100_000}) == (errors.NONE, None)
    begin = fetch_request(topic, 0)
    begin.session_epoch = 0
    sessions = []
    for _ in range(6):
        response = quiet.call(keys.FETCH, 11, begin, FetchResponse)
        sessions.append((bool(response.session_id), bool(response.throttle_time_ms)))
    assert (False, True) in sessions
    assert (True, True) not in sessions


def test_the_quota_of_a_user_counts_for_all_its_clients(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        RunningGateway(tmp_path_factory.mktemp("users"), broker_options=secured()) as gateway,
        RawClient(gateway.port) as first,
        RawClient(gateway.port) as second,
    ):
        gateway.create_topic("t")
        for client in (first, second):
            authenticate(client)
        assert alter(first, {"user": ADMIN}, {PRODUCE: 100_000}) == (errors.NONE, None)
        batch = batch_of(bytes(80_000))
        assert first.call(keys.PRODUCE, 9, produce_request("t", batch), ProduceResponse).throttle_time_ms == 0
        assert second.call(keys.PRODUCE, 9, produce_request("t", batch), ProduceResponse).throttle_time_ms > 300


def test_a_client_over_its_quota_for_changes_is_refused(gateway: RunningGateway, quiet: RawClient, topic: str) -> None:
    assert alter(quiet, {"client-id": CLIENT_ID}, {CHANGES: 0.5}) == (errors.NONE, None)
    asked = CreateTopicsRequest(
        topics=[CreatableTopic(name=f"change-{next(_names)}", num_partitions=20, replication_factor=1) for _ in range(2)]
    )
    with RawClient(gateway.port) as other:
        response = other.call(keys.CREATE_TOPICS, 7, asked, CreateTopicsResponse)
        assert [one.error_code for one in response.topics] == [errors.NONE, errors.THROTTLING_QUOTA_EXCEEDED]
        assert 1000 < response.throttle_time_ms <= 30_000
    with RawClient(gateway.port) as other:
        grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=2, assignments=None)])
        grown = other.call(keys.CREATE_PARTITIONS, 3, grow, CreatePartitionsResponse)
        assert grown.results[0].error_code == errors.THROTTLING_QUOTA_EXCEEDED
    with RawClient(gateway.port) as other:
        # Versions that do not know of it are served, and wait.
        deleted = other.call(keys.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[topic]), DeleteTopicsResponse)
        assert deleted.responses[0].error_code == errors.NONE
        assert deleted.throttle_time_ms > 1000


@pytest.mark.parametrize("rate", [PRODUCE, FETCH])
def test_a_real_client_is_told_that_it_is_throttled(quiet: RawClient, gateway: RunningGateway, topic: str, rate: str) -> None:
    name = f"app-{rate}"
    told: list[Any] = []
    options: dict[str, Any] = {"bootstrap.servers": gateway.bootstrap, "client.id": name, "throttle_cb": told.append}
    if rate == FETCH:
        for _ in range(6):
            quiet.produce(topic, batch_of(bytes(60_000)))
    assert alter(quiet, {"client-id": name}, {rate: 150_000}) == (errors.NONE, None)
    if rate == PRODUCE:
        producer = confluent_kafka.Producer({**options, "linger.ms": 0})
        for _ in range(6):
            producer.produce(topic, bytes(60_000))
            producer.flush(TIMEOUT_S)
    else:
        consumer = confluent_kafka.Consumer({**options, "group.id": name, "max.partition.fetch.bytes": 1000})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found = 0
        while found < 6:
            messages = consumer.consume(6, TIMEOUT_S)
            assert messages
            found += len(messages)
        consumer.poll(0)
        consumer.close()
    assert told
    assert max(event.throttle_time for event in told) > 0.05


@pytest.mark.parametrize("read", [confluent_read, kafka_python_read, aiokafka_read])
def test_every_client_reads_on_through_throttled_replies(
    quiet: RawClient, gateway: RunningGateway, topic: str, read: Read
) -> None:
    sent = [b"%d " % number * 30_000 for number in range(8)]
    for value in sent:
        quiet.produce(topic, batch_of(value))
    assert alter(quiet, {"client-id": None}, {FETCH: 200_000}) == (errors.NONE, None)
    started = time.monotonic()
    assert read(gateway.bootstrap, topic, len(sent)) == sent
    # A second's worth is free; the rest takes its time.
    assert time.monotonic() - started > 0.3


def test_an_admin_client_is_told_that_it_changes_too_much(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunningGateway(tmp_path_factory.mktemp("admin"), broker_options=secured()) as gateway:
        with RawClient(gateway.port) as client:
            authenticate(client)
            alter(client, {"user": ADMIN}, {CHANGES: 0.5})
        with untidy_client():
            first, second = (KafkaAdminClient(**python_options(gateway.bootstrap)) for _ in range(2))
            first.create_topics([NewTopic("first", 20, 1)])
            with pytest.raises(ThrottlingQuotaExceededError):
                second.create_topics([NewTopic("second", 1, 1)])
            first.close()
            second.close()
            del first, second


def test_a_client_without_a_quota_is_not_throttled(quiet: RawClient, topic: str) -> None:
    assert alter(quiet, {"client-id": "another"}, {PRODUCE: 1, FETCH: 1}) == (errors.NONE, None)
    for _ in range(3):
        response = quiet.call(keys.PRODUCE, 9, produce_request(topic, batch_of(bytes(100_000))), ProduceResponse)
        assert response.throttle_time_ms == 0
    assert quiet.call(keys.FETCH, 11, fetch_request(topic, 0), FetchResponse).throttle_time_ms == 0
    assert quiet.call(keys.METADATA, 1, MetadataRequest(), MetadataResponse).brokers
