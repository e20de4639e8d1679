"""Internal topics of the broker: clients see them and cannot change them."""

from __future__ import annotations

import pytest

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.kafka.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from penstock.kafka.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.kafka.protocol.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
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
    DeleteTopicState,
)
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import NODE_ID, RunningGateway

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
GROUP, TRANSACTION = 0, 1
TOPIC_RESOURCE = 2


def find(client: RawClient, key_type: int, version: int = 4) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k", "l"])
    return client.call(keys.FIND_COORDINATOR, version, request, FindCoordinatorResponse)


def shown(client: RawClient, name: str) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return client.call(keys.METADATA, 12, request, MetadataResponse).topics[0]


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found_in_every_version(client: RawClient, gateway: RunningGateway, version: int) -> None:
    found = find(client, GROUP, version)
    if version >= 4:
        assert [(one.key, one.node_id, one.port, one.error_code) for one in found.coordinators] == [
            ("k", NODE_ID, gateway.coordinator_port, errors.NONE),
            ("l", NODE_ID, gateway.coordinator_port, errors.NONE),
        ]
    else:
        assert (found.node_id, found.port, found.error_code) == (NODE_ID, gateway.coordinator_port, errors.NONE)


@pytest.mark.parametrize(("key_type", "name"), [(GROUP, OFFSETS), (TRANSACTION, TRANSACTIONS)])
def test_a_topic_is_there_once_its_coordinator_was_asked_for(client: RawClient, key_type: int, name: str) -> None:
    find(client, key_type)
    topic = shown(client, name)
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (errors.NONE, True, 1)
    listed = client.call(keys.METADATA, 12, MetadataRequest(topics=None), MetadataResponse).topics
    assert [one.is_internal for one in listed if one.name == name] == [True]


def test_its_settings_are_told(client: RawClient) -> None:
    find(client, GROUP)
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=OFFSETS, configuration_keys=None)]
    )
    result = client.call(keys.DESCRIBE_CONFIGS, 4, request, DescribeConfigsResponse).results[0]
    assert {config.name: config.value for config in result.configs}["cleanup.policy"] == "compact"


def test_it_can_be_read(client: RawClient, gateway: RunningGateway) -> None:
    find(client, GROUP)
    with RawClient(gateway.coordinator_port) as reader:
        data = reader.fetch(OFFSETS, 0)
        asked = ListOffsetsTopic(name=OFFSETS, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        found = reader.call(keys.LIST_OFFSETS, 7, ListOffsetsRequest(topics=[asked]), ListOffsetsResponse)
    assert (data.error_code, data.high_watermark, data.records) == (errors.NONE, 0, b"")
    assert (found.topics[0].partitions[0].error_code, found.topics[0].partitions[0].offset) == (errors.NONE, 0)


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
@pytest.mark.parametrize("validate_only", [True, False])
def test_nobody_makes_it(client: RawClient, name: str, validate_only: bool) -> None:
    asked = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[asked], timeout_ms=1000, validate_only=validate_only)
    result = client.call(keys.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics[0]
    assert result.error_code == errors.INVALID_TOPIC_EXCEPTION
    assert "kept by the broker" in (result.error_message or "")


def test_nobody_deletes_trims_grows_or_writes_it(client: RawClient) -> None:
    find(client, GROUP)
    deleted = client.call(
        keys.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[DeleteTopicState(name=OFFSETS)]), DeleteTopicsResponse
    )
    assert deleted.responses[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    grown = client.call(
        keys.CREATE_PARTITIONS,
        3,
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=OFFSETS, count=5, assignments=None)]),
        CreatePartitionsResponse,
    )
    assert grown.results[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    trim = DeleteRecordsTopic(name=OFFSETS, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    trimmed = client.call(keys.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[trim]), DeleteRecordsResponse)
    assert trimmed.topics[0].partitions[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    written = client.produce(OFFSETS, make_batch([b"value"], key=b"key"))
    assert written.error_code == errors.INVALID_TOPIC_EXCEPTION
    assert shown(client, OFFSETS).error_code == errors.NONE
