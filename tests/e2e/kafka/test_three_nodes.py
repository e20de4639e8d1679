"""Three nodes, and clients that are told of one that does not lead: they use partitions of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker import BrokerOptions, TopicConfig
from penstock.kafka.protocol import errors, keys, private_keys
from penstock.kafka.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from penstock.kafka.protocol.private_leases import (
    LeasedPartition,
    LeasedTopic,
    ReleaseLeaseRequest,
    ReleaseLeaseResponse,
    TakeLeaseRequest,
    TakeLeaseResponse,
)
from penstock.kafka.protocol.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_produce import batch_of

WAIT_S = 20.0
PARTITIONS = 6

Settings = dict[str, str | int | float | bool]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(tmp_path_factory.mktemp("nodes"), nodes=3) as running:
        yield running


@pytest.fixture(scope="module")
def settings(cluster: RunningGateway) -> Settings:
    return {"bootstrap.servers": cluster.bootstrap}


def test_partitions_are_led_by_all_nodes_with_as_many_replicas_as_asked_for(settings: Settings) -> None:
    admin = AdminClient(settings)
    create(admin, "spread", 2)
    metadata = admin.list_topics("spread", timeout=WAIT_S)
    assert (set(metadata.brokers), metadata.controller_id) == ({1, 2, 3}, 1)
    parts = metadata.topics["spread"].partitions.values()
    assert {part.leader for part in parts} == {1, 2, 3}
    assert all(part.replicas[0] == part.leader and len(part.replicas) == 2 for part in parts)
    assert all(set(part.isrs) == set(part.replicas) for part in parts)
    with pytest.raises(KafkaException, match="offers 1 to 3"):
        create(admin, "too-many", 4)


def test_transactions_span_partitions_of_all_nodes(settings: Settings) -> None:
    create(AdminClient(settings), "transacted", 3)
    producer = Producer({**settings, "transactional.id": "three"})
    producer.init_transactions(WAIT_S)
    for commits in (True, False, True):
        producer.begin_transaction()
        for number in range(PARTITIONS * 2):
            producer.produce("transacted", b"kept" if commits else b"dropped", partition=number % PARTITIONS)
        if commits:
            producer.commit_transaction(WAIT_S)
        else:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)
    assert consume(settings, "transacted", PARTITIONS * 4) == [b"kept"] * PARTITIONS * 4


def test_a_partition_is_moved_to_another_broker(cluster: RunningGateway, settings: Settings) -> None:
    admin = AdminClient(settings)
    create(admin, "moved", 3)
    before = admin.list_topics("moved", timeout=WAIT_S).topics["moved"].partitions[0].leader
    target = before % 3 + 1
    replicas = [target, *({1, 2, 3} - {target})]
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    asked = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[ReassignableTopic(name="moved", partitions=[partition])]
    )
    with RawClient(cluster.port) as client:
        done = client.call(keys.ALTER_PARTITION_REASSIGNMENTS, 0, asked, AlterPartitionReassignmentsResponse)
    result = done.responses[0].partitions[0]
    assert (result.error_code, result.error_message) == (errors.NONE, None)
    producer = Producer(settings)
    producer.produce("moved", b"there", partition=0)
    assert producer.flush(WAIT_S) == 0
    assert AdminClient(settings).list_topics("moved", timeout=WAIT_S).topics["moved"].partitions[0].leader == target


def test_a_change_is_in_effect_on_the_node_that_was_asked_for_it(cluster: RunningGateway) -> None:
    cluster.create_topic("limited")
    with RawClient(cluster.port) as client:
        for limit, code in ((1_000, errors.MESSAGE_TOO_LARGE), (100_000, errors.NONE)) * 10:
            config = AlterableConfig(name="max.message.bytes", value=str(limit))
            resource = AlterConfigsResource(resource_type=2, resource_name="limited", configs=[config])
            done = client.call(keys.ALTER_CONFIGS, 1, AlterConfigsRequest(resources=[resource]), AlterConfigsResponse)
            assert done.responses[0].error_code == errors.NONE
            assert client.produce("limited", batch_of(bytes(5_000))).error_code == code


def test_a_lease_holds_back_deletion_on_another_node(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, nodes=3, broker_options=BrokerOptions(retention_interval_s=0.1)) as gateway:
        topic = gateway.create_topic("aged")
        partition = gateway.partition("aged")
        lease = LeasedTopic(topic_id=topic.id.bytes, partitions=[LeasedPartition(partition=0, offset=5)])
        asked = TakeLeaseRequest(lease_id=bytes(15) + b"\1", owner="test", duration_ms=60_000, topics=[lease])
        with RawClient(gateway.port) as client:
            for _ in range(10):
                client.produce("aged", batch_of(b"a"))
            assert client.call(private_keys.TAKE_LEASE, 0, asked, TakeLeaseResponse).error_code == errors.NONE
            gateway.run(gateway.broker.configure_topic("aged", TopicConfig({"retention.ms": "1"})))
            wait_until(lambda: partition.start_offset == 5)
            time.sleep(1.0)  # ten looks at what is too old
            assert (partition.start_offset, partition.end_offset) == (5, 10)
            released = ReleaseLeaseRequest(lease_id=asked.lease_id)
            assert client.call(private_keys.RELEASE_LEASE, 0, released, ReleaseLeaseResponse).error_code == errors.NONE
        wait_until(lambda: partition.start_offset == 10)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create(admin: AdminClient, name: str, replicas: int) -> None:
    admin.create_topics([NewTopic(name, PARTITIONS, replication_factor=replicas)])[name].result(WAIT_S)


def consume(settings: Settings, topic: str, count: int) -> list[bytes | None]:
    """Read so many committed messages as a member of a group."""
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values
