"""Consume, transform, produce: broker and client killed at random, and at the end each result is there once."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.running_node import RunningNode, running_node
from tests.ports import free_port

WORKER = Path(__file__).with_name("transform_worker.py")
SOURCE, TARGET, NAME = "numbers", "results", "transformer"
PARTITIONS = 2
NUMBERS_A_ROUND = 40
PATIENCE_S = 60.0


class Stage:
    """A node and a worker, either of which is killed and started again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._port = free_port()
        self._closing = contextlib.ExitStack()
        self._node: RunningNode
        self._worker: subprocess.Popen[bytes] | None = None
        self.worker_starts = 0

    @property
    def bootstrap(self) -> str:
        """Where the node is, whenever it is there."""
        return f"127.0.0.1:{self._port}"

    def start_node(self) -> None:
        """Start the node on its data."""
        argv = ["--data-dir", str(self._path / "data"), "--kafka-port", str(self._port), "--host", "127.0.0.1"]
        self._closing.close()
        self._node = self._closing.enter_context(running_node(self._path / "node.log", argv))

    def kill_node(self) -> None:
        """kill -9."""
        self._node.kill()

    def kill_worker(self) -> None:
        """kill -9 of the worker."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()
            self._worker = None

    def keep_worker(self) -> None:
        """Start the worker unless it runs."""
        if self._worker is None or self._worker.poll() is not None:
            with (self._path / "worker.log").open("ab") as log:
                self._worker = subprocess.Popen(
                    [sys.executable, str(WORKER), self.bootstrap, SOURCE, TARGET, NAME], stdout=log, stderr=log
                )
            self.worker_starts += 1

    def ok(self, *argv: str) -> None:
        """Run a command that must succeed."""
        self._node.ok(*argv)

    def close(self) -> None:
        """End both."""
        self.kill_worker()
        self._closing.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A node with both topics."""
    made = Stage(tmp_path)
    try:
        made.start_node()
        for topic in (SOURCE, TARGET):
            made.ok("topic", "create", topic, "--partitions", str(PARTITIONS))
        yield made
    finally:
        made.close()


def _play(stage: Stage, rounds: int, rng: Random) -> None:
    """Numbers keep coming; in each round the node, the worker or both are killed at a random moment."""
    feeder = Producer({"bootstrap.servers": stage.bootstrap, "enable.idempotence": True, "message.timeout.ms": 120_000})
    stage.keep_worker()
    for number in range(rounds):
        for value in range(number * NUMBERS_A_ROUND, (number + 1) * NUMBERS_A_ROUND):
            feeder.produce(SOURCE, str(value), partition=value % PARTITIONS)
        deadline = time.monotonic() + rng.uniform(0.1, 1.0)
        while time.monotonic() < deadline:
            feeder.poll(0.05)
        victim = rng.choice(("node", "worker", "both"))
        if victim != "node":
            stage.kill_worker()
        if victim != "worker":
            stage.kill_node()
            stage.start_node()
        stage.keep_worker()
    assert feeder.flush(PATIENCE_S) == 0


def _results(stage: Stage, expected: int) -> Counter[bytes | None]:
    """Everything that readers of committed data find, once it is `expected` or time is up."""
    consumer = Consumer(
        {
            "bootstrap.servers": stage.bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    found: Counter[bytes | None] = Counter()
    try:
        consumer.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
        deadline = time.monotonic() + PATIENCE_S
        while found.total() < expected and time.monotonic() < deadline:
            stage.keep_worker()
            found.update(message.value() for message in consumer.consume(500, 0.2) if message.error() is None)
        found.update(message.value() for message in consumer.consume(500, 1.0) if message.error() is None)
        return found
    finally:
        consumer.close()


def _check(stage: Stage, rounds: int, seed: int) -> None:
    _play(stage, rounds, Random(seed))
    total = rounds * NUMBERS_A_ROUND
    found = _results(stage, total)
    assert found == Counter(str(number).encode() for number in range(total))
    positions = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": NAME})
    try:
        committed = positions.committed([TopicPartition(SOURCE, number) for number in range(PARTITIONS)], PATIENCE_S)
        assert [place.offset for place in committed] == [total // PARTITIONS] * PARTITIONS
    finally:
        positions.close()


@pytest.mark.slow
def test_each_result_is_there_once_after_some_kills(stage: Stage) -> None:
    _check(stage, 5, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_result_is_there_once_after_a_hundred_kills(stage: Stage) -> None:
    _check(stage, 100, seed=2)
