"""A node under a real client's load while things go wrong: kills, a torn disk tail, a whole datacenter of disks lost."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from penstock.blob.record import record_size
from tests.e2e.running_node import RunningNode, running_node

pytestmark = pytest.mark.slow

IN_FLIGHT = 500
KILLS = 5
RECORD_MAGIC = b"PENr"


class NumberedProducer(threading.Thread):
    """An idempotent producer of the numbers 0, 1, 2, … that notes which offset each was acknowledged with."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 120_000, "linger.ms": 2}
        )
        self.goes_on = True
        self.acknowledged: list[int] = []
        self.failures: list[str] = []

    def run(self) -> None:
        sent = 0
        while self.goes_on and not self.failures:
            if sent - len(self.acknowledged) < IN_FLIGHT:
                self._producer.produce("t", b"%d" % sent, partition=0, on_delivery=self._delivered)
                sent += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)
        if self._producer.flush(60) or len(self.acknowledged) != sent:
            self.failures.append(f"{len(self.acknowledged)} of {sent} were acknowledged")

    def wait_for(self, more: int) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.acknowledged) + more
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < goal:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.01)

    def finish(self) -> list[int]:
        """Stop, wait for writes in flight, and return the offsets in the order of the numbers."""
        self.goes_on = False
        self.join(90)
        assert not self.failures, self.failures
        return self.acknowledged

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None or int(message.value() or b"-1") != len(self.acknowledged):
            self.failures.append(f"{message.value()!r} after {len(self.acknowledged)} others: {error}")
            return
        self.acknowledged.append(message.offset() or 0)


def _read_all(bootstrap: str, count: int) -> list[tuple[int, int]]:
    """So many messages from the beginning: the offset and the number of each; there are no more."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[tuple[int, int]] = []
    while True:
        for message in consumer.consume(10_000, 0.3):
            if message.error() is not None:
                consumer.close()
                assert len(found) == count
                return found
            found.append((message.offset() or 0, int(message.value() or b"-1")))


def _disks(tmp_path: Path, count: int) -> list[str]:
    return [word for number in range(count) for word in ("--disk", str(tmp_path / f"disk{number}"))]


def test_each_acknowledged_message_is_there_once_and_in_order_after_kills_under_load(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data")]
    with ExitStack() as stack:
        node = stack.enter_context(running_node(tmp_path / "log", argv))
        argv += ["--kafka-port", node.bootstrap.rsplit(":", 1)[1]]
        producer = NumberedProducer(node.bootstrap)
        producer.start()
        for number in range(KILLS):
            producer.wait_for(1000 + 300 * number)
            node.kill()
            node = stack.enter_context(running_node(tmp_path / "log", argv))
        producer.wait_for(1000)
        offsets = producer.finish()
        assert _read_all(node.bootstrap, len(offsets)) == [(offset, number) for number, offset in enumerate(offsets)]


def _last_record(data: bytes) -> tuple[int, int]:
    """Where the last record of a chunk file begins, and where it ends: zeros follow, since its space is taken ahead."""
    begin = data.rfind(RECORD_MAGIC)
    assert begin > 0
    return begin, begin + record_size(int.from_bytes(data[begin + 8 : begin + 12], "big"))


@pytest.mark.parametrize("torn", ["garbage", "half a record"])
def test_a_torn_disk_tail_is_cut_off_and_nothing_acknowledged_is_lost(tmp_path: Path, torn: str) -> None:
    argv = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as node:
        producer = NumberedProducer(node.bootstrap)
        producer.start()
        producer.wait_for(3000)
        offsets = producer.finish()
        node.kill()
    chunk = max((tmp_path / "data").rglob("*.chunk"))
    data = chunk.read_bytes()
    last, end = _last_record(data)
    assert not any(data[end:])
    # What a power cut leaves of a write that was never acknowledged.
    tail = b"\xa5" * 3000 if torn == "garbage" else data[last : last + 200]
    with chunk.open("r+b") as file:
        file.seek(end)
        file.write(tail)
    with running_node(tmp_path / "log", argv) as node:
        expected = [(offset, number) for number, offset in enumerate(offsets)]
        assert _read_all(node.bootstrap, len(offsets)) == expected
        node.ok("produce", "t", "-1")
        node.kill()
    with running_node(tmp_path / "log", argv) as node:
        assert _read_all(node.bootstrap, len(offsets) + 1) == [*expected, (len(offsets), -1)]


def _lose_a_datacenter(tmp_path: Path) -> None:
    """In mirror-3-dc the first three of nine disks are one datacenter."""
    for number in range(3):
        shutil.rmtree(tmp_path / f"disk{number}")


def test_mirror_3_dc_outlives_a_datacenter_lost_under_load(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--erasure", "mirror-3-dc", *_disks(tmp_path, 9)]
    with running_node(tmp_path / "log", argv) as node:
        producer = NumberedProducer(node.bootstrap)
        producer.start()
        producer.wait_for(1000)
        _lose_a_datacenter(tmp_path)
        producer.wait_for(1000)
        offsets = producer.finish()
        expected = [(offset, number) for number, offset in enumerate(offsets)]
        assert _read_all(node.bootstrap, len(offsets)) == expected
        node.kill()
    _check_after_restart(tmp_path, argv, expected)


def test_block_4_2_goes_on_with_two_disks_removed_under_load(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--erasure", "block-4-2", *_disks(tmp_path, 8)]
    with running_node(tmp_path / "log", argv) as node:
        producer = NumberedProducer(node.bootstrap)
        producer.start()
        producer.wait_for(1000)
        for number in (2, 5):
            shutil.rmtree(tmp_path / f"disk{number}")
        producer.wait_for(1000)
        offsets = producer.finish()
        expected = [(offset, number) for number, offset in enumerate(offsets)]
        assert _read_all(node.bootstrap, len(offsets)) == expected
        node.kill()
    _check_after_restart(tmp_path, argv, expected)


def _check_after_restart(tmp_path: Path, argv: list[str], expected: list[tuple[int, int]]) -> None:
    node: RunningNode
    with running_node(tmp_path / "log", argv) as node:
        assert _read_all(node.bootstrap, len(expected)) == expected
