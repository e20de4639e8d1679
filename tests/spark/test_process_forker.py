"""The process that Spark's Python processes are forked from: what is forked is what would have been started."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.spark import handover
from penstock.spark.handover import FORKER
from penstock.spark.process_forker import is_same_start

TIMEOUT_S = 60.0
SCRIPT = """
import json, os, sys, time
print(json.dumps([os.getpid(), os.getcwd(), sys.argv[1:], os.environ["SPARK_SAID"], sys.stdin.readline(), sys.path[0],
                  "pyspark.sql.worker.create_data_source" in sys.modules]), flush=True)
print("to stderr", file=sys.stderr, flush=True)
if sys.argv[1:] == ["stays"]:
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which it is found."""
    address = tmp_path_factory.mktemp("forker") / "address"
    environment = {**os.environ, FORKER: str(address)}
    command = [sys.executable, "-m", "penstock.spark.process_forker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not address.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield environment
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
    assert not address.exists()


def hand_over(environment: Mapping[str, str], directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """A module in `directory`, run as the launcher has it run."""
    (directory / "asked_for.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-I", "-S", handover.__file__, "-m", "asked_for", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=directory)


def test_what_is_forked_has_everything_imported_and_all_that_it_was_given(forker: dict[str, str], tmp_path: Path) -> None:
    started = hand_over({**forker, "SPARK_SAID": "this"}, tmp_path, "one", "two")
    out, err = started.communicate("a line\n", TIMEOUT_S)
    process, *found = json.loads(out)
    assert found == [str(tmp_path), ["one", "two"], "this", "a line\n", str(tmp_path), True]
    assert process != started.pid
    assert err == "to stderr\n"


@pytest.mark.parametrize("changed", [{"PYTHONHASHSEED": "17"}, {FORKER: "/nowhere"}], ids=["other start", "no forker"])
def test_what_cannot_be_forked_is_started(forker: dict[str, str], tmp_path: Path, changed: dict[str, str]) -> None:
    started = hand_over({**forker, "SPARK_SAID": "this", **changed}, tmp_path, "one")
    process, *found = json.loads(started.communicate("", TIMEOUT_S)[0])
    assert (process, found[-1]) == (started.pid, False)


def test_a_signal_reaches_what_was_forked(forker: dict[str, str], tmp_path: Path) -> None:
    started = hand_over({**forker, "SPARK_SAID": "this"}, tmp_path, "stays")
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.close()
    process = json.loads(started.stdout.readline())[0]
    handle = os.pidfd_open(process)
    started.send_signal(signal.SIGTERM)
    assert started.wait(TIMEOUT_S) == 0
    assert select.select([handle], [], [], 0)[0]  # it has ended
    os.close(handle)
    started.stdout.close()
    assert started.stderr is not None
    started.stderr.close()


def test_only_what_spark_reads_late_may_differ() -> None:
    given = {"LANG": "C", "PYTHONPATH": "/a:/b", "SPARK_LOCAL_DIRS": "/x", "PWD": "/"}
    assert is_same_start(given, {"LANG": "C", "PYTHONPATH": "/a:/b:/a", "PYTHON_WORKER_FACTORY_PORT": "1"})
    assert not is_same_start(given, {**given, "PYTHONPATH": "/b:/a"})
    assert not is_same_start(given, {**given, "LD_PRELOAD": "lib.so"})
    assert not is_same_start(given, {"PYTHONPATH": "/a:/b"})
