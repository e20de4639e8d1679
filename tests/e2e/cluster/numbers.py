"""A stock client that writes numbers while nodes fail, and what became of them."""

from __future__ import annotations

import os
import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.e2e.cluster.running_cluster import until

TOPIC = "orders"
OTHER_TOPIC = "payloads"
MORE = 100  # messages between two faults, at least


class Writer:
    """An idempotent producer that writes numbers until it is told to end."""

    def __init__(self, bootstrap: str, *, request_timeout_ms: int = 30_000) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "request.timeout.ms": request_timeout_ms,
                "socket.timeout.ms": request_timeout_ms + 500,
                "socket.connection.setup.timeout.ms": 2_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._told_at = time.monotonic()
        self._longest_s = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def go_on(self, timeout_s: float = 30.0) -> None:
        """Wait for more acknowledgements."""
        wanted = len(self.acknowledged) + MORE
        until("no more is acknowledged", lambda: len(self.acknowledged) >= wanted or self.failed, timeout_s)
        assert not self.failed

    def longest_pause(self) -> float:
        """The longest time without an acknowledgement since it was last asked for."""
        found, self._longest_s = max(self._longest_s, time.monotonic() - self._told_at), 0.0
        return found

    def end(self) -> None:
        """Wait for what is in flight."""
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failed

    def _write(self) -> None:
        number = 0
        while not self._ending.is_set():
            try:
                self._producer.produce(TOPIC, str(number), partition=0, on_delivery=self._told)
                number += 1
            except BufferError:
                pass  # it is full of what waits for a node
            self._producer.poll(0.005)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        now = time.monotonic()
        self._longest_s, self._told_at = max(self._longest_s, now - self._told_at), now
        self.acknowledged.append(int(message.value() or b""))


def write_more(bootstrap: str, messages: int) -> None:
    """Write messages of 1 KiB to another topic, so that disks have something to be refilled with."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(messages):
        producer.produce(OTHER_TOPIC, os.urandom(1024))
    assert producer.flush(60) == 0


def check_numbers(writer: Writer, bootstrap: str) -> None:
    """Everything that was acknowledged is there, once and in order."""
    read = read_all(bootstrap)
    assert len(set(read)) == len(read), "a message is there twice"
    assert set(writer.acknowledged) <= set(read), "an acknowledged message is lost"
    assert read == sorted(read)


def read_all(bootstrap: str) -> list[int]:
    """Every message of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0})
    partition = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=20)
    consumer.assign([partition])
    read: list[int] = []

    def look() -> bool:
        read.extend(int(message.value() or b"") for message in consumer.consume(1000, 0.5) if message.error() is None)
        return len(read) >= end

    until("not everything is read", look, 60.0)
    consumer.close()
    return read
