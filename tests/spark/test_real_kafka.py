"""The source against a real Kafka, which it must read as well. Kafka comes from a Maven repository, so this is a soak test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka_peer.brokers import KafkaProcess
from penstock.kafka.client import TopicPartition
from penstock.spark.errors import DataLossError
from tests.spark.reads import batch_reader, produce, read, rows_of, stream_reader, values

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

TEN: list[bytes | None] = [b"value %d" % number for number in range(10)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka of one node."""
    broker = KafkaProcess(tmp_path_factory.mktemp("kafka") / "data", synced=False)
    broker.start()
    yield broker.address
    broker.stop()


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(admin: AdminClient, name: str, partitions: int = 2) -> str:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(bootstrap: str, admin: AdminClient, codec: str) -> None:
    topic = create(admin, f"codec-{codec}")
    many: list[bytes | None] = [b"%d " % number * 30 for number in range(3000)]
    produce(bootstrap, topic, many, compression_type=codec)
    assert values(read(bootstrap, subscribe=topic)) == many


def test_transactions_are_honoured(bootstrap: str, admin: AdminClient) -> None:
    topic = create(admin, "transactions")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(20) == 0
        ends(30)
    found: list[Any] = []
    deadline = time.monotonic() + 30
    while len(found) < 2 and time.monotonic() < deadline:  # Kafka writes the markers after it has said that all is done
        found = values(read(bootstrap, subscribe=topic, kafka_isolation_level="read_committed"))
    assert found == [b"0", b"2"]
    assert values(read(bootstrap, subscribe=topic)) == [b"0", b"1", b"2"]


def test_a_stream_keeps_its_position_in_the_broker(bootstrap: str, admin: AdminClient) -> None:
    topic = create(admin, "stream")
    reader = stream_reader(bootstrap, subscribe=topic, consumer="spark", maxOffsetsPerTrigger=6)
    start: Any = reader.initialOffset()
    produce(bootstrap, topic, TEN)
    end: Any = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert values(rows_of(reader, reader.partitions(start, end))) == TEN[:6]
    reader.commit(end)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "spark"})
    (found,) = consumer.committed([confluent_kafka.TopicPartition(*TopicPartition(topic, 0))], timeout=20)
    consumer.close()
    assert found.offset == 6
    reader.stop()


def test_records_that_are_gone_are_data_loss(bootstrap: str, admin: AdminClient) -> None:
    topic = create(admin, "trimmed", 1)
    produce(bootstrap, topic, TEN)
    failing, lenient = (batch_reader(bootstrap, subscribe=topic, failOnDataLoss=fails) for fails in (True, False))
    planned = failing.partitions()
    place = confluent_kafka.TopicPartition(topic, 0, 7)
    admin.delete_records([place])[place].result(30)
    with pytest.raises(DataLossError, match="offsets 0 to 6 of trimmed-0 are gone: the partition has 7 up to 10"):
        rows_of(failing, planned)
    assert values(rows_of(lenient, planned)) == TEN[7:]


def test_a_topic_made_again_is_recognised(bootstrap: str, admin: AdminClient) -> None:
    topic = create(admin, "again", 1)
    produce(bootstrap, topic, TEN)
    reader = batch_reader(bootstrap, subscribe=topic, kafka_default_api_timeout_ms=20_000)
    planned = reader.partitions()
    admin.delete_topics([topic])[topic].result(30)
    for _ in range(50):
        try:
            create(admin, topic, 1)
            break
        except confluent_kafka.KafkaException:
            continue  # it takes a while to be gone
    produce(bootstrap, topic, TEN)
    with pytest.raises(DataLossError, match="was deleted"):
        rows_of(reader, planned)
