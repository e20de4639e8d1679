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

from bench.kafka_peer import coordination_client, end_to_end, raw_group, raw_load, under_compaction
from bench.kafka_peer.window import Window, percentiles

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


def produce(
    address: str,
    topic: str,
    *,
    size: int,
    count: int,
    codec: str,
    spread: int = 0,
    linger_ms: int = 5,
    broker_pid: int | None = None,
) -> dict[str, float]:
    """So many messages with acks=all, as fast as they are taken; the seconds until all are acknowledged. With `spread`, so many
    partitions get as many messages each; otherwise the client divides them as it likes."""
    settings = {
        "bootstrap.servers": address,
        "acks": "all",
        "compression.type": codec,
        "linger.ms": linger_ms,
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

    window = Window(broker_pid)
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
    measured = window.close(count)
    if failed or left:
        raise RuntimeError(f"{left} messages not delivered, {failed[:1]}")
    return measured


def consume(address: str, topic: str, *, partitions: int, count: int, broker_pid: int) -> dict[str, float]:
    """Read so many messages from the beginning; the seconds from the first to the last."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    # The processor time counts from before the first: what waits in the client by then has been fetched already.
    whole = Window(broker_pid)
    got, started, early = 0, 0.0, 0
    while got + early < count:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise RuntimeError(f"nothing came after {got + early} of {count} messages")
        if not started:
            started = time.perf_counter()
            early = len(messages)
            continue
        got += len(messages)
    seconds = time.perf_counter() - started
    measured = whole.close(count)
    consumer.close()
    return {**measured, "s": seconds, "count": float(got)}


def latency(
    address: str, topic: str, *, producers: int, seconds: float, broker_pid: int | None = None, idempotent: bool = False
) -> dict[str, float]:
    """Producers of 1 KiB, each waiting for its acknowledgement; percentiles and the rate of all."""
    samples: list[list[float]] = [[] for _ in range(producers)]
    settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True}
    settings["enable.idempotence"] = idempotent
    connected = threading.Barrier(producers + 1)
    ended = threading.Event()

    def run(own: list[float]) -> None:
        producer = Producer(settings)
        producer.produce(topic, b"x" * 1024)
        producer.flush(30)
        connected.wait(60)
        while not ended.is_set():
            started = time.perf_counter()
            producer.produce(topic, b"x" * 1024)
            producer.flush(30)
            own.append(time.perf_counter() - started)

    threads = [threading.Thread(target=run, args=(own,)) for own in samples]
    for thread in threads:
        thread.start()
    connected.wait(60)
    window = Window(broker_pid)
    time.sleep(seconds)
    count = sum(map(len, samples))
    measured = window.close(count)
    ended.set()
    for thread in threads:
        thread.join()
    return {**percentiles([sample for own in samples for sample in own]), "rate": count / measured["s"], **measured}


TASKS: dict[str, Any] = {
    "create": create,
    "first": first,
    "produce": produce,
    "consume": consume,
    "latency": latency,
    "raw": raw_load.raw,
    "idle": raw_load.idle,
    "warm_up": raw_load.warm_up,
    "end_to_end": end_to_end.end_to_end,
    "raw_end_to_end": end_to_end.raw_end_to_end,
    "under_compaction": under_compaction.under_compaction,
    "keyed_writes": under_compaction.keyed_writes,
    "groups": coordination_client.groups,
    "transactions": coordination_client.transactions,
    "rebalance": raw_group.rebalance,
    "commits": coordination_client.commits,
    "compaction": coordination_client.compaction,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
