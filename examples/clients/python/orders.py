"""Produces three orders and consumes them in a consumer group, with confluent-kafka: `python orders.py [BOOTSTRAP]`."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

ORDERS = [("ada", "tea"), ("bob", "coffee"), ("ada", "cake")]


def delivered(error: KafkaError | None, message: Message) -> None:
    """Reports the outcome of one message: it is on disk, or it failed for good."""
    if error is not None:
        raise KafkaException(error)
    print(f"produced to partition {message.partition()} at offset {message.offset()}")


def main() -> None:
    bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for customer, item in ORDERS:
        producer.produce("orders", key=customer, value=item, on_delivery=delivered)
    producer.flush()

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "shipping-python",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    for _ in ORDERS:
        message = consumer.poll(30)
        if message is None:
            raise TimeoutError("no message within 30 s")
        if (error := message.error()) is not None:
            raise KafkaException(error)
        print(f"consumed {(message.key() or b'').decode()}: {(message.value() or b'').decode()}")
        consumer.commit(message=message, asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
