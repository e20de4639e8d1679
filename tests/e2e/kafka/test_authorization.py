"""Access rules: what a user may not do is refused with Kafka's own code, api by api; what it may do works with real clients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import count
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.broker import BrokerOptions, Credential, Mechanism
from penstock.gateway.kafka.dispatch import CALLS
from penstock.gateway.kafka.security.guards import GUARDS, OPEN
from penstock.kafka.protocol import (
    Message,
    cluster,
    configs,
    consumer_groups,
    errors,
    groups,
    keys,
    metadata,
    offsets,
    private,
    private_keys,
    quorum,
    quotas,
    sasl,
    topics,
)
from penstock.kafka.protocol import acls as acl
from penstock.kafka.protocol import transactions as txn
from penstock.kafka.protocol.fetch import FetchRequest, FetchResponse
from penstock.kafka.protocol.produce import ProduceRequest, ProduceResponse, TopicProduceData
from tests.e2e.kafka.raw_client import RawClient, fetch_request, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.secured import authenticate, confluent_options, python_options, secured
from tests.e2e.kafka.test_produce import batch_of
from tests.e2e.kafka.untidy_client import untidy_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern
    from kafka.admin import ResourceType as PythonResourceType
    from kafka.errors import SecurityDisabledError

TIMEOUT_S = 20
TOPIC, GROUP, TRANSACTION = "secret", "readers", "writer"
NOT_TOPIC, NOT_GROUP = errors.TOPIC_AUTHORIZATION_FAILED, errors.GROUP_AUTHORIZATION_FAILED
NOT_TRANSACTION, NOT_CLUSTER = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, errors.CLUSTER_AUTHORIZATION_FAILED

_users = count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with security on and one topic."""
    with RunningGateway(tmp_path_factory.mktemp("secured"), broker_options=secured()) as running:
        running.create_topic(TOPIC)
        yield running


@pytest.fixture(scope="module")
def admin(gateway: RunningGateway) -> AdminClient:
    return AdminClient(confluent_options(gateway.bootstrap))


@pytest.fixture
def user(gateway: RunningGateway) -> str:
    """A user whom no rule speaks of."""
    name = f"user-{next(_users)}"
    credential = Credential.of_password(Mechanism.SCRAM_SHA_256, 4096, b"salt", name)
    gateway.run(gateway.broker.users.change([(name, credential)]))
    return name


@pytest.fixture
def client(gateway: RunningGateway, user: str) -> Iterator[RawClient]:
    """A raw connection of that user."""
    with RawClient(gateway.port) as connected:
        authenticate(connected, user, user)
        yield connected


def allow(  # noqa: PLR0917 - a rule reads as a sentence
    gateway: RunningGateway,
    admin: AdminClient,
    user: str,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> None:
    rule = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
    admin.create_acls([rule])[rule].result(TIMEOUT_S)
    gateway.settle()


def codes_in(message: Message) -> set[int]:
    """All error codes in a response but NONE."""
    found = set()
    for name in type(message).__dict__["__slots__"]:
        value = getattr(message, name)
        if name.endswith("error_code") and value:
            found.add(value)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Message):
                found |= codes_in(item)
    return found


TOPIC_RESOURCE = configs.DescribeConfigsResource(resource_type=2, resource_name=TOPIC)
BROKER_RESOURCE = configs.DescribeConfigsResource(resource_type=4, resource_name="1")
REQUESTS: list[tuple[int, int, Message, set[int]]] = [
    (keys.PRODUCE, 9, produce_request(TOPIC, batch_of(b"x")), {NOT_TOPIC}),
    (keys.PRODUCE, 9, produce_request("there-is-none", batch_of(b"x")), {NOT_TOPIC}),
    (keys.FETCH, 11, fetch_request(TOPIC, 0), {NOT_TOPIC}),
    (keys.FETCH, 11, fetch_request("there-is-none", 0), {NOT_TOPIC}),
    (
        keys.LIST_OFFSETS,
        7,
        offsets.ListOffsetsRequest(
            topics=[offsets.ListOffsetsTopic(name=TOPIC, partitions=[offsets.ListOffsetsPartition(timestamp=-1)])]
        ),
        {NOT_TOPIC},
    ),
    (keys.METADATA, 12, metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]), {NOT_TOPIC}),
    (keys.METADATA, 0, metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]), {NOT_TOPIC}),
    (keys.METADATA, 12, metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="made-up")]), {NOT_TOPIC}),
    (
        keys.OFFSET_COMMIT,
        8,
        offsets.OffsetCommitRequest(
            group_id=GROUP,
            topics=[offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=[offsets.OffsetCommitRequestPartition()])],
        ),
        {NOT_GROUP},
    ),
    (keys.OFFSET_FETCH, 8, offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup(group_id=GROUP)]), {NOT_GROUP}),
    (keys.OFFSET_FETCH, 5, offsets.OffsetFetchRequest(group_id=GROUP), {NOT_GROUP}),
    (keys.OFFSET_DELETE, 0, offsets.OffsetDeleteRequest(group_id=GROUP), {NOT_GROUP}),
    (keys.FIND_COORDINATOR, 4, cluster.FindCoordinatorRequest(coordinator_keys=[GROUP]), {NOT_GROUP}),
    (keys.FIND_COORDINATOR, 1, cluster.FindCoordinatorRequest(key=GROUP), {NOT_GROUP}),
    (keys.FIND_COORDINATOR, 4, cluster.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), {NOT_TRANSACTION}),
    (keys.JOIN_GROUP, 5, groups.JoinGroupRequest(group_id=GROUP), {NOT_GROUP}),
    (keys.SYNC_GROUP, 5, groups.SyncGroupRequest(group_id=GROUP), {NOT_GROUP}),
    (keys.HEARTBEAT, 4, groups.HeartbeatRequest(group_id=GROUP), {NOT_GROUP}),
    (keys.LEAVE_GROUP, 5, groups.LeaveGroupRequest(group_id=GROUP), {NOT_GROUP}),
    (keys.DESCRIBE_GROUPS, 5, groups.DescribeGroupsRequest(groups=[GROUP]), {NOT_GROUP}),
    (keys.LIST_GROUPS, 4, groups.ListGroupsRequest(), set()),
    (keys.DELETE_GROUPS, 2, groups.DeleteGroupsRequest(groups_names=[GROUP]), {NOT_GROUP}),
    (keys.CONSUMER_GROUP_HEARTBEAT, 0, consumer_groups.ConsumerGroupHeartbeatRequest(group_id=GROUP), {NOT_GROUP}),
    (keys.CONSUMER_GROUP_DESCRIBE, 0, consumer_groups.ConsumerGroupDescribeRequest(group_ids=[GROUP]), {NOT_GROUP}),
    (keys.CREATE_TOPICS, 7, topics.CreateTopicsRequest(topics=[topics.CreatableTopic(name="new")]), {NOT_TOPIC}),
    (keys.DELETE_TOPICS, 6, topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name=TOPIC)]), {NOT_TOPIC}),
    (keys.DELETE_TOPICS, 4, topics.DeleteTopicsRequest(topic_names=[TOPIC]), {NOT_TOPIC}),
    (
        keys.DELETE_RECORDS,
        2,
        offsets.DeleteRecordsRequest(
            topics=[offsets.DeleteRecordsTopic(name=TOPIC, partitions=[offsets.DeleteRecordsPartition()])]
        ),
        {NOT_TOPIC},
    ),
    (
        keys.CREATE_PARTITIONS,
        3,
        topics.CreatePartitionsRequest(topics=[topics.CreatePartitionsTopic(name=TOPIC, count=9)]),
        {NOT_TOPIC},
    ),
    (keys.INIT_PRODUCER_ID, 4, txn.InitProducerIdRequest(transactional_id=None), {NOT_CLUSTER}),
    (keys.INIT_PRODUCER_ID, 4, txn.InitProducerIdRequest(transactional_id=TRANSACTION), {NOT_TRANSACTION}),
    (
        keys.ADD_PARTITIONS_TO_TXN,
        3,
        txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_topics=[txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        ),
        {NOT_TRANSACTION},
    ),
    (
        keys.ADD_PARTITIONS_TO_TXN,
        5,
        txn.AddPartitionsToTxnRequest(
            transactions=[
                txn.AddPartitionsToTxnTransaction(
                    transactional_id=TRANSACTION, topics=[txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
                )
            ]
        ),
        {NOT_TRANSACTION},
    ),
    (keys.ADD_OFFSETS_TO_TXN, 3, txn.AddOffsetsToTxnRequest(transactional_id=TRANSACTION, group_id=GROUP), {NOT_TRANSACTION}),
    (keys.END_TXN, 3, txn.EndTxnRequest(transactional_id=TRANSACTION), {NOT_TRANSACTION}),
    (
        keys.TXN_OFFSET_COMMIT,
        3,
        txn.TxnOffsetCommitRequest(
            transactional_id=TRANSACTION,
            group_id=GROUP,
            topics=[txn.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[txn.TxnOffsetCommitRequestPartition()])],
        ),
        {NOT_TRANSACTION},
    ),
    (keys.DESCRIBE_TRANSACTIONS, 0, txn.DescribeTransactionsRequest(transactional_ids=[TRANSACTION]), {NOT_TRANSACTION}),
    (keys.LIST_TRANSACTIONS, 0, txn.ListTransactionsRequest(), set()),
    (
        private_keys.COMMIT_TOGETHER,
        0,
        private.CommitTogetherRequest(
            record_key="app", transactions=[private.CommittedTransaction(transactional_id=TRANSACTION)]
        ),
        {NOT_TRANSACTION},
    ),
    (private_keys.APPLICATION_RECORD, 0, private.ApplicationRecordRequest(record_key="app"), {NOT_TRANSACTION}),
    (
        keys.OFFSET_FOR_LEADER_EPOCH,
        4,
        offsets.OffsetForLeaderEpochRequest(
            topics=[offsets.OffsetForLeaderTopic(topic=TOPIC, partitions=[offsets.OffsetForLeaderPartition()])]
        ),
        {NOT_TOPIC},
    ),
    (
        keys.DESCRIBE_PRODUCERS,
        0,
        cluster.DescribeProducersRequest(topics=[cluster.TopicRequest(name=TOPIC, partition_indexes=[0])]),
        {NOT_TOPIC},
    ),
    (
        keys.DESCRIBE_CONFIGS,
        4,
        configs.DescribeConfigsRequest(resources=[TOPIC_RESOURCE, BROKER_RESOURCE]),
        {NOT_TOPIC, NOT_CLUSTER},
    ),
    (
        keys.ALTER_CONFIGS,
        2,
        configs.AlterConfigsRequest(resources=[configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC)]),
        {NOT_TOPIC},
    ),
    (
        keys.INCREMENTAL_ALTER_CONFIGS,
        1,
        configs.IncrementalAlterConfigsRequest(
            resources=[configs.IncrementalAlterConfigsResource(resource_type=2, resource_name=TOPIC)]
        ),
        {NOT_TOPIC},
    ),
    (keys.LIST_CONFIG_RESOURCES, 1, configs.ListConfigResourcesRequest(), {NOT_CLUSTER}),
    (keys.DESCRIBE_LOG_DIRS, 4, cluster.DescribeLogDirsRequest(), {NOT_CLUSTER}),
    (
        keys.ALTER_REPLICA_LOG_DIRS,
        2,
        quorum.AlterReplicaLogDirsRequest(
            dirs=[quorum.AlterReplicaLogDir(path="/", topics=[quorum.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])]
        ),
        {NOT_CLUSTER},
    ),
    (keys.DESCRIBE_QUORUM, 1, quorum.DescribeQuorumRequest(), {NOT_CLUSTER}),
    (keys.DESCRIBE_CLUSTER, 1, cluster.DescribeClusterRequest(), set()),
    (
        keys.DESCRIBE_TOPIC_PARTITIONS,
        0,
        metadata.DescribeTopicPartitionsRequest(topics=[metadata.TopicRequest(name=TOPIC)]),
        {NOT_TOPIC},
    ),
    (keys.DESCRIBE_ACLS, 3, acl.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), {NOT_CLUSTER}),
    (keys.CREATE_ACLS, 3, acl.CreateAclsRequest(creations=[acl.AclCreation()]), {NOT_CLUSTER}),
    (keys.DELETE_ACLS, 3, acl.DeleteAclsRequest(filters=[acl.DeleteAclsFilter()]), {NOT_CLUSTER}),
    (keys.ELECT_LEADERS, 2, topics.ElectLeadersRequest(topic_partitions=None), {NOT_CLUSTER}),
    (keys.ALTER_PARTITION_REASSIGNMENTS, 0, topics.AlterPartitionReassignmentsRequest(), {NOT_CLUSTER}),
    (keys.LIST_PARTITION_REASSIGNMENTS, 0, topics.ListPartitionReassignmentsRequest(topics=None), {NOT_CLUSTER}),
    (keys.DESCRIBE_CLIENT_QUOTAS, 1, quotas.DescribeClientQuotasRequest(), {NOT_CLUSTER}),
    (
        keys.ALTER_CLIENT_QUOTAS,
        1,
        quotas.AlterClientQuotasRequest(entries=[quotas.AlterClientQuotasRequestEntryData()]),
        {NOT_CLUSTER},
    ),
    (keys.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, sasl.DescribeUserScramCredentialsRequest(users=None), {NOT_CLUSTER}),
    (
        keys.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        sasl.AlterUserScramCredentialsRequest(deletions=[sasl.ScramCredentialDeletion(name="x", mechanism=1)]),
        {NOT_CLUSTER},
    ),
]


def test_every_api_has_a_guard() -> None:
    assert CALLS.keys() <= GUARDS.keys() | OPEN


def test_every_guard_is_tested_here() -> None:
    assert {key for key, *_ in REQUESTS} >= (CALLS.keys() | {keys.PRODUCE, keys.FETCH}) - OPEN


@pytest.mark.parametrize(
    ("key", "version", "request_", "codes"), REQUESTS, ids=[f"{key}-{version}" for key, version, *_ in REQUESTS]
)
def test_whoever_may_nothing_is_refused(client: RawClient, key: int, version: int, request_: Message, codes: set[int]) -> None:
    response = client.call(key, version, request_, Message)
    assert codes_in(response) == codes


def test_nothing_that_was_refused_happened(gateway: RunningGateway) -> None:
    assert [topic.name for topic in gateway.broker.catalog.topics() if not topic.name.startswith(("__", "allowed"))] == [TOPIC]
    assert gateway.partition(TOPIC).end_offset == 0


def test_a_topic_named_by_id_is_guarded_as_well(gateway: RunningGateway, client: RawClient) -> None:
    topic_id = gateway.broker.catalog.topic(TOPIC).id.bytes
    fetch = fetch_request(TOPIC, 0)
    fetch.topics[0].topic, fetch.topics[0].topic_id = "", topic_id
    assert codes_in(client.call(keys.FETCH, 13, fetch, FetchResponse)) == {NOT_TOPIC}
    data = produce_request(TOPIC, batch_of(b"x")).topic_data[0].partition_data
    produce = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)])
    assert codes_in(client.call(keys.PRODUCE, 13, produce, ProduceResponse)) == {NOT_TOPIC}
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic_id=topic_id, name=None)])
    response = client.call(keys.METADATA, 12, asked, metadata.MetadataResponse)
    assert [(topic.error_code, topic.name) for topic in response.topics] == [(NOT_TOPIC, None)]


def test_lists_have_only_what_the_user_may_know_of(
    gateway: RunningGateway, admin: AdminClient, client: RawClient, user: str
) -> None:
    gateway.create_topic(f"allowed-{user}")
    everything = metadata.MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert client.call(keys.METADATA, 12, everything, metadata.MetadataResponse).topics == []
    assert client.call(keys.METADATA, 0, metadata.MetadataRequest(), metadata.MetadataResponse).topics == []
    allow(gateway, admin, user, ResourceType.TOPIC, "allowed-", AclOperation.READ, pattern=ResourcePatternType.PREFIXED)
    seen = client.call(keys.METADATA, 12, everything, metadata.MetadataResponse).topics
    assert f"allowed-{user}" in [topic.name for topic in seen]
    assert TOPIC not in [topic.name for topic in seen]
    assert {topic.topic_authorized_operations for topic in seen} == {1 << 3 | 1 << 8}
    pages = metadata.DescribeTopicPartitionsRequest(topics=[])
    response = client.call(keys.DESCRIBE_TOPIC_PARTITIONS, 0, pages, metadata.DescribeTopicPartitionsResponse)
    assert TOPIC not in [topic.name for topic in response.topics]
    assert f"allowed-{user}" in [topic.name for topic in response.topics]


def test_a_part_that_is_refused_does_not_keep_the_rest_from_being_served(
    gateway: RunningGateway, admin: AdminClient, client: RawClient, user: str
) -> None:
    mine = f"allowed-{user}"
    gateway.create_topic(mine)
    allow(gateway, admin, user, ResourceType.TOPIC, mine, AclOperation.WRITE)
    request = produce_request(mine, batch_of(b"x"))
    request.topic_data += produce_request(TOPIC, batch_of(b"x")).topic_data
    response = client.call(keys.PRODUCE, 9, request, ProduceResponse)
    assert {topic.name: topic.partition_responses[0].error_code for topic in response.responses} == {mine: 0, TOPIC: NOT_TOPIC}
    both = offsets.ListOffsetsRequest(
        topics=[
            offsets.ListOffsetsTopic(name=name, partitions=[offsets.ListOffsetsPartition(timestamp=-1)]) for name in (TOPIC, mine)
        ]
    )
    found = client.call(keys.LIST_OFFSETS, 7, both, offsets.ListOffsetsResponse)
    assert {topic.name: topic.partitions[0].error_code for topic in found.topics} == {mine: 0, TOPIC: NOT_TOPIC}


def test_a_fetch_session_begins_to_serve_what_comes_to_be_allowed(
    gateway: RunningGateway, admin: AdminClient, client: RawClient, user: str
) -> None:
    mine = f"allowed-{user}"
    gateway.create_topic(mine)
    first = fetch_request(mine, 0)
    first.session_epoch = 0
    begun = client.call(keys.FETCH, 11, first, FetchResponse)
    assert begun.responses[0].partitions[0].error_code == NOT_TOPIC
    again = FetchRequest(session_id=begun.session_id, session_epoch=1, max_bytes=1 << 20)
    assert client.call(keys.FETCH, 11, again, FetchResponse).responses[0].partitions[0].error_code == NOT_TOPIC
    allow(gateway, admin, user, ResourceType.TOPIC, mine, AclOperation.READ)
    again.session_epoch = 2
    assert client.call(keys.FETCH, 11, again, FetchResponse).responses[0].partitions[0].error_code == errors.NONE


def test_rules_are_made_found_and_removed(admin: AdminClient) -> None:
    rule = AclBinding(
        ResourceType.TOPIC, "found", ResourcePatternType.LITERAL, "User:x", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    admin.create_acls([rule])[rule].result(TIMEOUT_S)
    anyone: Any = None
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "found", ResourcePatternType.MATCH, anyone, anyone, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.describe_acls(wanted).result(TIMEOUT_S) == [rule]
    assert admin.delete_acls([wanted])[wanted].result(TIMEOUT_S) == [rule]
    assert admin.describe_acls(wanted).result(TIMEOUT_S) == []


def test_kafka_python_manages_rules(gateway: RunningGateway) -> None:
    with untidy_client():
        client = KafkaAdminClient(**python_options(gateway.bootstrap))
        pattern = ResourcePattern(PythonResourceType.GROUP, "python")
        rule = ACL("User:py", "*", ACLOperation.READ, ACLPermissionType.DENY, pattern)
        made = client.create_acls([rule])
        assert not made["failed"]
        wanted = ACLFilter("User:py", None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
        found, _ = client.describe_acls(wanted)
        assert found == [rule]
        assert [list(removed) for _, removed, _ in client.delete_acls([wanted])] == [[rule]]
        assert client.describe_acls(wanted)[0] == []
        client.close()
        del client


@pytest.mark.parametrize(
    ("creation", "code"),
    [
        (acl.AclCreation(resource_type=2, resource_name="t", principal="x", host="*", operation=3, permission_type=3), 42),
        (acl.AclCreation(resource_type=9, resource_name="t", principal="User:x", host="*", operation=3, permission_type=3), 42),
        (acl.AclCreation(resource_type=2, resource_name="t", principal="User:x", host="*", operation=12, permission_type=3), 42),
    ],
    ids=["principal", "kind", "operation"],
)
def test_a_rule_that_means_nothing_is_refused(gateway: RunningGateway, creation: acl.AclCreation, code: int) -> None:
    with RawClient(gateway.port) as client:
        authenticate(client)
        response = client.call(keys.CREATE_ACLS, 3, acl.CreateAclsRequest(creations=[creation]), acl.CreateAclsResponse)
        assert [result.error_code for result in response.results] == [code]


def test_a_user_writes_and_reads_what_the_rules_allow(gateway: RunningGateway, admin: AdminClient, user: str) -> None:
    topic = f"allowed-{user}"
    gateway.create_topic(topic)
    options = confluent_options(gateway.bootstrap, user=user, password=user)
    refused: list[Any] = []
    producer = confluent_kafka.Producer(options)
    producer.produce(topic, b"too early", on_delivery=lambda error, _: refused.append(error))
    producer.flush(TIMEOUT_S)
    assert refused[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(gateway, admin, user, ResourceType.TOPIC, topic, AclOperation.WRITE)
    sent: list[Any] = []
    producer = confluent_kafka.Producer({**options, "enable.idempotence": True})
    producer.produce(topic, b"now", on_delivery=lambda error, _: sent.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert sent == [None]
    allow(gateway, admin, user, ResourceType.TOPIC, topic, AclOperation.READ)
    allow(gateway, admin, user, ResourceType.GROUP, user, AclOperation.READ)
    consumer = confluent_kafka.Consumer({**options, "group.id": user})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"now"
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    allow(gateway, admin, user, ResourceType.GROUP, user, AclOperation.ALL, permission=AclPermissionType.DENY)
    with RawClient(gateway.port) as client:
        authenticate(client, user, user)
        asked = offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup(group_id=user)])
        assert codes_in(client.call(keys.OFFSET_FETCH, 8, asked, Message)) == {NOT_GROUP}


def test_rules_outlive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunningGateway(tmp_path_factory.mktemp("again"), broker_options=secured()) as gateway:
        gateway.create_topic("kept")
        admin = AdminClient(confluent_options(gateway.bootstrap))
        allow(gateway, admin, "*", ResourceType.TOPIC, "kept", AclOperation.READ)
        gateway.restart()
        credential = Credential.of_password(Mechanism.SCRAM_SHA_256, 4096, b"salt", "x")
        gateway.run(gateway.broker.users.change([("x", credential)]))
        with RawClient(gateway.port) as client:
            authenticate(client, "x", "x")
            assert client.fetch("kept", 0).error_code == errors.NONE
            assert codes_in(client.call(keys.PRODUCE, 9, produce_request("kept", batch_of(b"x")), ProduceResponse)) == {NOT_TOPIC}


def test_what_no_rule_speaks_of_can_be_open_to_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    options = secured(allow_without_rule=True)
    with RunningGateway(tmp_path_factory.mktemp("lenient"), broker_options=options) as gateway, RawClient(gateway.port) as client:
        credential = Credential.of_password(Mechanism.SCRAM_SHA_512, 4096, b"salt", "x")
        gateway.run(gateway.broker.users.change([("x", credential)]))
        gateway.create_topic("free")
        authenticate(client, "x", "x")
        assert client.produce("free", batch_of(b"x")).error_code == errors.NONE


def test_rules_can_be_kept_to_though_nobody_is_asked_who_they_are(tmp_path_factory: pytest.TempPathFactory) -> None:
    options = BrokerOptions(rules_for_anonymous=True)
    with RunningGateway(tmp_path_factory.mktemp("anonymous"), broker_options=options) as gateway:
        gateway.create_topic("free")
        gateway.create_topic("closed")
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        allow(gateway, admin, "somebody", ResourceType.TOPIC, "closed", AclOperation.WRITE)
        with RawClient(gateway.port) as client:
            assert client.produce("free", batch_of(b"x")).error_code == errors.NONE
            assert codes_in(client.call(keys.PRODUCE, 9, produce_request("closed", batch_of(b"x")), ProduceResponse)) == {
                NOT_TOPIC
            }
        allow(gateway, admin, "ANONYMOUS", ResourceType.TOPIC, "closed", AclOperation.WRITE)
        with RawClient(gateway.port) as client:
            assert client.produce("closed", batch_of(b"x")).error_code == errors.NONE


def test_without_security_there_are_no_rules(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunningGateway(tmp_path_factory.mktemp("open")) as gateway:
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        with pytest.raises(KafkaException) as caught:
            allow(gateway, admin, "x", ResourceType.TOPIC, "t", AclOperation.READ)
        assert caught.value.args[0].code() == KafkaError.SECURITY_DISABLED
        with untidy_client():
            client = KafkaAdminClient(bootstrap_servers=gateway.bootstrap)
            pattern = ResourcePattern(PythonResourceType.GROUP, "python")
            with pytest.raises(SecurityDisabledError):
                client.describe_acls(ACLFilter("User:py", None, ACLOperation.ANY, ACLPermissionType.ANY, pattern))
            client.close()
            del client
