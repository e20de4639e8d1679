"""`penstock up --workers`: processes that are started, restarted and stopped together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from penstock.cli.exit_codes import ExitCode
from penstock.server import NodeConfig
from penstock.server.data_directory import DataDirectory
from tests.e2e.running_node import penstock, running_node

WAIT_S = 30.0


def _until(what: str, ready: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_are_restarted_and_stopped_together_on_the_data_of_a_single_node(tmp_path: Path) -> None:
    log, data = tmp_path / "log", tmp_path / "data"
    with running_node(log, ["--data-dir", str(data)]) as alone:
        alone.ok("topic", "create", "orders")
        alone.ok("produce", "orders", stdin=b"first\n")
        assert alone.stop() == 0
    with running_node(log, ["--workers", "2", "--data-dir", str(data)]) as node:
        first, second = node.ready["workers"]
        assert (first["node_id"], second["node_id"]) == (1, 2)
        assert node.ready["listeners"]["kafka"] == first["listeners"]["kafka"]
        for worker in (second, first):
            os.kill(worker["pid"], signal.SIGKILL)
            again = f"worker {worker['worker']} serves again"
            _until(again, lambda text=again: text in log.read_text())  # type: ignore[misc]
        assert node.ok("consume", "orders", "-n", "1").strip() == "first"  # at the port it had
        assert "[worker 1] penstock.cli.up: node 1 of cluster" in log.read_text()
        in_use = penstock("up", "--workers", "2", "--data-dir", str(data), "--kafka-port", "0")
        assert in_use.returncode == ExitCode.DIRECTORY_IN_USE, in_use.stderr
        node.kill()
    with running_node(log, ["--workers", "2", "--data-dir", str(data)]) as node:
        # The workers of the supervisor that was killed have stopped before these started.
        assert log.read_text().count("the supervisor has ended; this worker stops") == 2
        assert node.ok("consume", "orders", "-n", "1").strip() == "first"
        assert node.stop() == 0
        assert not any(_runs(worker["pid"]) for worker in node.ready["workers"])


def test_a_directory_that_cannot_be_a_workers_stops_all(tmp_path: Path) -> None:
    DataDirectory.open(NodeConfig(data_dir=tmp_path), Random(1), cluster_id="ours").close()
    DataDirectory.open(NodeConfig(data_dir=tmp_path / "workers" / "2"), Random(1), cluster_id="another").close()
    done = penstock("up", "--workers", "2", "--data-dir", str(tmp_path), "--kafka-port", "0")
    assert (done.returncode, done.stdout) == (ExitCode.DIRECTORY_MISMATCH, b""), done.stderr
    assert b"is of cluster another, not ours" in done.stderr
