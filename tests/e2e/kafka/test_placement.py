"""Elections and moves of partitions: there is nothing to elect and nowhere to move, and clients are told so."""

from __future__ import annotations

import warnings

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.e2e.kafka.gateway_cluster import NODES
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import NODE_ID, RunningGateway
from tests.e2e.kafka.untidy_client import untidy_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.admin import KafkaAdminClient

TIMEOUT_S = 20


@pytest.mark.parametrize("kind", [ElectionType.PREFERRED, ElectionType.UNCLEAN])
def test_no_election_is_needed(gateway: RunningGateway, topic: str, kind: ElectionType) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition("there-is-none", 0)]
    results = admin.elect_leaders(kind, asked).result(TIMEOUT_S)
    codes = {(one.topic, one.partition): error.code() for one, error in results.items()}
    assert codes == {
        (topic, 0): KafkaError.ELECTION_NOT_NEEDED,
        (topic, 1): KafkaError.UNKNOWN_TOPIC_OR_PART,
        ("there-is-none", 0): KafkaError.UNKNOWN_TOPIC_OR_PART,
    }


@pytest.mark.parametrize("version", range(3))
def test_an_election_for_all_names_only_what_has_no_leader(client: RawClient, topic: str, version: int) -> None:
    response = client.call(keys.ELECT_LEADERS, version, ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse)
    assert (response.error_code, response.replica_election_results) == (errors.NONE, [])


def test_an_unknown_kind_of_election_is_refused(client: RawClient) -> None:
    request = ElectLeadersRequest(election_type=7, topic_partitions=[])
    assert client.call(keys.ELECT_LEADERS, 2, request, ElectLeadersResponse).error_code == errors.INVALID_REQUEST


@pytest.mark.parametrize(
    ("partition", "replicas", "code"),
    [
        (0, [NODE_ID], errors.NONE),
        (0, [NODES + 1], errors.INVALID_REPLICA_ASSIGNMENT),
        (0, [NODE_ID, NODE_ID], errors.INVALID_REPLICA_ASSIGNMENT),
        (0, [], errors.INVALID_REPLICA_ASSIGNMENT),
        (0, None, errors.NO_REASSIGNMENT_IN_PROGRESS),
        (7, [NODE_ID], errors.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_can_only_be_where_it_is(
    client: RawClient, topic: str, partition: int, replicas: list[int] | None, code: int
) -> None:
    moved = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)])
    request = AlterPartitionReassignmentsRequest(topics=[moved])
    response = client.call(keys.ALTER_PARTITION_REASSIGNMENTS, 1, request, AlterPartitionReassignmentsResponse)
    assert response.error_code == errors.NONE
    assert response.responses[0].partitions[0].error_code == code


def test_no_reassignment_is_in_progress(gateway: RunningGateway, topic: str) -> None:
    with untidy_client():
        admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap)
        admin.alter_partition_reassignments({kafka.TopicPartition(topic, 0): [NODE_ID]})
        assert admin.list_partition_reassignments() == {}
        assert admin.list_partition_reassignments([kafka.TopicPartition(topic, 0)]) == {}
        admin.close()
        del admin
