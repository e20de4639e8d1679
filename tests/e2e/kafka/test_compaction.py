"""Compacted topics as clients see them: the last message of each key, whatever they use to write and read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec, ResourceType

from penstock.broker import BrokerOptions, CompactionOptions
from penstock.queue import Partition
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_clients import aiokafka_read, kafka_python_read

TIMEOUT_S = 20.0
# The last messages are compacted as well, and at once.
EAGER = {"cleanup.policy": "compact", "segment.bytes": "14", "min.cleanable.dirty.ratio": "0"}

_names = count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose broker compacts all the time."""
    options = BrokerOptions(compaction=CompactionOptions(interval_s=0.05))
    with RunningGateway(tmp_path_factory.mktemp("compaction"), broker_options=options) as running:
        yield running


@pytest.fixture
def admin(gateway: RunningGateway) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.bootstrap})


def _made(admin: AdminClient, **changed: str) -> str:
    name = f"compacted-{next(_names)}"
    config = EAGER | {key.replace("_", "."): value for key, value in changed.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(TIMEOUT_S)
    return name


def _partition(gateway: RunningGateway, topic: str) -> Partition:
    return gateway.partition(topic)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _compacted(gateway: RunningGateway, topic: str) -> Partition:
    """Wait until all that was written is compacted."""
    partition = _partition(gateway, topic)
    _until(lambda: partition.clean.clean_to == partition.end_offset)
    return partition


def _write(gateway: RunningGateway, topic: str, pairs: list[tuple[str, str | None]], **options: Any) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 5, **options})
    failures: list[KafkaError] = []
    for key, value in pairs:
        producer.produce(topic, key=key, value=value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def _read(
    gateway: RunningGateway, topic: str, offset: int = OFFSET_BEGINNING, isolation: str = "read_committed"
) -> list[Message]:
    """Everything from an offset to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found.append(message)
    consumer.close()
    return found


def _view(messages: list[Message]) -> list[tuple[int, str, str | None]]:
    return [(message.offset() or 0, _text(message.key()) or "", _text(message.value())) for message in messages]


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_reader_from_the_start_sees_the_last_values(gateway: RunningGateway, admin: AdminClient, codec: str) -> None:
    topic = _made(admin)
    pairs: list[tuple[str, str | None]] = [(f"key-{number % 7}", f"value-{number}") for number in range(200)]
    _write(gateway, topic, pairs, **{"compression.type": codec})
    _compacted(gateway, topic)
    expected = [(offset, f"key-{offset % 7}", f"value-{offset}") for offset in range(193, 200)]
    assert _view(_read(gateway, topic)) == expected
    for read in (kafka_python_read, aiokafka_read):
        assert read(gateway.bootstrap, topic, 7) == [(value or "").encode() for _, _, value in expected]


def test_a_restart_changes_nothing_and_cold_bodies_are_read_from_their_files(gateway: RunningGateway, admin: AdminClient) -> None:
    topic = _made(admin)
    for begin in (0, 500):
        _write(gateway, topic, [(f"key-{number % 30}", "x" * 3000) for number in range(begin, begin + 500)])
        _compacted(gateway, topic)
    expected = [offset for offset, _, _ in _view(_read(gateway, topic))]
    assert expected == list(range(970, 1000))
    gateway.restart()
    assert [offset for offset, _, _ in _view(_read(gateway, topic))] == expected


def test_a_consumer_whose_offset_fell_in_a_gap_goes_on_behind_it(gateway: RunningGateway, admin: AdminClient) -> None:
    topic = _made(admin)
    _write(gateway, topic, [("a", "0"), ("b", "1"), *(("c", str(number)) for number in range(2, 50)), ("a", "50")])
    _compacted(gateway, topic)
    for offset, expected in ((0, [1, 49, 50]), (1, [1, 49, 50]), (2, [49, 50]), (30, [49, 50]), (50, [50]), (51, [])):
        assert [at for at, _, _ in _view(_read(gateway, topic, offset))] == expected
    gateway.restart()
    assert [at for at, _, _ in _view(_read(gateway, topic, 30))] == [49, 50]


def test_a_reader_gets_to_the_end_of_a_topic_of_which_nothing_is_left(gateway: RunningGateway, admin: AdminClient) -> None:
    topic = _made(admin, delete_retention_ms="0")
    _write(gateway, topic, [("a", "value"), ("a", None), ("b", None)])
    partition = _compacted(gateway, topic)
    _until(lambda: not partition.clean.passes)
    assert _view(_read(gateway, topic)) == []
    _write(gateway, topic, [("a", "again")])
    assert _view(_read(gateway, topic)) == [(3, "a", "again")]


def test_an_idempotent_producer_goes_on_though_its_batches_are_compacted(gateway: RunningGateway, admin: AdminClient) -> None:
    topic = _made(admin)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(6):
        producer.produce(topic, key="only", value=str(number))
        assert producer.flush(TIMEOUT_S) == 0
        _compacted(gateway, topic)
        if number == 3:
            gateway.restart()
    assert _view(_read(gateway, topic)) == [(5, "only", "5")]


def test_transactions_are_honoured(gateway: RunningGateway, admin: AdminClient) -> None:
    topic = _made(admin)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": f"writer-of-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    for number in range(12):
        producer.begin_transaction()
        producer.produce(topic, key=f"key-{number % 3}", value=str(number))
        if number % 4 == 3:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    _compacted(gateway, topic)
    expected = [("key-1", "10"), ("key-0", "9"), ("key-2", "8")]
    committed = _read(gateway, topic, isolation="read_committed")
    assert sorted((key, value) for _, key, value in _view(committed)) == sorted(expected)
    assert sorted((key, value) for _, key, value in _view(_read(gateway, topic, isolation="read_uncommitted"))) == (
        sorted(expected)
    )
    # What is open stays as it is until it is decided.
    producer.begin_transaction()
    producer.produce(topic, key="key-0", value="open")
    producer.flush(TIMEOUT_S)
    time.sleep(0.3)
    assert len(_read(gateway, topic, isolation="read_uncommitted")) == 4
    producer.commit_transaction(TIMEOUT_S)
    _compacted(gateway, topic)
    assert ("key-0", "open") in [(key, value) for _, key, value in _view(_read(gateway, topic))]
    assert len(_read(gateway, topic)) == 3


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_message_without_a_key_is_refused_with_its_batch_and_nothing_else_is(
    gateway: RunningGateway, admin: AdminClient, codec: str
) -> None:
    topic, other = _made(admin), _made(admin, cleanup_policy="delete")
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 200, "compression.type": codec})
    producer.produce(topic, key="a", value="1", on_delivery=lambda error, _: outcomes.append(error))
    producer.produce(topic, value="without a key", on_delivery=lambda error, _: outcomes.append(error))
    producer.produce(other, value="without a key", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    codes = sorted(0 if error is None else error.code() for error in outcomes)
    assert codes == [0, KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD]
    _write(gateway, topic, [("a", "2")])
    assert _view(_read(gateway, topic)) == [(0, "a", "2")]


def test_the_configuration_is_shown_and_can_be_changed(gateway: RunningGateway, admin: AdminClient) -> None:
    config = {
        "delete.retention.ms": "1000",
        "min.compaction.lag.ms": "20",
        "max.compaction.lag.ms": "3000",
        "min.cleanable.dirty.ratio": "0.25",
        "segment.ms": "5000",
    }
    topic = _made(admin, **{key.replace(".", "_"): value for key, value in config.items()}, cleanup_policy="delete, compact")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert {key: found[key].value for key in config} == config
    assert found["cleanup.policy"].value == "delete,compact"
    asked = _partition(gateway, topic).config
    assert (asked.is_compacted, asked.retention_ms, asked.min_dirty_ratio) == (True, 7 * 24 * 3600 * 1000, 0.25)
    assert (asked.delete_retention_ms, asked.min_compaction_lag_ms, asked.max_compaction_lag_ms) == (1000, 20, 3000)
    resource.add_incremental_config(ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    gateway.settle()
    assert _partition(gateway, topic).config.retention_ms is None


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup_policy": ","},
        {"cleanup_policy": "shrink"},
        {"cleanup_policy": "compact,shrink"},
        {"min_cleanable_dirty_ratio": "1.5"},
        {"min_cleanable_dirty_ratio": "much"},
        {"delete_retention_ms": "-1"},
        {"max_compaction_lag_ms": "0"},
        {"min_compaction_lag_ms": "2", "max_compaction_lag_ms": "1"},
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(admin: AdminClient, config: dict[str, str]) -> None:
    with pytest.raises(KafkaException) as caught:
        _made(admin, **config)
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert next(iter(config)).replace("_", ".") in caught.value.args[0].str()


def test_a_topic_without_a_policy_keeps_everything(gateway: RunningGateway, admin: AdminClient) -> None:
    topic = _made(admin, cleanup_policy="delete", retention_ms="1000", retention_bytes="1000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT))
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    gateway.settle()
    asked = _partition(gateway, topic).config
    assert (asked.is_compacted, asked.retention_ms, asked.retention_bytes) == (False, None, None)
    assert admin.describe_configs([resource])[resource].result(TIMEOUT_S)["cleanup.policy"].value == ""


def test_a_topic_that_becomes_compacted_is_compacted(gateway: RunningGateway, admin: AdminClient) -> None:
    topic = _made(admin, cleanup_policy="delete")
    _write(gateway, topic, [("a", str(number)) for number in range(20)])
    time.sleep(0.2)
    assert len(_read(gateway, topic)) == 20
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND))
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    _compacted(gateway, topic)
    assert _view(_read(gateway, topic)) == [(19, "a", "19")]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_offsets_by_time_are_those_of_what_is_left(gateway: RunningGateway, admin: AdminClient, kind: str) -> None:
    topic = _made(admin, message_timestamp_type=kind)
    began_ms = int(time.time() * 1000)
    _write(gateway, topic, [("a", "0"), ("b", "1"), ("a", "2"), ("c", "3"), ("a", "4")])
    _compacted(gateway, topic)

    def found(time_ms: int) -> int:
        asked = {TopicPartition(topic, 0): OffsetSpec.for_timestamp(time_ms)}
        listed = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        offset: int = next(iter(listed.values())).result(TIMEOUT_S).offset
        return offset

    assert found(began_ms - 1000) == 1
    assert found(int(time.time() * 1000) + 60_000) == -1
