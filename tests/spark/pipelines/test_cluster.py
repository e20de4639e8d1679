"""The same pipeline on a cluster of two workers, one copy taking over from another. Minutes of JVMs, so a soak test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.running_node import running_node
from tests.spark.pipelines.command import PipelineProcess
from tests.spark.reads import produce, read
from tests.spark.test_standalone_cluster import master

__all__ = ["master"]  # a fixture

SMALL = ("--conf", "spark.executor.memory=500m", "--conf", "spark.cores.max=2")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_pipeline_runs_on_two_workers(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    address: str = request.getfixturevalue("master")
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        node.ok("topic", "create", "numbers", "--partitions", "4")
        for partition in range(4):
            values = [b"bad" if number == 7 else b'{"n": %d}' % (partition * 5000 + number) for number in range(5000)]
            produce(node.bootstrap, "numbers", [*values], partition=partition)
        file = tmp_path / "double.yaml"
        file.write_text(
            f"pipeline: double\nkind: transform\nbrokers: {node.bootstrap}\n"
            "source: {topics: [numbers], value: {format: json, schema: 'n BIGINT'}}\n"
            "transform: {sql: 'SELECT n, 2 * n AS twice FROM numbers'}\ntarget: {topic: doubles, partitions: 2}\n"
            "batch: {rows_max: 4000}\n"
        )
        done = PipelineProcess(file, tmp_path / "once.log", "--once", *SMALL, master=address)
        assert done.wait() == 0, done.said()[-4000:]
        committed = {"kafka.isolation.level": "read_committed"}
        rows = read(node.bootstrap, None, subscribe="doubles", **committed)
        assert sorted(json.loads(row["value"])["n"] for row in rows) == [number for number in range(20_000) if number % 5000 != 7]
        assert len(read(node.bootstrap, None, subscribe="double.dead", **committed)) == 4

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
        rows = read(node.bootstrap, None, subscribe="doubles", **committed)
        assert sorted(json.loads(row["value"])["n"] for row in rows)[-1] == 20_000
        assert len(rows) == 19_997
