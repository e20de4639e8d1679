"""Settings of single groups, as administrators set them."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from penstock.broker.groups import Heartbeat
from penstock.kafka.protocol import keys
from penstock.kafka.protocol.configs import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DEFAULT, OWN = 5, 8  # where a value comes from, as Kafka numbers it
GROUP = 32
WAIT_S = 10.0


class Settings:
    """The settings of one group, through an administrator's client."""

    def __init__(self, gateway: RunningGateway, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        self._name = name

    def change(self, name: str, value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.GROUP, self._name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def all(self) -> dict[str, tuple[str, int]]:
        resource = ConfigResource(ResourceType.GROUP, self._name)
        found = self._admin.describe_configs([resource])[resource].result(WAIT_S)
        return {name: (entry.value, int(entry.source)) for name, entry in found.items()}


def join(gateway: RunningGateway, group: str, member: str) -> int:
    """The heartbeat interval that a new member is told."""
    beat = Heartbeat(member, 0, names=frozenset({"t"}), owned=frozenset(), rebalance_timeout_ms=1000)
    return gateway.run(gateway.broker.groups.consumer.heartbeat(group, beat)).heartbeat_interval_ms


def test_a_setting_is_used_told_and_taken_back(gateway: RunningGateway) -> None:
    settings = Settings(gateway, "set-up")
    default = {INTERVAL: ("5000", DEFAULT), SESSION: ("45000", DEFAULT)}
    assert settings.all() == default
    assert join(gateway, "set-up", "one") == 5000
    settings.change(INTERVAL, "700")
    settings.change(SESSION, "50000")
    assert settings.all() == {
        INTERVAL: ("700", OWN),
        SESSION: ("50000", OWN),
    }
    assert join(gateway, "set-up", "one") == 700
    gateway.restart()
    assert join(gateway, "set-up", "one") == 700
    settings = Settings(gateway, "set-up")
    settings.change(INTERVAL, None)
    settings.change(SESSION, None)
    assert settings.all() == default
    assert join(gateway, "set-up", "one") == 5000


def test_groups_with_settings_are_listed(gateway: RunningGateway, client: RawClient) -> None:
    Settings(gateway, "not-there-yet").change(SESSION, "50000")
    request = ListConfigResourcesRequest(resource_types=[GROUP])
    found = client.call(keys.LIST_CONFIG_RESOURCES, 1, request, ListConfigResourcesResponse)
    assert "not-there-yet" in [one.resource_name for one in found.config_resources]


@pytest.mark.parametrize(
    ("name", "value"), [("consumer.colour", "red"), (SESSION, "soon"), (SESSION, "1"), (SESSION, "4000"), (INTERVAL, "46000")]
)
def test_what_cannot_be_set_is_refused(gateway: RunningGateway, name: str, value: str) -> None:
    settings = Settings(gateway, "refused")
    with pytest.raises(confluent_kafka.KafkaException):
        settings.change(name, value)
    assert {source for _, source in settings.all().values()} == {DEFAULT}
