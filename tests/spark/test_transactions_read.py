"""Transactions as a reader sees them: with read_committed only what was committed, and nothing of one that is still open."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import confluent_kafka
import pytest

from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.reads import produce, read, rows_of, stream_reader, values

_numbers = count()


@pytest.fixture
def producer(gateway: RunningGateway) -> Iterator[confluent_kafka.Producer]:
    """A producer in transactions."""
    settings = {"bootstrap.servers": gateway.bootstrap, "transactional.id": f"reader-test-{next(_numbers)}", "linger.ms": 5}
    made = confluent_kafka.Producer(settings)
    made.init_transactions(20)
    yield made
    made.purge()


def write(producer: confluent_kafka.Producer, topic: str, *messages: bytes) -> None:
    """Into the transaction that is open."""
    for message in messages:
        producer.produce(topic, message, partition=0)
    assert producer.flush(20) == 0


def test_only_what_was_committed_is_read(gateway: RunningGateway, topic: str, producer: confluent_kafka.Producer) -> None:
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        write(producer, topic, b"%d a" % number, b"%d b" % number)
        produce(gateway.bootstrap, topic, [b"outside %d" % number])
        ends(20)
    committed = read(gateway.bootstrap, subscribe=topic, kafka_isolation_level="read_committed")
    assert values(committed) == [b"0 a", b"0 b", b"outside 0", b"outside 1", b"2 a", b"2 b", b"outside 2"]
    # Markers take offsets and are never rows.
    assert [row["offset"] for row in committed] == [0, 1, 2, 6, 8, 9, 10]
    everything = read(gateway.bootstrap, subscribe=topic)
    assert len(everything) == 9


def test_an_open_transaction_ends_what_is_read_until_it_is_decided(
    gateway: RunningGateway, topic: str, producer: confluent_kafka.Producer
) -> None:
    produce(gateway.bootstrap, topic, [b"before"])
    producer.begin_transaction()
    write(producer, topic, b"inside")
    produce(gateway.bootstrap, topic, [b"after"])
    reader = stream_reader(gateway.bootstrap, subscribe=topic, startingOffsets="earliest", kafka_isolation_level="read_committed")
    start = reader.initialOffset()
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert values(rows_of(reader, reader.partitions(start, middle))) == [b"before"]
    producer.commit_transaction(20)
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    assert values(rows_of(reader, reader.partitions(middle, end))) == [b"inside", b"after"]
    reader.stop()


def test_ranges_that_begin_within_an_aborted_transaction_leave_it_out(
    gateway: RunningGateway, topic: str, producer: confluent_kafka.Producer
) -> None:
    producer.begin_transaction()
    write(producer, topic, *(b"aborted %d" % number for number in range(8)))
    producer.abort_transaction(20)
    produce(gateway.bootstrap, topic, [b"after"])
    options: dict[str, Any] = {"subscribe": topic, "kafka_isolation_level": "read_committed", "minPartitions": 5}
    assert values(read(gateway.bootstrap, **options)) == [b"after"]
