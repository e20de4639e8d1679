"""Drivers and brokers killed at random moments: what is in the target is what was in the source, each row once.

Readers see committed rows only. A short form runs with the other tests; the long one is a soak test.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.running_node import RunningNode, running_node
from tests.spark.pipelines.command import PipelineProcess
from tests.spark.reads import produce, read


class World:
    """A broker on a port of its own and a pipeline, both of which can be killed and restarted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._brokers = ExitStack()
        self._pipelines = ExitStack()
        self.node: RunningNode = self._start("0")
        self.port = self.node.bootstrap.rpartition(":")[2]

    def _start(self, port: str) -> RunningNode:
        argv = ["--data-dir", str(self._directory / "data"), "--kafka-port", port]
        return self._brokers.enter_context(running_node(self._directory / "node.log", argv))

    def kill_broker(self) -> None:
        """kill -9, and up again on the same port."""
        self.node.kill()
        self._brokers.close()
        self.node = self._start(self.port)

    def pipeline(self, file: Path, *options: str, master: str = "local[2]") -> PipelineProcess:
        """Run a pipeline."""
        running = PipelineProcess(file, self._directory / "pipeline.log", "--take-over", *options, master=master)
        self._pipelines.callback(running.kill)
        return running

    def close(self) -> None:
        """End all of it."""
        self._pipelines.close()
        self._brokers.close()


@contextmanager
def world(directory: Path) -> Iterator[World]:
    """A broker, ended at the end."""
    made = World(directory)
    try:
        yield made
    finally:
        made.close()


def committed(world: World, topic: str) -> list[dict[str, Any]]:
    """The values that readers of committed rows see."""
    rows = read(world.node.bootstrap, None, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    return [json.loads(row["value"]) for row in rows]


def write_transform(world: World, directory: Path) -> Path:
    """A pipeline that doubles numbers, and puts aside what is none."""
    file = directory / "double.yaml"
    file.write_text(
        f"pipeline: double\nkind: transform\nbrokers: 127.0.0.1:{world.port}\n"
        "source: {topics: [numbers], value: {format: json, schema: 'n BIGINT'}}\n"
        "transform: {sql: 'SELECT n, 2 * n AS twice FROM numbers'}\ntarget: {topic: doubles, partitions: 2}\n"
        "batch: {rows_max: 2000}\nrestart: {attempts: 100, backoff: 500ms}\n"
    )
    return file


def shake(world: World, file: Path, kills: int, seed: int) -> None:
    """Kill the driver, or the broker, at random moments after the pipeline has begun."""
    chance = random.Random(seed)
    running = world.pipeline(file)
    for kill in range(kills):
        if kill % 2:
            time.sleep(chance.uniform(0.1, 4.0))
            world.kill_broker()
        else:
            said = len(running.said())
            deadline = time.monotonic() + 120
            while "rows read" not in running.said()[said:] and time.monotonic() < deadline and running.process.poll() is None:
                time.sleep(0.05)
            time.sleep(chance.uniform(0.0, 2.0))
            running.kill()
            running = world.pipeline(file)
    assert running.process.poll() is None, running.said()[-3000:]
    running.kill()


def kill_both(world: World, file: Path) -> None:
    """Kill the broker after the pipeline has begun, then the driver."""
    running = world.pipeline(file)
    running.wait_for("rows read")
    world.kill_broker()
    running.kill()


def check_transform(directory: Path, rows: int, kill: Callable[[World, Path], None]) -> None:
    with world(directory) as one:
        one.node.ok("topic", "create", "numbers", "--partitions", "2")
        for partition in range(2):
            values = [
                b"bad" if number % 1000 == 7 else b'{"n": %d}' % number
                for number in range(partition * rows, (partition + 1) * rows)
            ]
            for at in range(0, rows, 50_000):
                produce(one.node.bootstrap, "numbers", [*values[at : at + 50_000]], partition=partition)
        file = write_transform(one, directory)
        kill(one, file)
        assert one.pipeline(file, "--once").wait(900) == 0
        found = Counter(value["n"] for value in committed(one, "doubles"))
        assert found == Counter(number for number in range(2 * rows) if number % 1000 != 7)
        dead = read(one.node.bootstrap, None, subscribe="double.dead", **{"kafka.isolation.level": "read_committed"})
        assert len(dead) == sum(number % 1000 == 7 for number in range(2 * rows))


def check_load(directory: Path, kills: int, files: int, seed: int) -> None:
    with world(directory) as one:
        incoming = directory / "in"
        incoming.mkdir()
        for number in range(files):
            table = pa.table({"n": list(range(number * 2000, (number + 1) * 2000))})
            pq.write_table(table, incoming / f"{number:03}.parquet", row_group_size=500)
        file = directory / "load.yaml"
        file.write_text(
            f"pipeline: numbers\nkind: load\nbrokers: 127.0.0.1:{one.port}\nsource: {{files: {{path: in, format: parquet}}}}\n"
            "target: {topic: loaded, partitions: 2}\nbatch: {rows_max: 1000}\nrestart: {attempts: 100, backoff: 500ms}\n"
        )
        shake(one, file, kills, seed)
        assert one.pipeline(file, "--once").wait(900) == 0
        found = Counter(value["n"] for value in committed(one, "loaded"))
        assert found == Counter(range(files * 2000))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_transform_outlives_the_death_of_driver_and_broker(tmp_path: Path) -> None:
    check_transform(tmp_path, 3_000, kill_both)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_transform_outlives_twenty_deaths(tmp_path: Path) -> None:
    check_transform(tmp_path, 100_000, lambda one, file: shake(one, file, kills=20, seed=2))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_load_outlives_twenty_deaths(tmp_path: Path) -> None:
    check_load(tmp_path, kills=20, files=60, seed=3)
