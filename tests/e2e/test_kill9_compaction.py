"""kill -9 while a topic is compacted: the last acknowledged message of each key is there after every restart."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.e2e.running_node import RunningNode, running_node

TOPIC: Final = "compacted"
KEYS: Final = 40
ROUNDS: Final = 4
TIMEOUT_S: Final = 20.0
EAGER: Final = ("cleanup.policy=compact", "segment.bytes=50000", "min.cleanable.dirty.ratio=0.2", "delete.retention.ms=100")


class History:
    """What was sent for each key, as numbers that only rise, and the last that was acknowledged."""

    def __init__(self) -> None:
        self.sent = 0
        self.acked: dict[bytes, int] = {}

    def send(self, producer: Producer, key: bytes) -> None:
        """One message more."""
        self.sent += 1
        number = self.sent

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acked[key] = max(self.acked.get(key, 0), number)

        producer.produce(TOPIC, key=key, value=b"%d " % number + b"x" * 1500, on_delivery=delivered)

    def judge(self, found: list[tuple[int, bytes, int]]) -> None:
        """Messages by offset, key and number, as a reader from the start saw them."""
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        last = {key: number for _, key, number in found}
        for key, number in self.acked.items():
            assert last.get(key, 0) >= number, f"{key!r} was acknowledged as {number} and is {last.get(key)}"


def _read(node: RunningNode) -> list[tuple[int, bytes, int]]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, int]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        assert error is None, error
        key, value, offset = message.key(), message.value(), message.offset()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        assert offset is not None
        found.append((offset, key, int(value.split(b" ")[0])))
    else:
        raise AssertionError(f"no end after {len(found)} messages")
    consumer.close()
    return found


@pytest.mark.slow
def test_the_last_message_of_each_key_survives_every_kill(tmp_path: Path) -> None:
    random = Random(5)
    history = History()
    node_options = ("--data-dir", str(tmp_path / "data"), "--compaction-interval-s", "0.02")
    log = tmp_path / "node.log"
    for each in range(ROUNDS):
        with running_node(log, node_options) as node:
            if each == 0:
                configs = [part for config in EAGER for part in ("--config", config)]
                node.ok("topic", "create", TOPIC, *configs)
            history.judge(_read(node))
            producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 2, "message.timeout.ms": 5000})
            kill_at = time.monotonic() + random.uniform(0.3, 1.2)
            while time.monotonic() < kill_at:
                history.send(producer, b"key-%d" % random.randrange(KEYS))
                producer.poll(0.001)
            node.kill()
            producer.purge()
            producer.flush(5)
    with running_node(log, node_options) as node:
        history.judge(_read(node))
        deadline = time.monotonic() + TIMEOUT_S
        while len(found := _read(node)) > 3 * KEYS:
            assert time.monotonic() < deadline, f"{len(found)} messages are left of {history.sent}"
            time.sleep(0.2)
        history.judge(found)
        assert node.stop() == 0
    assert history.sent > 10 * KEYS
    assert log.read_text().count("compacted compacted-0 up to offset") >= ROUNDS
