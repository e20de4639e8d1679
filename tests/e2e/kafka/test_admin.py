"""Topics, configurations and the cluster, through the clients' own admin tools and, where they have none, by hand."""

from __future__ import annotations

import warnings

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.broker import TOPIC_CONFIG_KEYS
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.cluster import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from penstock.kafka.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.kafka.protocol.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.kafka.protocol.metadata import TopicRequest as DescribedTopic
from penstock.kafka.protocol.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.kafka.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.e2e.kafka.gateway_cluster import ASKED, NODES
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import CLUSTER_ID, NODE_ID, RunningGateway
from tests.e2e.kafka.test_produce import batch_of
from tests.e2e.kafka.untidy_client import untidy_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient

TIMEOUT_S = 20


@pytest.fixture(scope="module")
def admin(gateway: RunningGateway) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.bootstrap})


def create(client: RawClient, topic: CreatableTopic, *, validate_only: bool = False) -> tuple[int, int]:
    """The error code and the number of partitions."""
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    result = client.call(keys.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics[0]
    return result.error_code, result.num_partitions


def test_a_topic_is_made_described_grown_and_deleted(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("life", 3, 1, config={"retention.ms": "1000"})])["life"].result(TIMEOUT_S)
    assert len(admin.list_topics("life", TIMEOUT_S).topics["life"].partitions) == 3
    admin.create_partitions([NewPartitions("life", 7)])["life"].result(TIMEOUT_S)
    assert len(admin.list_topics("life", TIMEOUT_S).topics["life"].partitions) == 7
    admin.delete_topics(["life"])["life"].result(TIMEOUT_S)
    assert "life" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_topic_that_is_there_is_not_made_again(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (CreatableTopic(name="a/b", num_partitions=1, replication_factor=1), errors.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="none", num_partitions=0, replication_factor=1), errors.INVALID_PARTITIONS),
        (CreatableTopic(name="many", num_partitions=1, replication_factor=4), errors.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic(
                name="config",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="no.such.key", value="1")],
            ),
            errors.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name="elsewhere",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[99])],
            ),
            errors.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
    ids=["name", "partitions", "replicas", "config", "assignment"],
)
def test_what_cannot_be_had_is_refused_with_its_code(client: RawClient, asked: CreatableTopic, code: int) -> None:
    assert create(client, asked)[0] == code


def test_defaults_and_assignments_are_honoured(client: RawClient) -> None:
    assert create(client, CreatableTopic(name="plain", num_partitions=-1, replication_factor=-1)) == (errors.NONE, 1)
    assigned = [CreatableReplicaAssignment(partition_index=number, broker_ids=[NODE_ID]) for number in range(4)]
    by_hand = CreatableTopic(name="by-hand", num_partitions=-1, replication_factor=-1, assignments=assigned)
    assert create(client, by_hand) == (errors.NONE, 4)


def test_validation_makes_nothing(admin: AdminClient, client: RawClient) -> None:
    asked = CreatableTopic(name="only-asked", num_partitions=2, replication_factor=1)
    assert create(client, asked, validate_only=True) == (errors.NONE, 2)
    assert "only-asked" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_topic_is_deleted_by_its_id(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    topic_id = gateway.broker.catalog.topic(topic).id.bytes
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
    response = client.call(keys.DELETE_TOPICS, 6, request, DeleteTopicsResponse).responses[0]
    assert (response.error_code, response.name) == (errors.NONE, topic)
    again = client.call(keys.DELETE_TOPICS, 6, request, DeleteTopicsResponse).responses[0]
    assert again.error_code == errors.UNKNOWN_TOPIC_ID


def test_metadata_makes_topics_only_if_it_may(client: RawClient) -> None:
    def ask(name: str, *, create: bool) -> tuple[int, int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
        response = client.call(keys.METADATA, 12, request, MetadataResponse)
        assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, NODE_ID)
        return response.topics[0].error_code, len(response.topics[0].partitions)

    assert ask("by-metadata", create=False) == (errors.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert ask("by-metadata", create=True) == (errors.NONE, 1)
    assert ask("not a name", create=True) == (errors.INVALID_TOPIC_EXCEPTION, 0)


@pytest.mark.parametrize("version", range(14))
def test_metadata_tells_the_same_in_every_version(client: RawClient, topic: str, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    response = client.call(keys.METADATA, version, request, MetadataResponse)
    assert sorted(broker.node_id for broker in response.brokers) == list(range(1, NODES + 1))
    assert [(one.name, len(one.partitions)) for one in response.topics] == [(topic, 1)]
    assert response.topics[0].partitions[0].leader_id == (NODE_ID if NODES == 1 else ASKED)


def test_all_topics_are_told_to_who_names_none(client: RawClient, topic: str) -> None:
    for version, everything in ((0, []), (1, None), (13, None)):
        response = client.call(keys.METADATA, version, MetadataRequest(topics=everything), MetadataResponse)
        assert topic in {one.name for one in response.topics}
    nothing = client.call(keys.METADATA, 1, MetadataRequest(topics=[]), MetadataResponse)
    assert nothing.topics == []


def test_configs_are_described_changed_and_set_back(admin: AdminClient, topic: str) -> None:
    def described() -> dict[str, ConfigEntry]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return found

    assert described().keys() == TOPIC_CONFIG_KEYS.keys()
    assert ConfigSource(described()["retention.ms"].source) == ConfigSource.DEFAULT_CONFIG
    for operation, value in ((AlterConfigOpType.SET, "5000"), (AlterConfigOpType.DELETE, None)):
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        changing = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([changing])[changing].result(TIMEOUT_S)
        expected = value or TOPIC_CONFIG_KEYS["retention.ms"].default
        assert described()["retention.ms"].value == expected


def test_alter_configs_replaces_all_that_was_set(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    for name, value in (("retention.ms", "1000"), ("max.message.bytes", "2000")):
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[AlterableConfig(name=name, value=value)])
        response = client.call(keys.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[resource]), AlterConfigsResponse)
        assert response.responses[0].error_code == errors.NONE
    assert gateway.broker.catalog.topic(topic).config.own == {"max.message.bytes": "2000"}


def test_a_smaller_limit_takes_effect_at_once(gateway: RunningGateway, admin: AdminClient, client: RawClient, topic: str) -> None:
    assert client.produce(topic, batch_of(bytes(5000))).error_code == errors.NONE
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    changing = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([changing])[changing].result(TIMEOUT_S)
    gateway.settle()
    assert client.produce(topic, batch_of(bytes(5000))).error_code == errors.MESSAGE_TOO_LARGE


def test_the_broker_describes_itself(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, str(NODE_ID))
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert found["auto.create.topics.enable"].value == "true"
    assert found["num.partitions"].is_read_only
    assert found["log.retention.ms"].value == TOPIC_CONFIG_KEYS["retention.ms"].default


def test_the_cluster_is_described(admin: AdminClient, gateway: RunningGateway) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.cluster_id == CLUSTER_ID
    assert [node.id for node in cluster.nodes] == list(range(1, NODES + 1))
    assert gateway.port in [node.port for node in cluster.nodes]


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, client: RawClient, topic: str) -> None:
    for _ in range(5):
        client.produce(topic, batch_of(b"a"))
    place = TopicPartition(topic, 0, 3)
    assert admin.delete_records([place])[place].result(TIMEOUT_S).low_watermark == 3
    spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # the client's own types stop here
    earliest = admin.list_offsets({TopicPartition(topic, 0): spec})
    assert earliest[TopicPartition(topic, 0)].result(TIMEOUT_S).offset == 3
    beyond = TopicPartition(topic, 0, 100)
    with pytest.raises(KafkaException) as caught:
        admin.delete_records([beyond])[beyond].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_positions_of_a_group_are_listed(admin: AdminClient, topic: str) -> None:
    positions = ConsumerGroupTopicPartitions("lister", [TopicPartition(topic, 0, 5)])
    admin.alter_consumer_group_offsets([positions])["lister"].result(TIMEOUT_S)
    for asked in (None, [TopicPartition(topic, 0)]):
        listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("lister", asked)])["lister"]
        assert [(one.topic, one.offset) for one in listed.result(TIMEOUT_S).topic_partitions] == [(topic, 5)]


@untidy_client()
def test_kafka_python_administers_as_well(gateway: RunningGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap)
    try:
        assert admin.describe_cluster()["cluster_id"] == CLUSTER_ID
    finally:
        admin.close()


def test_topics_are_described_page_by_page(gateway: RunningGateway, client: RawClient) -> None:
    for name, partitions in (("page-a", 3), ("page-b", 4)):
        gateway.create_topic(name, partitions)
    asked = [DescribedTopic(name="page-b"), DescribedTopic(name="page-a"), DescribedTopic(name="page-x")]
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    pages: list[list[tuple[str | None, int]]] = []
    while True:
        request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=2, cursor=cursor)
        response = client.call(keys.DESCRIBE_TOPIC_PARTITIONS, 0, request, DescribeTopicPartitionsResponse)
        pages.append([(one.name, part.partition_index) for one in response.topics for part in one.partitions])
        if response.next_cursor is None:
            break
        next_cursor = response.next_cursor
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=next_cursor.topic_name, partition_index=next_cursor.partition_index
        )
    assert [len(page) for page in pages[:3]] == [2, 2, 2]
    found = [place for page in pages for place in page]
    assert found == [("page-a", number) for number in range(3)] + [("page-b", number) for number in range(4)]
    assert response.topics[-1].error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_log_dirs_tell_what_partitions_take(client: RawClient, topic: str) -> None:
    client.produce(topic, batch_of(bytes(10_000)))
    response = client.call(keys.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    (directory,) = response.results
    sizes = {one.name: one.partitions[0].partition_size for one in directory.topics}
    assert sizes[topic] > 10_000
    assert 0 < directory.usable_bytes <= directory.total_bytes


def test_producers_of_a_partition_are_described(client: RawClient, topic: str) -> None:
    client.produce(topic, batch_of(b"a", b"b", producer_id=77, epoch=2, sequence=0))
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    response = client.call(keys.DESCRIBE_PRODUCERS, 0, request, DescribeProducersResponse)
    (producer,) = response.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 2, 1)


def test_config_resources_are_listed(client: RawClient, topic: str) -> None:
    listed = client.call(keys.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(), ListConfigResourcesResponse)
    found = {(one.resource_type, one.resource_name) for one in listed.config_resources}
    assert {(2, topic), (4, str(NODE_ID))} <= found
    metrics = client.call(keys.LIST_CONFIG_RESOURCES, 0, ListConfigResourcesRequest(), ListConfigResourcesResponse)
    assert metrics.config_resources == []


def test_the_end_of_a_leader_epoch_is_told(gateway: RunningGateway, topic: str) -> None:
    def ask(epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=epoch)])
        request = OffsetForLeaderEpochRequest(topics=[asked])
        with RawClient(gateway.port) as client:
            response = client.call(keys.OFFSET_FOR_LEADER_EPOCH, 4, request, OffsetForLeaderEpochResponse)
        found = response.topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    def produce(*values: bytes) -> int:
        with RawClient(gateway.port) as client:
            client.produce(topic, batch_of(*values))
        return gateway.partition(topic).epoch

    first = produce(b"a", b"b")
    gateway.restart()
    second = produce(b"c")
    assert second > first
    assert ask(first) == (first, 2)
    assert ask(second) == (second, 3)
    assert ask(second + 1) == (-1, -1)
