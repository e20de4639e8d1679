"""Clients as their users run them: each writes with every compression, and each reads what any of them wrote."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from tests.debian_tools import NotAvailableError, Tool, unpacked_tool
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.untidy_client import untidy_client

with warnings.catch_warnings():
    # Two clients use what newer Pythons want to be rid of; that is theirs to mend.
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka
    import kafka

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = [b"value %d " % number * 10 for number in range(500)]

Write = Callable[[str, str, str], None]
Read = Callable[[str, str, int], list[bytes]]


def confluent_write(bootstrap: str, topic: str, compression: str) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 5})
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert failures == []


def confluent_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count, 10)
        assert messages, f"only {len(found)} of {count} came"
        for message in messages:
            assert message.error() is None
            found.append(message.value() or b"")
    consumer.close()
    return found


def aiokafka_write(bootstrap: str, topic: str, compression: str) -> None:
    async def write() -> None:
        kind = None if compression == "none" else compression
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, enable_idempotence=True)
        await producer.start()
        try:
            sent = [await producer.send(topic, value) for value in VALUES]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    asyncio.run(write())


def aiokafka_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            async with asyncio.timeout(20):
                return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


@untidy_client()
def kafka_python_write(bootstrap: str, topic: str, compression: str) -> None:
    kind = None if compression == "none" else compression
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, linger_ms=5)
    sent = [producer.send(topic, value) for value in VALUES]
    for one in sent:
        one.get(20)
    producer.close()


@untidy_client()
def kafka_python_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    found: list[bytes] = []
    for message in consumer:
        found.append(message.value)
        if len(found) == count:
            break
    consumer.close()
    return found


WRITERS: dict[str, Write] = {"confluent": confluent_write, "aiokafka": aiokafka_write, "kafka-python": kafka_python_write}
READERS: dict[str, Read] = {"confluent": confluent_read, "aiokafka": aiokafka_read, "kafka-python": kafka_python_read}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_one_client_writes_every_client_reads(gateway: RunningGateway, writer: str, compression: str) -> None:
    topic = f"from-{writer}-{compression}"
    WRITERS[writer](gateway.bootstrap, topic, compression)
    for name, read in READERS.items():
        found = read(gateway.bootstrap, topic, len(VALUES))
        assert found == [value.rstrip(b"\n") for value in VALUES], name


@pytest.fixture(scope="module")
def kcat() -> Tool:
    """A package of the system, not of Python."""
    try:
        return unpacked_tool("kcat")
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_kcat_writes_what_every_client_reads(gateway: RunningGateway, kcat: Tool, compression: str) -> None:
    topic = f"from-kcat-{compression}"
    kcat.run("-P", "-b", gateway.bootstrap, "-t", topic, "-p", "0", "-z", compression, stdin=b"\n".join(VALUES))
    for name, read in READERS.items():
        assert read(gateway.bootstrap, topic, len(VALUES)) == VALUES, name


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_kcat_reads_what_others_write(gateway: RunningGateway, kcat: Tool, compression: str) -> None:
    topic = f"to-kcat-{compression}"
    confluent_write(gateway.bootstrap, topic, compression)
    count = str(len(VALUES))
    found = kcat.run("-C", "-b", gateway.bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-c", count, "-q")
    assert found.splitlines() == VALUES


@pytest.mark.parametrize("use_uvloop", [True, False], ids=["uvloop", "asyncio"])
def test_both_event_loops_serve(tmp_path: Path, use_uvloop: bool) -> None:
    with RunningGateway(tmp_path, use_uvloop=use_uvloop) as gateway:
        confluent_write(gateway.bootstrap, "loops", "lz4")
        assert confluent_read(gateway.bootstrap, "loops", len(VALUES)) == VALUES


def test_clients_go_on_after_a_restart(tmp_path: Path) -> None:
    with RunningGateway(tmp_path) as gateway:
        failures: list[object] = []
        producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True})
        for number in range(100):
            producer.produce("again", b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.flush(20)
        gateway.restart()
        for number in range(100, 200):
            producer.produce("again", b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(30) == 0
        assert failures == []
        assert confluent_read(gateway.bootstrap, "again", 200) == [b"%d" % number for number in range(200)]


def test_a_client_commits_and_finds_its_position(gateway: RunningGateway) -> None:
    topic = "positions"
    confluent_write(gateway.bootstrap, topic, "none")
    place = confluent_kafka.TopicPartition(topic, 0, 42)
    first = confluent_kafka.Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "walker"})
    first.commit(offsets=[place], asynchronous=False)
    first.close()
    second = confluent_kafka.Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "walker"})
    assert [one.offset for one in second.committed([confluent_kafka.TopicPartition(topic, 0)], 10)] == [42]
    second.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_STORED)])
    message = second.poll(10)
    assert message is not None
    assert message.offset() == 42
    second.close()


@untidy_client()
def test_other_clients_commit_as_well(gateway: RunningGateway) -> None:
    kafka_python_write(gateway.bootstrap, "more-positions", "none")
    place = kafka.TopicPartition("more-positions", 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=gateway.bootstrap, group_id="python", enable_auto_commit=False)
    consumer.assign([place])
    consumer.commit({place: kafka.OffsetAndMetadata(7, "so far", -1)})
    assert consumer.committed(place) == 7
    consumer.close()


def test_aiokafka_reads_by_time(gateway: RunningGateway) -> None:
    aiokafka_write(gateway.bootstrap, "timely", "none")

    async def ask() -> tuple[int, int, object]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=gateway.bootstrap)
        await consumer.start()
        place = aiokafka.TopicPartition("timely", 0)
        try:
            begin = (await consumer.beginning_offsets([place]))[place]
            end = (await consumer.end_offsets([place]))[place]
            return begin, end, (await consumer.offsets_for_times({place: 1}))[place].offset
        finally:
            await consumer.stop()

    assert asyncio.run(ask()) == (0, len(VALUES), 0)
