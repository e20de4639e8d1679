"""What clients are told of a broker and its topics, and what they may change: nothing, but they may tidy up."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType

from penstock.broker import TopicConfig
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.testing.batches import make_keyed_batch
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import NODE_ID, RunningGateway

TIMEOUT_S = 10


def test_a_broker_can_be_told_to_drop_settings_that_nobody_made(gateway: RunningGateway) -> None:
    """As kafka-reassign-partitions --verify does with its throttles."""
    _alter(gateway, AlterConfigOpType.DELETE, "")


def test_a_broker_cannot_be_set(gateway: RunningGateway) -> None:
    with pytest.raises(KafkaException, match=r"penstock\.toml"):
        _alter(gateway, AlterConfigOpType.SET, "1000")


def test_what_may_be_done_is_told_of_topics_that_are_not_there_as_well(client: RawClient, topic: str) -> None:
    asked = [MetadataRequestTopic(name=name) for name in (topic, "not-there")]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    response = client.call(keys.METADATA, 9, request, MetadataResponse)
    assert [found.error_code for found in response.topics] == [errors.NONE, errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert all(found.topic_authorized_operations > 0 for found in response.topics)


def test_messages_that_are_at_fault_are_told_from_those_in_the_same_batch(gateway: RunningGateway, client: RawClient) -> None:
    gateway.run(gateway.broker.create_topic("compacted", 1, TopicConfig({"cleanup.policy": "compact"})))
    outcome = client.produce("compacted", make_keyed_batch([(b"k", b"x"), (None, b"y"), (None, b"z")]))
    assert outcome.error_code == errors.INVALID_RECORD
    assert [one.batch_index for one in outcome.record_errors] == [1, 2]
    assert outcome.base_offset == -1


def _alter(gateway: RunningGateway, operation: AlterConfigOpType, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    entry = ConfigEntry("leader.replication.throttled.rate", value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, str(NODE_ID), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_what_the_broker_alone_decides_is_shown_as_set_by_it(gateway: RunningGateway) -> None:
    gateway.create_topic("decided")
    resource = ConfigResource(ResourceType.TOPIC, "decided")
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    set_ = {entry.name: (entry.value, ConfigSource(entry.source)) for entry in found.values() if not entry.is_default}
    assert set_ == {"min.insync.replicas": ("1", ConfigSource.STATIC_BROKER_CONFIG)}
