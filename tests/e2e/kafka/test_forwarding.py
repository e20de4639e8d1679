"""A node that does not lead: it names the leaders of partitions, and has the leading node answer what it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.kafka.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.kafka.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.kafka.protocol.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from penstock.kafka.protocol.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.kafka.protocol.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.testing.batches import make_batch
from tests.e2e.kafka.gateway_cluster import NODES
from tests.e2e.kafka.raw_client import CLIENT_ID, RawClient
from tests.e2e.kafka.running_gateway import NODE_ID, RunningGateway
from tests.e2e.kafka.second_node import SecondNode

pytestmark = pytest.mark.skipif(NODES > 1, reason="it has a second node of its own")

WAIT_S = 20.0
TOPIC = 2  # the kind of resource


@pytest.fixture(scope="module")
def second(gateway: RunningGateway) -> Iterator[SecondNode]:
    with SecondNode(gateway) as running:
        yield running


@pytest.fixture
def other(second: SecondNode) -> Iterator[RawClient]:
    """A connection to the node that does not lead."""
    with RawClient(second.gateway.port) as connected:
        yield connected


def test_produce_and_fetch_errors_name_the_leader_and_its_address(
    gateway: RunningGateway, second: SecondNode, other: RawClient, topic: str
) -> None:
    second.reload()
    produced = other.produce(topic, make_batch([b"x"]), version=10)
    assert (produced.error_code, produced.base_offset) == (errors.NOT_LEADER_OR_FOLLOWER, -1)
    leader = produced.current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (NODE_ID, 1)
    by_id = FetchTopic(topic_id=gateway.broker.catalog.topic(topic).id.bytes, partitions=[FetchPartition(partition_max_bytes=1)])
    fetched = other.call(keys.FETCH, 16, FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[by_id]), FetchResponse)
    part = fetched.responses[0].partitions[0]
    assert part.error_code == errors.NOT_LEADER_OR_FOLLOWER
    assert part.current_leader is not None
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (NODE_ID, 1)
    assert [(node.node_id, node.port, node.rack) for node in fetched.node_endpoints] == [(NODE_ID, gateway.port, "r1")]
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    listed = other.call(keys.LIST_OFFSETS, 5, ListOffsetsRequest(topics=[asked]), ListOffsetsResponse)
    assert listed.topics[0].partitions[0].error_code == errors.NOT_LEADER_OR_FOLLOWER


def test_metadata_names_the_leader_and_is_complete_for_topics_that_are_not_known_yet(
    gateway: RunningGateway, second: SecondNode, other: RawClient
) -> None:
    for name, creates in (("just-created", False), ("created-by-metadata", True)):
        if not creates:
            gateway.create_topic(name)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=creates)
        metadata = other.call(keys.METADATA, 12, asked, MetadataResponse)
        assert [(topic.name, topic.error_code) for topic in metadata.topics] == [(name, errors.NONE)]
        assert [part.leader_id for part in metadata.topics[0].partitions] == [NODE_ID]
        assert metadata.controller_id == NODE_ID


def test_a_partition_that_is_to_start_on_the_asked_node_is_led_by_it(
    second: SecondNode, other: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second.reload()
    monkeypatch.setattr(second, "leader", second.node_id)  # the owner of all tablets
    monkeypatch.setattr(second, "leader_elsewhere", lambda _: None)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    part = other.call(keys.METADATA, 12, asked, MetadataResponse).topics[0].partitions[0]
    assert (part.error_code, part.leader_id, part.leader_epoch) == (errors.NONE, second.node_id, -1)
    assert other.produce(topic, make_batch([b"x"]), version=10).error_code == errors.NOT_LEADER_OR_FOLLOWER
    monkeypatch.setattr(second, "leader", None)
    monkeypatch.setattr(second, "version", second.version + 1)
    elsewhere = other.call(keys.METADATA, 12, asked, MetadataResponse).topics[0].partitions[0]
    assert (elsewhere.error_code, elsewhere.leader_id) == (errors.LEADER_NOT_AVAILABLE, -1)


def test_a_request_for_the_leading_node_is_answered_by_it(gateway: RunningGateway, other: RawClient) -> None:
    asked = CreateTopicsRequest(topics=[CreatableTopic(name="by-the-other", num_partitions=2, replication_factor=1)])
    created = other.call(keys.CREATE_TOPICS, 7, asked, CreateTopicsResponse)
    assert [(topic.name, topic.error_code) for topic in created.topics] == [("by-the-other", errors.NONE)]
    assert gateway.broker.catalog.topic("by-the-other").partitions == 2
    found = other.call(keys.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    assert [(one.node_id, one.port) for one in found.coordinators] == [(NODE_ID, gateway.port)]


def test_a_reply_larger_than_a_call_brings_is_fetched(other: RawClient, topic: str) -> None:
    wanted = [DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)] * 100
    asked = DescribeConfigsRequest(resources=wanted, include_synonyms=True, include_documentation=True)
    described = other.call(keys.DESCRIBE_CONFIGS, 4, asked, DescribeConfigsResponse)
    assert {(len(result.configs) > 10, result.error_code) for result in described.results} == {(True, errors.NONE)}
    assert len(described.results) == len(wanted)


def test_a_member_joins_through_the_other_node_with_the_address_of_its_client(gateway: RunningGateway, other: RawClient) -> None:
    joined = other.call(keys.JOIN_GROUP, 2, join_request("joined-there"), JoinGroupResponse)
    assert (joined.error_code, joined.leader) == (errors.NONE, joined.member_id)
    members = gateway.broker.groups.describe_classic("joined-there").members
    assert [(member.client_host, member.client_id) for member in members] == [("/127.0.0.1", CLIENT_ID)]


def test_groups_and_transactions_are_listed_by_the_leading_node_alone(
    client: RawClient, second: SecondNode, other: RawClient
) -> None:
    """Clients ask every node, and some show what two of them tell twice."""
    assert other.call(keys.JOIN_GROUP, 2, join_request("listed"), JoinGroupResponse).error_code == errors.NONE
    initiated = other.call(
        keys.INIT_PRODUCER_ID,
        4,
        InitProducerIdRequest(transactional_id="listed", transaction_timeout_ms=1000),
        InitProducerIdResponse,
    )
    assert initiated.error_code == errors.NONE
    groups = [asked.call(keys.LIST_GROUPS, 4, ListGroupsRequest(), ListGroupsResponse) for asked in (client, other)]
    assert [[group.group_id for group in listed.groups].count("listed") for listed in groups] == [1, 0]
    found = [
        asked.call(keys.LIST_TRANSACTIONS, 0, ListTransactionsRequest(), ListTransactionsResponse) for asked in (client, other)
    ]
    assert [len(listed.transaction_states) > 0 for listed in found] == [True, False]
    second.leader = None
    try:
        unknown = other.call(keys.LIST_GROUPS, 4, ListGroupsRequest(), ListGroupsResponse)
    finally:
        second.leader = NODE_ID
    assert unknown.error_code == errors.COORDINATOR_NOT_AVAILABLE, "an empty list would be taken for the truth"


def test_a_call_is_ended_when_its_client_disconnects(second: SecondNode, other: RawClient) -> None:
    joined = other.call(keys.JOIN_GROUP, 2, join_request("left-there"), JoinGroupResponse)
    assert joined.error_code == errors.NONE
    with RawClient(second.gateway.port) as waiting:
        waiting.send(keys.JOIN_GROUP, 2, join_request("left-there"))  # is answered when the first member joins again
        eventually(lambda: second.calls_in_flight == 1)
    eventually(lambda: second.calls_in_flight == 0)


def test_without_a_leading_node_clients_are_told_to_try_again(second: SecondNode, other: RawClient) -> None:
    second.leader = None
    try:
        beat = other.call(keys.HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse)
        created = other.call(
            keys.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[CreatableTopic(name="not-now")]), CreateTopicsResponse
        )
    finally:
        second.leader = NODE_ID
    assert beat.error_code == errors.COORDINATOR_NOT_AVAILABLE
    assert [(topic.name, topic.error_code) for topic in created.topics] == [("not-now", errors.NOT_CONTROLLER)]


def test_a_client_of_the_other_node_alone_produces_and_consumes(second: SecondNode) -> None:
    bootstrap: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{second.gateway.port}"}
    admin = AdminClient(bootstrap)
    admin.create_topics([NewTopic("through-the-other", 3, replication_factor=1)])["through-the-other"].result(WAIT_S)
    producer = Producer({**bootstrap, "enable.idempotence": True})
    for number in range(30):
        producer.produce("through-the-other", str(number).encode(), partition=number % 3)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**bootstrap, "group.id": "through-the-other", "auto.offset.reset": "earliest"})
    consumer.subscribe(["through-the-other"])
    values: set[bytes] = set()
    deadline = time.monotonic() + WAIT_S
    while len(values) < 30 and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        value = None if message is None else message.value()
        if value is not None:
            values.add(value)
    consumer.close()
    assert values == {str(number).encode() for number in range(30)}


def join_request(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
