"""Runs a suite against a node and tells what became of each test that talks to a broker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.compat.outcome import Outcome
from tests.compat.preparation import run_folder
from tests.compat.suites import HERE, Suite

TEST_TIMEOUT_S = 130
UNREACHED = "unreached"


def run_suite(suite: Suite, python: Path, bootstrap: str, chosen: Sequence[str], expression: str | None) -> dict[str, Outcome]:
    """Run these tests, or all, once. One that ends the whole run has failed; those after it get a run of their own."""
    extra = () if expression is None else ("-k", expression)
    outcomes = _run_process(suite, python, bootstrap, chosen or suite.tests, extra)
    while rest := [name for name, outcome in outcomes.items() if outcome.verdict == UNREACHED]:
        more = _run_process(suite, python, bootstrap, rest, ())
        if all(more.get(name, Outcome(UNREACHED)).verdict == UNREACHED for name in rest):
            return outcomes | {name: Outcome("failed", "its run ends before it is reached") for name in rest}
        outcomes |= more
    return outcomes


def _run_process(suite: Suite, python: Path, bootstrap: str, tests: Sequence[str], extra: Sequence[str]) -> dict[str, Outcome]:
    results = suite.home / "results.jsonl"
    results.unlink(missing_ok=True)
    command = [
        str(python),
        "-m",
        "pytest",
        "-p",
        suite.plugin,
        "-p",
        "no:cacheprovider",
        "-v",
        "--tb=short",
        "-rN",
        "--rootdir",
        ".",
    ]
    command += [f"--timeout={TEST_TIMEOUT_S}", *suite.options, *extra, *tests]
    with (suite.home / "pytest.log").open("ab") as log:
        subprocess.run(
            command, cwd=run_folder(suite), env=_environment(suite, results, bootstrap), stdout=log, stderr=log, check=False
        )
    return _read(results)


def _environment(suite: Suite, results: Path, bootstrap: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_", "KAFKA_"))}
    return {
        **clean,
        "PYTHONPATH": str(HERE / "plugins"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COMPAT_RESULTS": str(results),
        "COMPAT_BOOTSTRAP": bootstrap,
        # kafka-python: the broker to use, the version whose features are tested, and a folder that only has to be there.
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": "4.3.0",
        "KAFKA_ROOT": str(HERE),
        # confluent-kafka
        "BROKERS": bootstrap,
        **suite.environment,
    }


def _read(results: Path) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    for line in map(json.loads, lines):
        if "collected" in line:
            outcomes = dict.fromkeys(line["collected"], Outcome(UNREACHED))
        elif "started" in line:
            outcomes[line["started"]] = Outcome("failed", f"it hung for {TEST_TIMEOUT_S} s, or ended the process")
        else:
            # A test that passed and then failed to tear down has failed.
            outcomes[line["id"]] = Outcome(line["outcome"], line["reason"])
    return outcomes
