"""Three nodes with a mirror-3 group under load of a stock client: the node that runs the broker is killed -9, started again, and
then another. Everything acknowledged is there once, in order."""

from __future__ import annotations

import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.e2e.cluster.running_cluster import running_cluster, until

TOPIC = "orders"
MORE = 100  # messages between two faults, at least


class Writer:
    """An idempotent producer that writes numbers until it is told to end."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Wait for more acknowledgements."""
        wanted = len(self.acknowledged) + MORE
        until("no more is acknowledged", lambda: len(self.acknowledged) >= wanted or self.failed)
        assert not self.failed

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(30) == 0
        assert not self.failed

    def _write(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._producer.produce(TOPIC, str(number), on_delivery=self._told)
            number += 1
            self._producer.poll(0.005)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(int(message.value() or b""))


def read_all(bootstrap: str) -> list[int]:
    """Every message of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    partition = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=20)
    consumer.assign([partition])
    read: list[int] = []

    def look() -> bool:
        read.extend(int(message.value() or b"") for message in consumer.consume(1000, 0.5) if message.error() is None)
        return len(read) >= end

    until("not everything is read", look)
    consumer.close()
    return read


def test_acknowledged_messages_survive_kills_of_any_node(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        writer = Writer(cluster.bootstrap)
        writer.go_on()
        first = cluster.active()
        cluster.kill(first)
        writer.go_on()
        second = cluster.active()
        assert second != first
        cluster.start(first)
        cluster.wait_ready(first)
        standby = next(number for number in cluster.nodes if number not in (first, second))
        writer.go_on()
        cluster.kill(standby)
        writer.go_on()
        cluster.start(standby)
        cluster.wait_ready(standby)
        assert cluster.nodes[second].stop() == 0, "an orderly stop hands the broker over"
        del cluster.nodes[second]
        writer.go_on()
        writer.end()
        assert cluster.active() in (first, standby)
        read = read_all(cluster.bootstrap)
        assert len(set(read)) == len(read), "a message is there twice"
        assert set(writer.acknowledged) <= set(read), "an acknowledged message is lost"
        assert read == sorted(read)
        for number in (1, 2, 3):
            assert "Traceback" not in cluster.log(number).read_text(encoding="utf-8")
