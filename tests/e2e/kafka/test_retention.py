"""Retention as clients see it: old messages go, but not before an important consumer has committed that it read them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.broker import BrokerOptions, TopicConfig
from tests.e2e.kafka.running_gateway import RunningGateway

LONG_AGO_MS = 1_000_000
PLACE = TopicPartition("t", 0)


@pytest.fixture
def short_lived(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway whose retention looks often, with a topic that one consumer is important for; ten old messages are in it."""
    with RunningGateway(tmp_path, broker_options=BrokerOptions(retention_interval_s=0.05)) as running:
        config = TopicConfig({"retention.ms": "1000", "penstock.important.consumers": "ledger, audit"})
        running.run(running.broker.create_topic("t", 1, config))
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(10):
            producer.produce("t", b"%d" % number, timestamp=LONG_AGO_MS)
            producer.flush(10)
        yield running


def _start(running: RunningGateway) -> int:
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "anyone"})
    low, _ = consumer.get_watermark_offsets(PLACE, 10)
    consumer.close()
    return low


def _commit(running: RunningGateway, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def test_messages_are_kept_until_every_important_consumer_has_read_them(short_lived: RunningGateway) -> None:
    _commit(short_lived, "ledger", 10)
    _commit(short_lived, "anyone", 10)
    short_lived.run(short_lived.broker._retention.once())
    assert _start(short_lived) == 0, "audit has read nothing yet"
    _commit(short_lived, "audit", 10)
    deadline = time.monotonic() + 10
    while _start(short_lived) < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _start(short_lived) == 10
