"""Mixed load for minutes while the node is killed again and again; at the end everything is counted.

Idempotent producers write numbered messages; a group reads them; a pipeline copies them to another topic in transactions. Every
acknowledged message must be there once and in order, the copies as well, and no member of the group may have skipped any.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.running_node import running_node

PARTITIONS = 4
PRODUCERS = 4
MEMBERS = 3
IN_FLIGHT = 2000
BURST, PAUSE_S = 100, 0.2
WORKER = Path(__file__).parent / "kafka" / "transform_worker.py"
DRAIN_S = 120.0

Written = dict[int, list[tuple[int, int]]]  # by producer: the partition and offset of each message, in order of their numbers


class Load:
    """Everything that works against the node at once, until told to end."""

    def __init__(self, bootstrap: str) -> None:
        self.settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": 10_000,
            "log_level": 0,  # a node that is gone for a moment is nothing to talk about here
        }
        self.writing = threading.Event()
        self.reading = threading.Event()
        self.failures: list[str] = []
        self.acknowledged: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        self.read_by_group: set[tuple[int, int]] = set()
        self._threads: list[threading.Thread] = []
        self.writing.set()
        self.reading.set()

    def start(self) -> None:
        """Start every worker."""
        for number in range(PRODUCERS):
            self._spawn(self._produce, number)
        for _ in range(MEMBERS):
            self._spawn(self._read)
        self._spawn(self._copy)

    def stop_writing(self) -> None:
        """Write no more; everything is acknowledged when this returns."""
        self.writing.clear()
        for thread in self._threads[:PRODUCERS]:
            thread.join(DRAIN_S)
        assert not self.failures, self.failures[:3]

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self._threads:
            thread.join(DRAIN_S)
            assert not thread.is_alive(), f"{thread.name} did not end"
        assert not self.failures, self.failures[:3]

    def _spawn(self, work: Callable[..., None], *arguments: int) -> None:
        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException as error:  # noqa: BLE001 - a worker that dies is what this test is about
                self.failures.append(f"{work.__name__}{arguments}: {error!r}")

        thread = threading.Thread(target=guarded, name=f"{work.__name__}-{arguments}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _produce(self, number: int) -> None:
        acknowledged = self.acknowledged[number]

        def delivered(error: object, message: Message) -> None:
            if error is not None:
                self.failures.append(f"producer {number}: {error}")
                return
            sequence = int((message.value() or b"").split(b":")[1])
            acknowledged[sequence] = (message.partition() or 0, message.offset() or 0)

        producer = Producer({**self.settings, "enable.idempotence": True, "delivery.timeout.ms": 300_000, "linger.ms": 5})
        sent = 0
        while self.writing.is_set():
            if sent % BURST == 0:
                time.sleep(PAUSE_S)  # no faster than the pipeline copies
            if sent - len(acknowledged) < IN_FLIGHT:
                producer.produce(
                    "source", b"%d:%d:" % (number, sent) + os.urandom(100), key=b"%d" % number, on_delivery=delivered
                )
                sent += 1
                producer.poll(0)
            else:
                producer.poll(0.01)
        assert producer.flush(DRAIN_S) == 0
        assert len(acknowledged) == sent

    def _read(self) -> None:
        consumer = Consumer(
            {**self.settings, "group.id": "readers", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
        )
        consumer.subscribe(["source"])
        while self.reading.is_set():
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    self.read_by_group.add((message.partition() or 0, message.offset() or 0))
        consumer.close()

    def _copy(self) -> None:
        """Keep a worker at it that consumes, transforms and produces in transactions."""
        command = [sys.executable, str(WORKER), str(self.settings["bootstrap.servers"]), "source", "copied", "copier", "500"]
        while self.reading.is_set():
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
                while worker.poll() is None and self.reading.is_set():
                    time.sleep(0.1)
                worker.kill()


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seconds", [int(os.environ.get("SOAK_S", "600"))])
def test_nothing_is_lost_or_doubled_while_the_node_is_killed(tmp_path: Path, seconds: int) -> None:
    chance = random.Random(seconds)
    kills = 0
    with ExitStack() as stack:
        argv = ["--data-dir", str(tmp_path / "data")]
        node = stack.enter_context(running_node(tmp_path / "log", argv))
        argv += ["--kafka-port", node.bootstrap.rsplit(":", 1)[1]]
        _create(node.bootstrap)
        load = Load(node.bootstrap)
        load.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not load.failures:
            time.sleep(chance.uniform(3, 20))
            node.kill()
            kills += 1
            node = stack.enter_context(running_node(tmp_path / "log", argv))
        load.stop_writing()
        total = _wait_for_copies(load, node.bootstrap)
        load.reading.clear()
        load.join()
        _check(load, node.bootstrap, total)
    assert kills


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("source", "copied")]).values():
        future.result(30)


def _wait_for_copies(load: Load, bootstrap: str) -> int:
    """Until group and pipeline have read to the end; the messages written."""
    deadline = time.monotonic() + DRAIN_S
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copier"})
    places = [TopicPartition("source", number) for number in range(PARTITIONS)]
    ends: dict[int, int] = {}
    committed: dict[int, int] = {}
    while time.monotonic() < deadline:
        ends = {place.partition: consumer.get_watermark_offsets(place, 30)[1] for place in places}
        committed = {place.partition: place.offset for place in consumer.committed(places, 30)}
        is_quiet = sum(len(done) for done in load.acknowledged.values()) == sum(ends.values())
        if is_quiet and all(committed[number] == end or not end for number, end in ends.items()):
            consumer.close()
            return sum(ends.values())
        time.sleep(0.5)
    raise AssertionError(f"the pipeline did not come to the end: {committed} of {ends}, failures {load.failures[:3]}")


def _check(load: Load, bootstrap: str, total: int) -> None:
    written = _read_all(bootstrap, "source", total)
    copied = _read_all(bootstrap, "copied", total)
    assert sum(len(done) for done in load.acknowledged.values()) == total
    for number, acknowledged in load.acknowledged.items():
        assert written[number] == [acknowledged[sequence] for sequence in range(len(acknowledged))]
        assert len(copied[number]) == len(acknowledged), "each message is copied once, in order"
    everything = {(partition, offset) for places in written.values() for partition, offset in places}
    assert load.read_by_group == everything, "no member skipped a message"


def _read_all(bootstrap: str, topic: str, total: int) -> Written:
    """All committed messages of a topic by producer; each must come once and in the order it was written in."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: Written = defaultdict(list)
    at_end = 0
    while at_end < PARTITIONS:
        for message in consumer.consume(10_000, 1):
            if message.error() is not None:
                at_end += 1
                continue
            producer, sequence, _ = (message.value() or b"").split(b":", 2)
            places = found[int(producer)]
            assert int(sequence) == len(places), f"{topic}: message {int(sequence)} of producer {int(producer)} out of turn"
            places.append((message.partition() or 0, message.offset() or 0))
    consumer.close()
    assert sum(len(places) for places in found.values()) == total
    return found
