"""The load, in a process of its own: `python -m bench.kafka_peer.client TASK JSON`, librdkafka through confluent-kafka.

Prints one JSON object with what it measured. The same code drives both brokers.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.kafka_peer import coordination_client

ANY_PARTITION = -1  # what librdkafka calls it when its partitioner decides


def create(address: str, topic: str, partitions: int) -> dict[str, float]:
    """A topic; the seconds that took."""
    started = time.perf_counter()
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    return {"s": time.perf_counter() - started}


def first(address: str, topic: str) -> dict[str, float]:
    """One message, acknowledged."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    producer.produce(topic, b"x")
    return {"left": float(producer.flush(60))}


def produce(address: str, topic: str, *, size: int, count: int, codec: str, spread: int = 0) -> dict[str, float]:
    """So many messages with acks=all, as fast as they are taken; the seconds until all are acknowledged. With `spread`, so many
    partitions get as many messages each; otherwise the client divides them as it likes."""
    settings = {
        "bootstrap.servers": address,
        "acks": "all",
        "compression.type": codec,
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 2_000_000,
    }
    failed: list[str] = []
    producer = Producer(settings)
    value = (os.urandom(size // 2) + bytes(size))[:size]  # half of it compresses
    producer.produce(topic, value)
    producer.flush(60)

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                # Only the last asks for a report: one for each message would measure Python.
                report = delivered if number == count - 1 else None
                producer.produce(topic, value, partition=number % spread if spread else ANY_PARTITION, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(300)
    seconds = time.perf_counter() - started
    if failed or left:
        raise RuntimeError(f"{left} messages not delivered, {failed[:1]}")
    return {"s": seconds}


def consume(address: str, topic: str, *, partitions: int, count: int) -> dict[str, float]:
    """Read so many messages from the beginning; the seconds from the first to the last."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    got, started = 0, 0.0
    while got < count:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise RuntimeError(f"nothing came after {got} of {count} messages")
        if not started:
            started = time.perf_counter()
            count -= len(messages)
            continue
        got += len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return {"s": seconds, "count": float(got)}


def latency(address: str, topic: str, *, producers: int, seconds: float) -> dict[str, float]:
    """Synchronous producers of 1 KiB, each waiting for its acknowledgement; percentiles and the rate of all."""
    samples: list[list[float]] = [[] for _ in range(producers)]

    def run(own: list[float]) -> None:
        producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})
        producer.produce(topic, b"x" * 1024)
        producer.flush(30)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            started = time.perf_counter()
            producer.produce(topic, b"x" * 1024)
            producer.flush(30)
            own.append(time.perf_counter() - started)

    threads = [threading.Thread(target=run, args=(own,)) for own in samples]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = sorted(sample for own in samples for sample in own)
    at = {f"p{share:g}_us": ordered[int(len(ordered) * share / 100)] * 1e6 for share in (50, 99, 99.9)}
    return {**at, "rate": len(ordered) / (time.perf_counter() - started)}


TASKS: dict[str, Any] = {
    "create": create,
    "first": first,
    "produce": produce,
    "consume": consume,
    "latency": latency,
    "groups": coordination_client.groups,
    "transactions": coordination_client.transactions,
    "rebalance": coordination_client.rebalance,
    "commits": coordination_client.commits,
    "compaction": coordination_client.compaction,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
