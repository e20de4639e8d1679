"""Pipelines on a standalone cluster: whose executors have nothing of ours, and with one copy taking over from another."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.running_node import running_node
from tests.spark.pipelines.command import PipelineProcess
from tests.spark.reads import produce, read
from tests.spark.spark_cluster import spark_cluster
from tests.spark.test_standalone_cluster import master

__all__ = ["master"]  # a fixture

SMALL = ("--conf", "spark.executor.memory=500m", "--conf", "spark.cores.max=2")
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_executors_without_penstock_and_its_files_write_each_row_once(tmp_path: Path) -> None:
    if shutil.which(f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/bin") is None:
        pytest.skip("there is no Python of this version besides the one with Penstock")
    argv = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as node, spark_cluster(workers=1, cores=2, is_isolated=True) as cluster:
        node.ok("topic", "create", "numbers", "--partitions", "2")
        for partition in range(2):
            values = [b"bad" if number == 7 else b'{"n": %d}' % (partition * 1000 + number) for number in range(1000)]
            produce(node.bootstrap, "numbers", [*values], partition=partition)
        file = write_doubling(tmp_path, node.bootstrap)
        done = PipelineProcess(file, tmp_path / "once.log", "--once", *SMALL, master=cluster.address)
        try:
            assert done.wait() == 0, done.said()[-4000:]
        finally:
            done.kill()
        assert "2,000 rows read, 1,998 written" in done.said()
        rows = read(node.bootstrap, None, subscribe="doubles", **COMMITTED)
        assert sorted(json.loads(row["value"])["twice"] for row in rows) == [2 * n for n in range(2000) if n % 1000 != 7]
        assert len(read(node.bootstrap, None, subscribe="double.dead", **COMMITTED)) == 2


def write_doubling(directory: Path, brokers: str) -> Path:
    """A pipeline that doubles numbers."""
    file = directory / "double.yaml"
    file.write_text(
        f"pipeline: double\nkind: transform\nbrokers: {brokers}\n"
        "source: {topics: [numbers], value: {format: json, schema: 'n BIGINT'}}\n"
        "transform: {sql: 'SELECT n, 2 * n AS twice FROM numbers'}\ntarget: {topic: doubles, partitions: 2}\n"
        "batch: {rows_max: 4000}\n"
    )
    return file


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_pipeline_runs_on_two_workers(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    address: str = request.getfixturevalue("master")
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        node.ok("topic", "create", "numbers", "--partitions", "4")
        for partition in range(4):
            values = [b"bad" if number == 7 else b'{"n": %d}' % (partition * 5000 + number) for number in range(5000)]
            produce(node.bootstrap, "numbers", [*values], partition=partition)
        file = write_doubling(tmp_path, node.bootstrap)
        done = PipelineProcess(file, tmp_path / "once.log", "--once", *SMALL, master=address)
        assert done.wait() == 0, done.said()[-4000:]
        rows = read(node.bootstrap, None, subscribe="doubles", **COMMITTED)
        assert sorted(json.loads(row["value"])["n"] for row in rows) == [number for number in range(20_000) if number % 5000 != 7]
        assert len(read(node.bootstrap, None, subscribe="double.dead", **COMMITTED)) == 4

        first = PipelineProcess(file, tmp_path / "first.log", master="local[1]")
        try:
            first.wait_for("rows read")
            second = PipelineProcess(file, tmp_path / "second.log", "--take-over", *SMALL, master=address)
            try:
                second.wait_for("rows read")
                produce(node.bootstrap, "numbers", [b'{"n": 20000}'])
                assert first.wait(120) == 1
                assert "another copy of pipeline 'double', started on" in first.said()
                assert second.stop() == 0
            finally:
                second.kill()
        finally:
            first.kill()
        rows = read(node.bootstrap, None, subscribe="doubles", **COMMITTED)
        assert sorted(json.loads(row["value"])["n"] for row in rows)[-1] == 20_000
        assert len(rows) == 19_997
