"""Exactly once under fire: a stream copies a topic while driver, Python workers and broker are killed at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.running_node import running_node
from tests.spark.workers import workers_of

PARTITIONS = 3
KILLS = 24
ROOT = Path(__file__).resolve().parents[2]


class Feed(threading.Thread):
    """Writes the numbers 0, 1, 2, … to the source until told to stop; `sent` is how many are stored."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._address = bootstrap
        self.goes_on = True
        self.sent = 0

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._address, "enable.idempotence": True, "delivery.timeout.ms": 300_000})
        while self.goes_on:
            for _ in range(50):
                producer.produce("source", b"%d" % self.sent, key=b"%d" % self.sent)
                self.sent += 1
            producer.flush(120)
            time.sleep(0.1)

    def finish(self) -> None:
        """Stop; everything is stored when this returns."""
        self.goes_on = False
        self.join()


class Pipeline:
    """The copier, started again whenever it has died."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._command = [sys.executable, "-m", "tests.spark.copier", bootstrap, str(directory / "checkpoint")]
        self._log = (directory / "pipeline.log").open("ab")
        self.process = self._start()

    def keep_alive(self) -> None:
        """Start it again if need be."""
        if self.process.poll() is not None:
            self.kill()
            self.process = self._start()

    def kill(self) -> None:
        """kill -9 the driver with its JVM and workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def kill_worker(self, chance: random.Random) -> bool:
        """kill -9 one of the Python processes that tasks run in; whether there was one."""
        workers = workers_of(self.process.pid)
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
        return True

    def close(self) -> None:
        """The end."""
        self.kill()
        self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            self._command, stdout=self._log, stderr=self._log, cwd=ROOT, env=environment, start_new_session=True
        )


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_row_is_copied_once_while_everything_is_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    argv = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as first:
        first.ok("topic", "create", "source", "target", "--partitions", str(PARTITIONS))
        argv += ["--kafka-port", first.bootstrap.rsplit(":", 1)[1]]
        bootstrap = first.bootstrap
        first.kill()
    killed: Counter[str] = Counter()
    with ExitStack() as stack:
        node = stack.enter_context(running_node(tmp_path / "log", argv))
        feed = Feed(bootstrap)
        pipeline = Pipeline(bootstrap, tmp_path)
        stack.callback(pipeline.close)
        feed.start()
        stack.callback(feed.finish)
        copied = 0
        while killed.total() < KILLS:
            copied = _wait_for_copy(pipeline, bootstrap, copied + 1)
            time.sleep(chance.uniform(0, 3))
            victim = chance.choice(["driver", "worker", "worker", "broker"])
            if victim == "driver":
                pipeline.kill()
            elif victim == "broker":
                node.kill()
                node = stack.enter_context(running_node(tmp_path / "log", argv))
            elif not pipeline.kill_worker(chance):
                continue
            killed[victim] += 1
        feed.finish()
        _wait_for_copy(pipeline, bootstrap, feed.sent)
        time.sleep(5)  # for copies too many, if there were any
        assert _values(bootstrap, "target") == list(range(feed.sent)), f"after {killed}"


def _wait_for_copy(pipeline: Pipeline, bootstrap: str, count: int) -> int:
    """Until so many rows are copied; how many there are then."""
    deadline = time.monotonic() + 240
    while (copied := len(_values(bootstrap, "target"))) < count:
        assert time.monotonic() < deadline, f"only {copied} of {count} rows are copied"
        pipeline.keep_alive()
        time.sleep(1)
    return copied


def _values(bootstrap: str, topic: str) -> list[int]:
    """What readers of committed rows see, in order of the numbers."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "check",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[int] = []
    at_end = 0
    while at_end < PARTITIONS:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is not None:
                at_end += 1
            else:
                found.append(int(message.value() or b"-1"))
    consumer.close()
    return sorted(found)
