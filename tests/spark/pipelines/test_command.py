"""`penstock pipeline` as a user runs it: a second copy is refused, a stop is clean, status and list tell what is going on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running_node import RunningNode, penstock
from tests.spark.pipelines.command import PipelineProcess
from tests.spark.reads import produce, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def until(check: Callable[[], bool], timeout_s: float = 240.0) -> None:
    """Wait for something to be so."""
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_pipeline_runs_is_seen_and_stops(node: RunningNode, tmp_path: Path) -> None:
    node.ok("topic", "create", "c1", "--partitions", "2")
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"pipeline: command-copy\nkind: transform\nbrokers: {node.bootstrap}\nsource: {{topics: [c1]}}\n"
        "transform: {sql: 'SELECT key, value FROM c1'}\ntarget: {topic: c1-copy}\n"
    )
    produce(node.bootstrap, "c1", [b"%d" % number for number in range(100)])
    running = PipelineProcess(file, tmp_path / "log")
    try:
        until(lambda: state(node).get("rows_written") == 100)
        assert (state(node)["state"], state(node)["lag_rows"]) == ("running", 0)
        assert "command-copy" in node.ok("pipeline", "list")
        text = node.ok("pipeline", "status", "command-copy")
        assert "100 read, 100 written" in text
        second = penstock("pipeline", "run", str(file), "--once")
        assert second.returncode == 1
        assert b"pipeline 'command-copy' runs already, on" in second.stderr
        produce(node.bootstrap, "c1", [b"more"])
        until(lambda: state(node).get("rows_written") == 101)
        assert running.stop() == 0
    finally:
        running.kill()
    assert state(node)["state"] == "stopped"
    rows = read(node.bootstrap, None, subscribe="c1-copy", **{"kafka.isolation.level": "read_committed"})
    assert len(rows) == 101
    first, *others = running.said().partition(" batches, ")[0].splitlines()[:-1]
    assert first == "pipeline command-copy (transform)"
    assert [line for line in others if not line.startswith("  ")] == [], "Spark starts without a word beside the plan"
    assert f"  reads   topic c1, at {node.bootstrap}" in others
    assert node.run("pipeline", "status", "no-such-pipeline").returncode == 1


def state(node: RunningNode) -> dict[str, Any]:
    """What the pipeline has reported."""
    (found,) = [one for one in json.loads(node.ok("pipeline", "list", "-o", "json")) if one["name"] == "command-copy"] or [{}]
    return dict(found)


def test_validate_tells_what_the_broker_lacks(node: RunningNode, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    node.ok("topic", "create", "c2-clicks")
    file.write_text(
        f"pipeline: p\nkind: transform\nbrokers: {node.bootstrap}\nsource:\n  topics: [c2-click]\n"
        "transform: {sql: 'SELECT value FROM x'}\ntarget: {topic: y}\n"
    )
    done = penstock("pipeline", "validate", str(file))
    assert done.returncode == 2
    assert (
        done.stderr.decode()
        .strip()
        .endswith(f"p.yaml:5: source.topics[0]: there is no topic 'c2-click' at {node.bootstrap}; did you mean c2-clicks?")
    )
    file.write_text(file.read_text().replace("brokers: ", "brokers: 127.0.0.1:1 # "))
    unreachable = penstock("pipeline", "validate", str(file))
    assert unreachable.returncode == 3
    assert b"p.yaml:3: brokers: " in unreachable.stderr


def test_init_writes_no_file_over_another(tmp_path: Path) -> None:
    assert penstock("pipeline", "init", "transform", "mine.yaml", cwd=tmp_path).returncode == 0
    assert penstock("pipeline", "validate", "mine.yaml", "--offline", cwd=tmp_path).returncode == 0
    again = penstock("pipeline", "init", "load", "mine.yaml", cwd=tmp_path)
    assert (again.returncode, b"mine.yaml already exists" in again.stderr) == (1, True)
