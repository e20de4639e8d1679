"""Transactions with unchanged clients: commit, abort, fencing, positions that appear with the data, timeouts, isolation."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.broker import BrokerOptions
from penstock.broker.transactions import TransactionOptions
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.untidy_client import untidy_client

with warnings.catch_warnings():
    # Two clients use what newer Pythons want to be rid of; that is theirs to mend.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import ProducerFenced

TIMEOUT_S = 20.0
QUIET_S = 0.3


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose broker looks for late transactions often."""
    options = BrokerOptions(transactions=TransactionOptions(check_interval_s=0.1))
    with RunningGateway(tmp_path_factory.mktemp("gateway"), broker_options=options) as running:
        yield running


def _producer(gateway: RunningGateway, transactional_id: str, **more: object) -> Producer:
    config = {"bootstrap.servers": gateway.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **more}
    producer = Producer(config)
    producer.init_transactions(TIMEOUT_S)
    return producer


def _read(gateway: RunningGateway, topic: str, *, isolation: str, count: int) -> list[bytes | None]:
    """`count` values from the start of a topic, and any that come after them for a moment."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": f"reader-{isolation}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return _poll(consumer, count)
    finally:
        consumer.close()


def _poll(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
    more = consumer.poll(QUIET_S)
    return found if more is None else [*found, more.value()]


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(gateway: RunningGateway, topic: str) -> None:
    producer = _producer(gateway, f"id-{topic}")
    for value, commit in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    assert _read(gateway, topic, isolation="read_committed", count=2) == [b"one", b"three"]
    assert _read(gateway, topic, isolation="read_uncommitted", count=3) == [b"one", b"two", b"three"]


def test_what_is_not_ended_yet_is_hidden_from_readers_of_committed_data(gateway: RunningGateway, topic: str) -> None:
    producer = _producer(gateway, f"id-{topic}")
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(TIMEOUT_S)
    assert _read(gateway, topic, isolation="read_committed", count=0) == []
    assert _read(gateway, topic, isolation="read_uncommitted", count=1) == [b"open"]
    producer.commit_transaction(TIMEOUT_S)
    assert _read(gateway, topic, isolation="read_committed", count=1) == [b"open"]


def test_a_second_producer_of_one_id_fences_the_first(gateway: RunningGateway, topic: str) -> None:
    zombie = _producer(gateway, f"id-{topic}")
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush(TIMEOUT_S)
    heir = _producer(gateway, f"id-{topic}")
    heir.begin_transaction()
    heir.produce(topic, b"heir")
    heir.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].fatal()
    assert _read(gateway, topic, isolation="read_committed", count=1) == [b"heir"]


def test_positions_appear_with_the_transaction_or_not_at_all(gateway: RunningGateway, topic: str) -> None:
    source, group = f"{topic}-source", f"group-{topic}"
    gateway.create_topic(source)
    plain = Producer({"bootstrap.servers": gateway.bootstrap})
    for number in range(10):
        plain.produce(source, str(number))
    plain.flush(TIMEOUT_S)
    producer = _producer(gateway, f"id-{topic}")
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([source])
        for end, commit in ((4, False), (6, True)):
            producer.begin_transaction()
            producer.produce(topic, f"upto-{end}".encode())
            while not consumer.assignment():
                consumer.poll(0.1)
            place = TopicPartition(source, 0, end)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)
            if commit:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
            (committed,) = consumer.committed([TopicPartition(source, 0)], TIMEOUT_S)
            assert committed.offset == (6 if commit else -1001)
    finally:
        consumer.close()
    assert _read(gateway, topic, isolation="read_committed", count=1) == [b"upto-6"]


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(gateway: RunningGateway, topic: str) -> None:
    producer = _producer(gateway, f"id-{topic}", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce(topic, b"late")
    producer.flush(TIMEOUT_S)
    transactions = gateway.broker.transactions
    _wait_for(lambda: transactions.transaction(f"id-{topic}").state.value == "CompleteAbort")
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    partition = gateway.partition(topic)
    assert partition.stable_offset == partition.end_offset
    assert _read(gateway, topic, isolation="read_committed", count=0) == []


def test_an_open_transaction_goes_on_after_a_restart_of_the_broker(gateway: RunningGateway, topic: str) -> None:
    producer = _producer(gateway, f"id-{topic}")
    producer.begin_transaction()
    producer.produce(topic, b"before")
    producer.flush(TIMEOUT_S)
    gateway.restart()
    producer.produce(topic, b"after")
    producer.commit_transaction(TIMEOUT_S)
    assert _read(gateway, topic, isolation="read_committed", count=2) == [b"before", b"after"]


def test_aiokafka_consumes_transforms_and_produces(gateway: RunningGateway, topic: str) -> None:
    source, group = f"{topic}-source", f"group-{topic}"
    gateway.create_topic(source)
    asyncio.run(_aiokafka_scenario(gateway.bootstrap, source, topic, group))


async def _aiokafka_scenario(bootstrap: str, source: str, target: str, group: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as plain:
        for number in range(6):
            await plain.send_and_wait(source, str(number).encode())
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"aio-{target}")
    async with consumer, producer:
        for _ in range(3):
            batch = await consumer.getmany(timeout_ms=10_000, max_records=2)
            async with producer.transaction():
                for place, messages in batch.items():
                    for message in messages:
                        await producer.send(target, b"<" + message.value + b">")
                    await producer.send_offsets_to_transaction({place: messages[-1].offset + 1}, group)
        with pytest.raises(RuntimeError, match="on purpose"):
            await _fail_in_transaction(producer, target)
    assert await _aiokafka_read(bootstrap, target, 6) == [b"<%d>" % number for number in range(6)]
    assert await _committed(bootstrap, source, group) == 6
    await _fence(bootstrap, target)


async def _fail_in_transaction(producer: Any, target: str) -> None:
    async with producer.transaction():
        await producer.send_and_wait(target, b"aborted")
        raise RuntimeError("on purpose")


async def _committed(bootstrap: str, source: str, group: str) -> int | None:
    consumer = AIOKafkaConsumer(source, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    async with consumer:
        (place,) = consumer.assignment()
        found: int | None = await consumer.committed(place)
        return found


async def _aiokafka_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed", group_id=None
    )
    async with consumer:
        while len(found) < count:
            found.append((await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value)
        assert await consumer.getmany(timeout_ms=int(QUIET_S * 1000)) == {}
    return found


async def _fence(bootstrap: str, target: str) -> None:
    first = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"fence-{target}")
    second = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"fence-{target}")
    await first.start()
    await first.begin_transaction()
    await first.send_and_wait(target, b"first")
    await second.start()
    with pytest.raises(ProducerFenced):
        await first.commit_transaction()
    await second.stop()
    await first.stop()


@untidy_client()
def test_kafka_python_commits_and_aborts(gateway: RunningGateway, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=gateway.bootstrap, transactional_id=f"id-{topic}")
    producer.init_transactions()
    for value, commit in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        producer.send(topic, value).get(TIMEOUT_S)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=gateway.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=2000,
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    assert [message.value for message in consumer] == [b"one", b"three"]
    assert consumer.end_offsets([place]) == {place: 6}
    consumer.close()
