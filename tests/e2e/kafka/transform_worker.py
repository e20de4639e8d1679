"""Consumes numbers, produces their transforms and its position in one transaction each time. It may be killed at any moment.

    python transform_worker.py BOOTSTRAP SOURCE TARGET NAME [MESSAGES A TRANSACTION]

It exits when a transaction is lost for good; its parent restarts it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH = "20"
TIMEOUT_S = 30.0
STUCK_S = 6  # this client may wait for ever, past its own timeouts, for a coordinator that went away and came back


def main(bootstrap: str, source: str, target: str, name: str, batch: str = BATCH) -> int:
    """Work until something cannot be repeated."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "transaction.timeout.ms": 20_000}
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "group.instance.id": name,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    try:
        while True:
            messages = [message for message in consumer.consume(int(batch), 0.1) if message.error() is None]
            if messages:
                signal.alarm(STUCK_S)  # which ends the process
                transform(producer, consumer, messages, target)
                signal.alarm(0)
    except KafkaException as error:
        sys.stderr.write(f"{error}\n")
        return 1


def transform(producer: Producer, consumer: Consumer, messages: list[Message], target: str) -> None:
    """One transaction: the results, and where the consumer stands after them."""
    producer.begin_transaction()
    ends: dict[tuple[str, int], TopicPartition] = {}
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        producer.produce(target, message.value(), key=message.key(), partition=partition)
        ends[topic, partition] = TopicPartition(topic, partition, offset + 1)
    retried(lambda: producer.send_offsets_to_transaction(list(ends.values()), consumer.consumer_group_metadata(), TIMEOUT_S))
    retried(lambda: producer.commit_transaction(TIMEOUT_S))


def retried(attempt: Callable[[], object]) -> None:
    """Repeat what the client says can be repeated."""
    while True:
        try:
            attempt()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
