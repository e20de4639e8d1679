"""A pytest plugin that keeps only the tests that talk to a broker, and writes what became of each as a line of JSON.

It runs inside the environment of a suite, so it imports nothing of ours. The plugin of the suite calls `choose` with what makes
a test a broker test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(os.environ["COMPAT_RESULTS"])
BOOTSTRAP = os.environ["COMPAT_BOOTSTRAP"]
_REASON_LENGTH_MAX = 600


def choose(config: pytest.Config, items: list[pytest.Item], talks_to_broker: Callable[[pytest.Item], bool]) -> None:
    """Leave out the tests that need no broker; the names of the others are written first."""
    chosen = [item for item in items if talks_to_broker(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
    _write({"collected": [item.nodeid for item in chosen]})


def fixtures_of(item: pytest.Item) -> frozenset[str]:
    """The names of all fixtures that a test uses, those of its fixtures included."""
    return frozenset(getattr(item, "fixturenames", ()))


def pytest_runtest_logstart(nodeid: str) -> None:
    """A line before a test, so that it is known which one ended the whole run."""
    _write({"started": nodeid})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """One line for a test that was called, and one for whatever else did not go well."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        _write({"id": item.nodeid, "when": report.when, "outcome": report.outcome, "reason": _reason(report, call)})
    return report


def _reason(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    if call.excinfo is None:
        return ""
    return call.excinfo.exconly()[:_REASON_LENGTH_MAX]


def _write(line: dict[str, Any]) -> None:
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
