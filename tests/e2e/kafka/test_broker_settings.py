"""What clients may change about a broker: nothing, but they may tidy up what they never set."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

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
