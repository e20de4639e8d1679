"""What clients are told of a broker and its topics, and what they may change of it while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType

from penstock.broker import TopicConfig
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.testing.batches import make_keyed_batch
from tests.e2e.kafka.gateway_cluster import ASKED, NODES
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import NODE_ID, RunningGateway
from tests.e2e.kafka.test_produce import batch_of

TIMEOUT_S = 10
THROTTLE = "leader.replication.throttled.rate"


def test_a_broker_can_be_told_to_drop_settings_that_nobody_made(gateway: RunningGateway) -> None:
    """As kafka-reassign-partitions --verify does with its throttles."""
    _alter(gateway, AlterConfigOpType.DELETE, "")


def test_a_throttle_of_replicas_can_be_set_and_dropped(gateway: RunningGateway) -> None:
    """As kafka-reassign-partitions --throttle does; there is nothing that it would slow down."""
    _alter(gateway, AlterConfigOpType.SET, "1000")
    assert _described(gateway, ResourceType.BROKER, str(NODE_ID))[THROTTLE] == ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    _alter(gateway, AlterConfigOpType.DELETE, "")
    assert THROTTLE not in _described(gateway, ResourceType.BROKER, str(NODE_ID))


@pytest.mark.parametrize("name", ["group.max.size", "num.partitions", "node.id", "there.is.no.such.setting"])
def test_what_is_set_where_a_broker_is_started_cannot_be_changed(gateway: RunningGateway, name: str) -> None:
    with pytest.raises(KafkaException, match=r"cannot update these configs dynamically: .*penstock\.toml") as caught:
        _alter(gateway, AlterConfigOpType.SET, "1000", name=name)
    assert caught.value.args[0].code() == errors.INVALID_REQUEST


def test_a_value_that_cannot_be_had_and_another_broker_are_refused(gateway: RunningGateway) -> None:
    for broker, value in ((str(NODE_ID), "soon"), ("", "-7"), ("99", "1000")):
        assert _alter_any(gateway, broker, "log.retention.ms", value) == errors.INVALID_REQUEST
    assert "log.retention.ms" not in _described(gateway, ResourceType.BROKER, "")


def test_topics_inherit_what_is_set_for_brokers_unless_they_set_it_themselves(tmp_path: Path) -> None:
    with RunningGateway(tmp_path) as gateway:
        gateway.create_topic("inherits")
        gateway.run(gateway.broker.create_topic("own", 1, TopicConfig({"retention.ms": "5000"})))
        assert _alter_any(gateway, "", "log.retention.ms", "7000") == errors.NONE
        assert _alter_any(gateway, "", "message.max.bytes", "1000") == errors.NONE
        _alter(gateway, AlterConfigOpType.SET, "9000", name="log.retention.ms")
        for _ in range(2):
            found = _described(gateway, ResourceType.BROKER, str(NODE_ID))
            assert found["log.retention.ms"] == ("9000", ConfigSource.DYNAMIC_BROKER_CONFIG)
            assert found["message.max.bytes"] == ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            assert _described(gateway, ResourceType.BROKER, "")["log.retention.ms"][0] == "7000"
            inherits, own = (_described(gateway, ResourceType.TOPIC, name) for name in ("inherits", "own"))
            assert inherits["retention.ms"] == ("9000", ConfigSource.DYNAMIC_BROKER_CONFIG)
            assert own["retention.ms"] == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
            assert _kept_ms(gateway, "inherits") == 9000
            assert _kept_ms(gateway, "own") == 5000
            with RawClient(gateway.port) as client:
                assert client.produce("inherits", batch_of(bytes(2000))).error_code == errors.MESSAGE_TOO_LARGE
            gateway.restart()
        gateway.create_topic("later")
        assert _kept_ms(gateway, "later") == 9000
        gateway.run(gateway.broker.configure_topic("later", TopicConfig({"segment.ms": "60000"})))
        assert _kept_ms(gateway, "later") == 9000
        for broker in ("", str(NODE_ID)):
            assert _alter_any(gateway, broker, "log.retention.ms", None) == errors.NONE
        assert _kept_ms(gateway, "inherits") == _kept_ms(gateway, "later") == 7 * 24 * 3600 * 1000
        assert _described(gateway, ResourceType.TOPIC, "inherits")["retention.ms"][1] == ConfigSource.DEFAULT_CONFIG


def test_a_topic_that_contradicts_what_brokers_are_set_to_is_still_served(tmp_path: Path) -> None:
    with RunningGateway(tmp_path) as gateway:
        gateway.run(gateway.broker.create_topic("t", 1, TopicConfig({"min.compaction.lag.ms": "5000"})))
        assert _alter_any(gateway, "", "log.cleaner.max.compaction.lag.ms", "1000") == errors.NONE
        gateway.restart()
        with RawClient(gateway.port) as client:
            assert client.produce("t", batch_of(b"a")).base_offset == 0


def test_the_number_of_connections_is_limited_anew(tmp_path: Path) -> None:
    with RunningGateway(tmp_path) as gateway:
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        entry = ConfigEntry("max.connections", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(NODE_ID if NODES == 1 else ASKED), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        gateway.settle()
        with RawClient(gateway.port) as refused:
            assert refused.receive_frame() is None


def test_all_settings_of_a_broker_are_replaced_or_only_checked(gateway: RunningGateway, client: RawClient) -> None:
    def alter(settings: dict[str, str], *, validate_only: bool = False) -> int:
        configs = [AlterableConfig(name=name, value=value) for name, value in settings.items()]
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
        request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        return client.call(keys.ALTER_CONFIGS, 1, request, AlterConfigsResponse).responses[0].error_code

    assert alter({"log.segment.bytes": "2000000", "log.roll.ms": "1000"}) == errors.NONE
    assert alter({"log.roll.ms": "2000"}, validate_only=True) == errors.NONE
    assert alter({"log.roll.ms": "x"}, validate_only=True) == errors.INVALID_REQUEST
    assert set(_described(gateway, ResourceType.BROKER, "")) == {"log.segment.bytes", "log.roll.ms"}
    assert alter({"log.roll.ms": "3000"}) == errors.NONE
    assert {name: value for name, (value, _) in _described(gateway, ResourceType.BROKER, "").items()} == {"log.roll.ms": "3000"}
    assert alter({}) == errors.NONE
    assert _described(gateway, ResourceType.BROKER, "") == {}


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


def _alter(gateway: RunningGateway, operation: AlterConfigOpType, value: str, *, name: str = THROTTLE) -> None:
    """As a client's library does it, for this broker."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, str(NODE_ID), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def _alter_any(gateway: RunningGateway, broker: str, name: str, value: str | None) -> int:
    """For whichever broker: the library knows no name for all of them. None deletes."""
    change = IncrementalAlterableConfig(name=name, config_operation=int(value is None), value=value)
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    with RawClient(gateway.port) as client:
        response = client.call(keys.INCREMENTAL_ALTER_CONFIGS, 1, request, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


def _described(gateway: RunningGateway, kind: ResourceType, name: str) -> dict[str, tuple[str, ConfigSource]]:
    resource = DescribeConfigsResource(resource_type=kind.value, resource_name=name, configuration_keys=None)
    with RawClient(gateway.port) as client:
        request = DescribeConfigsRequest(resources=[resource])
        result = client.call(keys.DESCRIBE_CONFIGS, 4, request, DescribeConfigsResponse).results[0]
    assert result.error_code == errors.NONE
    return {one.name: (one.value or "", ConfigSource(one.config_source)) for one in result.configs}


def _kept_ms(gateway: RunningGateway, topic: str) -> int | None:
    """By what the partition itself goes."""
    return gateway.partition(topic).config.retention_ms


def test_what_the_broker_alone_decides_is_shown_as_set_by_it(gateway: RunningGateway) -> None:
    gateway.create_topic("decided")
    resource = ConfigResource(ResourceType.TOPIC, "decided")
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    set_ = {entry.name: (entry.value, ConfigSource(entry.source)) for entry in found.values() if not entry.is_default}
    assert set_ == {"min.insync.replicas": ("1", ConfigSource.STATIC_BROKER_CONFIG)}
