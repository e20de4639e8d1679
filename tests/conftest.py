"""Settings that all tests share."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

from tests.typed_modules import PLAIN, run_plain, stale_modules

if os.environ.get(PLAIN):
    run_plain()

# Tests start Python thousands of times: without bytecode, each compiles all that it imports, for half a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nodes of tests would all want the same port for HTTP; those that are to have it say --http-port 0.
os.environ["PENSTOCK_HTTP_PORT"] = "none"

# Spark's Java lives for a minute in a test: its optimising compiler and a collector with threads cost more than they bring.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# No example has a time limit of its own: a busy machine is not a fault of the code, and every test has a limit anyway.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

# Files that take longest go first, in this order, else the last of them is waited for alone.
LONG = (
    "tests/e2e/cluster/test_faults",
    "tests/e2e/test_demo",
    "tests/e2e/test_tutorial",
    "tests/e2e/test_up",
    "tests/e2e/yt/test_kill9",
    "tests/spark/",
    "tests/e2e/test_packaging",
    "tests/e2e/console/",
    "tests/e2e/cluster/",
    "tests/e2e/test_disk_faults",
    "tests/e2e/test_workers",
    "tests/e2e/yt/",
    "tests/e2e/ydb/",
    "tests/fuzz/",
    "tests/upgrade/",
    # The S3 server that these use is built while the others run; each worker that comes to one earlier would wait for it.
    "tests/spark/pipelines/test_export.py",
    "tests/spark/pipelines/test_load.py",
    "tests/spark/pipelines/test_table_layer.py",
)


def _rank(path: str) -> int:
    """The place of a file in that order, by the longest beginning that fits."""
    fitting = [start for start in LONG if path.startswith(start)]
    return LONG.index(max(fitting, key=len)) if fitting else len(LONG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells of compiled modules that may not be the source any more. Only tells: a checkout touches files that stay the same."""
    if not os.environ.get(PLAIN) and (stale := stale_modules()):
        terminalreporter.write_line(
            f"changed since they were compiled: {', '.join(stale)}; `make setup` compiles them", yellow=True
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put them in that order; within a file nothing changes. The first test that uses S3 may wait for its server to be built."""
    items.sort(key=lambda item: _rank(item.nodeid))
    for item in items:
        if isinstance(item, pytest.Function) and ("s3" in item.fixturenames or "tarantool-s3" in item.name):
            item.add_marker(pytest.mark.timeout(900))
