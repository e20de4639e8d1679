"""Configurations of topics that clients and frameworks set: what each does to messages, and that none of them is in the way."""

from __future__ import annotations

import time
from itertools import count

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from penstock.broker import TopicConfig
from penstock.kafka.protocol import errors
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_clients import VALUES, confluent_read, confluent_write, kafka_python_read

TIMEOUT_S = 20
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HOUR_MS = 3600 * 1000

_names = count()


@pytest.fixture(scope="module")
def admin(gateway: RunningGateway) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.bootstrap})


def made(admin: AdminClient, config: dict[str, str]) -> str:
    """A topic with this configuration."""
    name = f"configured-{next(_names)}"
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(TIMEOUT_S)
    return name


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {entry.name: entry.value for entry in found.values()}


@pytest.mark.parametrize(
    "config",
    [
        {"segment.bytes": "52428800", "segment.ms": "600000", "retention.ms": "-1", "message.timestamp.type": "CreateTime"},
        {"retention.ms": "-1", "retention.bytes": "-1", "flush.messages": "1", "flush.ms": "1000", "preallocate": "true"},
        {"segment.jitter.ms": "10", "segment.index.bytes": "1048576", "index.interval.bytes": "1", "file.delete.delay.ms": "1"},
        {"unclean.leader.election.enable": "true", "message.downconversion.enable": "false", "max.message.bytes": "2000000"},
        {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000", "min.insync.replicas": "1"},
        {"local.retention.ms": "-2", "local.retention.bytes": "100", "remote.storage.enable": "false"},
        {"remote.log.copy.disable": "true", "remote.log.delete.on.disable": "true"},
        {"compression.gzip.level": "9", "compression.lz4.level": "17", "compression.zstd.level": "-5"},
    ],
    ids=["connect", "flush", "segments", "elections", "timestamps", "tiers", "remote", "levels"],
)
def test_what_frameworks_set_is_taken_kept_and_shown(admin: AdminClient, config: dict[str, str]) -> None:
    name = made(admin, config)
    assert described(admin, ResourceType.TOPIC, name).items() >= config.items()


@pytest.mark.parametrize(
    "config",
    [
        {"segment.bytes": "3"},
        {"preallocate": "perhaps"},
        {"remote.storage.enable": "true"},
        {"message.timestamp.before.max.ms": "-1"},
        {"compression.type": "brotli"},
        {"compression.gzip.level": "0"},
        {"compression.zstd.level": "23"},
        {"min.insync.replicas": "4"},
    ],
)
def test_what_cannot_be_had_is_refused(admin: AdminClient, config: dict[str, str]) -> None:
    with pytest.raises(KafkaException) as caught:
        made(admin, config)
    assert caught.value.args[0].code() == errors.INVALID_CONFIG
    assert next(iter(config)) in caught.value.args[0].str()


def test_the_names_that_tools_look_for_are_among_the_brokers(admin: AdminClient) -> None:
    found = described(admin, ResourceType.BROKER, "1")
    for name in (
        "advertised.listeners",
        "auto.create.topics.enable",
        "compression.type",
        "default.replication.factor",
        "delete.topic.enable",
        "listeners",
        "log.cleanup.policy",
        "log.dirs",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.hours",
        "log.retention.ms",
        "log.segment.bytes",
        "message.max.bytes",
        "min.insync.replicas",
        "num.partitions",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "unclean.leader.election.enable",
    ):
        assert found[name] is not None


def test_deleting_an_unknown_configuration_changes_nothing(admin: AdminClient) -> None:
    """MirrorMaker deletes whatever has its default at the source, in one request with what it sets."""
    name = made(admin, {})
    entries = [
        ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("of.a.newer.kafka", None, incremental_operation=AlterConfigOpType.DELETE),
    ]
    changing = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin.incremental_alter_configs([changing])[changing].result(TIMEOUT_S)
    assert described(admin, ResourceType.TOPIC, name)["retention.ms"] == "1000"


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "1", "17"), ("zstd", "-1000", "22")])
def test_messages_are_recompressed_with_the_level_of_the_topic(
    admin: AdminClient, client: RawClient, codec: str, low: str, high: str
) -> None:
    values = [b"".join(b"%d is %x, " % (number, number * number) for number in range(start, start + 400)) for start in range(20)]
    sizes = []
    for level in (low, high):
        topic = made(admin, {"compression.type": codec, f"compression.{codec}.level": level})
        assert client.produce(topic, make_batch(values, timestamp=int(time.time() * 1000))).error_code == 0
        sizes.append(len(bytes(client.fetch(topic, 0).records or b"")))  # type: ignore[arg-type]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("wanted", CODECS)
def test_messages_are_stored_in_the_compression_that_the_topic_asks_for(
    gateway: RunningGateway, admin: AdminClient, client: RawClient, wanted: str
) -> None:
    topic = ""
    for sent in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = made(admin, {"compression.type": wanted})
        confluent_write(gateway.bootstrap, topic, sent)
        records = bytes(client.fetch(topic, 0).records or b"")  # type: ignore[arg-type]
        assert records[22] & 7 == CODECS[wanted]
        assert confluent_read(gateway.bootstrap, topic, len(VALUES)) == VALUES
    assert kafka_python_read(gateway.bootstrap, topic, len(VALUES)) == VALUES


def test_a_batch_that_is_stored_as_it_is_asked_for_is_not_touched(gateway: RunningGateway, client: RawClient) -> None:
    topic = gateway.run(gateway.broker.create_topic("untouched", 1, TopicConfig({"compression.type": "uncompressed"})))
    batch = make_batch([b"a", b"b"], timestamp=int(time.time() * 1000))
    client.produce(topic.name, batch)
    assert bytes(client.fetch(topic.name, 0).records or b"")[16:] == batch[16:]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "ahead_ms", "code"),
    [
        ({}, 2 * HOUR_MS, errors.INVALID_TIMESTAMP),
        ({}, HOUR_MS // 2, errors.NONE),
        ({}, -1000 * HOUR_MS, errors.NONE),
        ({"message.timestamp.before.max.ms": str(HOUR_MS)}, -2 * HOUR_MS, errors.INVALID_TIMESTAMP),
        ({"message.timestamp.before.max.ms": str(HOUR_MS)}, -HOUR_MS // 2, errors.NONE),
        ({"message.timestamp.after.max.ms": str(4 * HOUR_MS)}, 2 * HOUR_MS, errors.NONE),
        ({"message.timestamp.before.max.ms": "0", "message.timestamp.type": "LogAppendTime"}, -HOUR_MS, errors.NONE),
    ],
)
def test_a_timestamp_too_far_from_now_is_refused(
    admin: AdminClient, client: RawClient, config: dict[str, str], ahead_ms: int, code: int
) -> None:
    topic = made(admin, config)
    outcome = client.produce(topic, make_batch([b"x"], timestamp=int(time.time() * 1000) + ahead_ms))
    assert outcome.error_code == code


def test_a_message_without_a_timestamp_is_taken(admin: AdminClient, client: RawClient) -> None:
    topic = made(admin, {"message.timestamp.before.max.ms": "1"})
    assert client.produce(topic, make_batch([b"x"], timestamp=-1)).error_code == errors.NONE


def test_a_client_is_told_of_its_wrong_clock(gateway: RunningGateway, topic: str) -> None:
    told: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap})
    future_ms = int(time.time() * 1000) + 5 * HOUR_MS
    producer.produce(topic, b"x", timestamp=future_ms, on_delivery=lambda error, _: told.append(error))
    producer.flush(TIMEOUT_S)
    assert told[0] is not None
    assert told[0].code() == confluent_kafka.KafkaError.INVALID_TIMESTAMP
