"""A stock client that writes numbers to partitions on all nodes while these fail, and what became of them."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.cluster.running_cluster import until

TOPIC = "orders"
OTHER_TOPIC = "payloads"
PARTITIONS = 6
MORE = 20  # messages of each partition between two faults, at least


class Writer:
    """An idempotent producer that writes numbers to all partitions in turn until it is told to end."""

    def __init__(self, bootstrap: str, *, request_timeout_ms: int = 30_000) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
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
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.failed: list[str] = []
        self._told_at = dict.fromkeys(range(PARTITIONS), time.monotonic())
        self._longest_s = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def go_on(self, timeout_s: float = 60.0) -> None:
        """Wait for more acknowledgements of every partition."""
        wanted = {partition: len(told) + MORE for partition, told in self.acknowledged.items()}

        def is_done() -> bool:
            return bool(self.failed) or all(len(self.acknowledged[at]) >= count for at, count in wanted.items())

        until("no more is acknowledged", is_done, timeout_s)
        assert not self.failed

    def longest_pause(self) -> float:
        """The longest time without an acknowledgement of any one partition since it was last asked for."""
        found, self._longest_s = max(self._longest_s, time.monotonic() - min(self._told_at.values())), 0.0
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
                self._producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=self._told)
                number += 1
            except BufferError:
                pass  # it is full of what waits for a node
            self._producer.poll(0.005)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        now, partition = time.monotonic(), message.partition()
        assert partition is not None
        self._longest_s, self._told_at[partition] = max(self._longest_s, now - self._told_at[partition]), now
        self.acknowledged[partition].append(int(message.value() or b""))


def write_more(bootstrap: str, messages: int) -> None:
    """Write messages of 1 KiB to another topic, so that disks have something to be refilled with."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(messages):
        producer.produce(OTHER_TOPIC, os.urandom(1024))
    assert producer.flush(60) == 0


def check_numbers(writer: Writer, bootstrap: str) -> int:
    """Everything that was acknowledged so far is there, once and in order; how many messages that is."""
    acknowledged = {partition: list(told) for partition, told in writer.acknowledged.items()}
    for partition, by_offset in read_all(bootstrap).items():
        read = [by_offset[offset] for offset in sorted(by_offset)]
        doubled = [item for item, count in Counter(read).items() if count > 1]
        where = {item: [offset for offset, found in by_offset.items() if found == item] for item in doubled[:5]}
        assert not doubled, f"{len(doubled)} messages of partition {partition} are there twice, at offsets {where}"
        missing = sorted(set(acknowledged[partition]) - set(read))
        assert not missing, f"{len(missing)} acknowledged messages of partition {partition} are lost: {missing[:5]} and so on"
        assert read == sorted(read)
    return sum(map(len, acknowledged.values()))


def leaders_told_by(address: str) -> str:
    """The brokers and leaders that a node tells, for a test that has failed."""
    try:
        told = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(TOPIC, timeout=5)
    except KafkaException as error:
        return str(error)
    leaders = {number: partition.leader for number, partition in told.topics[TOPIC].partitions.items()}
    return f"broker {told.orig_broker_id} tells of brokers {sorted(told.brokers)} and leaders {leaders}"


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """The end of a partition, once it is not being moved any more, which the client does not wait for by itself."""
    trouble: list[str] = []

    def look() -> int:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=20)[1]) + 1
        except KafkaException as error:
            trouble[:] = [str(error)]
            return 0

    return int(until(lambda: f"the end of {partition} is not told ({trouble})", look)) - 1


def read_all(bootstrap: str) -> dict[int, dict[int, int]]:
    """Every message of the topic by partition and offset, read by a new group of one member. It commits nothing, so that it reads
    from the beginning again if the group is rebalanced meanwhile; each offset must show the same message then."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    ends = [_end(consumer, partition) for partition in partitions]
    consumer.subscribe([TOPIC])
    read: dict[int, dict[int, int]] = {partition: {} for partition in range(PARTITIONS)}

    def look() -> bool:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                number, offset = int(message.value() or b""), message.offset() or 0
                found = read[message.partition() or 0].setdefault(offset, number)
                assert found == number, f"offset {offset} of partition {message.partition()} was {found} and is {number}"
        return all(len(read[partition]) >= end for partition, end in enumerate(ends))

    until("not everything is read", look, 300.0)  # a million messages after many rounds, and again after a rebalance
    consumer.commit(asynchronous=False)
    consumer.close()
    return read
