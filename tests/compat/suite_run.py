"""Runs a suite against a node and tells what became of each test that talks to a broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.compat.outcome import Outcome
from tests.compat.preparation import run_folder
from tests.compat.suites import CACHE, HERE, ROOT, Suite

TEST_TIMEOUT_S = 130
UNREACHED = "unreached"
# One that vouches for itself.
CERTIFICATE, KEY = (ROOT / "tests" / "e2e" / "kafka" / "tls" / name for name in ("cert.pem", "key.pem"))


class BrokerAddress(NamedTuple):
    """Where a broker listens: without encryption, and on the same host with TLS; and where its schema registry is."""

    bootstrap: str
    tls_port: int
    registry: str = ""


def run_suite(
    suite: Suite, python: Path, address: BrokerAddress, chosen: Sequence[str], expression: str | None
) -> dict[str, Outcome]:
    """Run these tests, or all, once. One that ends the whole run has failed; those after it get a run of their own."""
    extra = () if expression is None else ("-k", expression)
    outcomes = _run_process(suite, python, address, chosen or suite.tests, extra)
    while rest := [name for name, outcome in outcomes.items() if outcome.verdict == UNREACHED]:
        more = _run_process(suite, python, address, rest, ())
        if all(more.get(name, Outcome(UNREACHED)).verdict == UNREACHED for name in rest):
            return outcomes | {name: Outcome("failed", "its run ends before it is reached") for name in rest}
        outcomes |= more
    return outcomes


def _run_process(
    suite: Suite, python: Path, address: BrokerAddress, tests: Sequence[str], extra: Sequence[str]
) -> dict[str, Outcome]:
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
            command, cwd=run_folder(suite), env=_environment(suite, results, address), stdout=log, stderr=log, check=False
        )
    return _read(results)


def _environment(suite: Suite, results: Path, address: BrokerAddress) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_", "KAFKA_"))}
    return {
        **clean,
        "PYTHONPATH": str(HERE / "plugins"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COMPAT_RESULTS": str(results),
        "COMPAT_BOOTSTRAP": address.bootstrap,
        "COMPAT_TLS_PORT": str(address.tls_port),
        "COMPAT_CERTIFICATES": str(_certificates()),
        # kafka-python: the broker to use, the version whose features are tested, and a folder that only has to be there.
        "KAFKA_URI": f"kafka://{address.bootstrap}",
        "KAFKA_VERSION": "4.3.0",
        "KAFKA_ROOT": str(HERE),
        # confluent-kafka
        "BROKERS": address.bootstrap,
        "SR_URL": address.registry,
        **suite.environment,
    }


def _certificates() -> Path:
    """The broker's certificate under the names that aiokafka's suite looks for."""
    folder = CACHE / "certificates"
    folder.mkdir(exist_ok=True)
    for name, content in (("ca.crt", CERTIFICATE), ("client.crt", CERTIFICATE), ("client.key", KEY)):
        shutil.copy(content, folder / name)
    return folder


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
