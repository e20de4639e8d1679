"""What clients may change about a broker: nothing, but they may tidy up what they never set."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType

from tests.e2e.kafka.running_gateway import NODE_ID, RunningGateway

TIMEOUT_S = 10


def test_a_broker_can_be_told_to_drop_settings_that_nobody_made(gateway: RunningGateway) -> None:
    """As kafka-reassign-partitions --verify does with its throttles."""
    _alter(gateway, AlterConfigOpType.DELETE, "")


def test_a_broker_cannot_be_set(gateway: RunningGateway) -> None:
    with pytest.raises(KafkaException, match=r"penstock\.toml"):
        _alter(gateway, AlterConfigOpType.SET, "1000")


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
