"""A node whose event loop is blocked says so: in its log with the stack, in its metrics, and as an alert."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from pathlib import Path

from tests.e2e.blocking_node import BLOCK_S
from tests.e2e.running_node import RunningNode, running_node

PROGRAM = (sys.executable, "-m", "tests.e2e.blocking_node")
ALERT_S = 30.0  # alerts are told every few seconds


def _get(node: RunningNode, path: str) -> str:
    http = node.ready["listeners"]["http"]
    with urllib.request.urlopen(f"http://{http['host']}:{http['port']}{path}", timeout=30) as response:
        return str(response.read().decode())


def _value(metrics: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    assert found is not None, f"there is no {name}"
    return float(found[1])


def test_a_blocked_event_loop_is_reported_with_its_stack(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(tmp_path / "log", argv, PROGRAM) as node:
        before = _value(_get(node, "/metrics"), "penstock_event_loop_blocked_total")
        _get(node, "/block")
        metrics = _get(node, "/metrics")
        assert _value(metrics, "penstock_event_loop_blocked_total") > before
        assert _value(metrics, "penstock_event_loop_blocked_longest_seconds") > BLOCK_S / 2
        log = (tmp_path / "log").read_text()
        assert "the event loop is blocked" in log
        assert "hold_up_the_loop" in log
        deadline = time.monotonic() + ALERT_S
        while "EVENT_LOOP_BLOCKED" not in (codes := _alerts(node)):
            assert time.monotonic() < deadline, f"no alert, only {codes}"
            time.sleep(0.2)
        assert node.stop() == 0


def _alerts(node: RunningNode) -> list[str]:
    return [alert["code"] for alert in json.loads(_get(node, "/api/v1/overview"))["alerts"]]
