"""The example of Spark Declarative Pipelines, as its README runs it: twice, and killed in between."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import ROOT
from tests.spark.pipelines.runs import Runs
from tests.spark.pipelines.test_examples import generator

EXAMPLE = ROOT / "examples" / "declarative"
COMMAND = ("spark-pipelines", "--conf", "spark.sql.catalogImplementation=hive", "--conf", "spark.ui.enabled=false", "run")
START_S = 400.0


class Example:
    """A copy of the example, whose tables and checkpoints are its own."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.directory = runs.directory / "declarative"
        shutil.copytree(EXAMPLE, self.directory, ignore=shutil.ignore_patterns("__pycache__"))
        spec = self.directory / "spark-pipeline.yml"
        spec.write_text(spec.read_text().replace("file:///tmp/penstock-declarative", f"file://{runs.directory}/checkpoints"))
        self.log = runs.directory / "log"

    def start(self) -> subprocess.Popen[bytes]:
        """Run it; in an environment that is activated."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # Those of the tests' own session are for the processes of that one.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
        variables = {**kept, "PATH": path, "PENSTOCK_BOOTSTRAP": self._runs.node.bootstrap}
        with self.log.open("wb") as log:
            return subprocess.Popen(COMMAND, cwd=self.directory, stdout=log, stderr=log, env=variables, start_new_session=True)

    def run(self) -> None:
        """Run it to its end."""
        process = self.start()
        try:
            assert process.wait(START_S) == 0, self.log.read_text()[-3000:]
        finally:
            kill(process)
        assert "Run is COMPLETED" in self.log.read_text()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as Spark sees them: files that a killed run left behind are in no commit."""
        return [row.asDict() for row in self._runs.spark.read.parquet(f"{self.directory}/spark-warehouse/{table}").collect()]


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 the command with its server and workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def produced(runs: Runs, count: int, seed: int) -> list[dict[str, Any]]:
    """Put clicks into the topic; those that can be decoded."""
    clicks = generator("clickstream").clicks(count, seed)
    runs.node.ok("produce", "clicks", "-K", "|", stdin="\n".join(f"{key}|{value}" for key, value in clicks).encode())
    return [json.loads(value) for _, value in clicks if value.endswith("}")]


def check(runs: Runs, example: Example, clicks: list[dict[str, Any]], count: int) -> None:
    """What tables and topics hold is what the clicks come to."""
    rows = example.rows("clicks")
    places = Counter((row["partition"], row["offset"]) for row in rows)
    assert (len(places), len(rows)) == (count, count)
    assert all({offset for at, offset in places if at == number} == set(range(_count(places, number))) for number in (0, 1))
    wanted = Counter((click["visitor"], click["page"]) for click in clicks)
    assert Counter((row["visitor"], row["page"]) for row in rows if row["visitor"] is not None) == wanted
    assert {row["page"]: row["count"] for row in example.rows("pages")} == Counter(click["page"] for click in clicks)
    bought = Counter(click["visitor"] for click in clicks if click["page"] == "/thanks")
    assert Counter(value["visitor"] for value in runs.values("checkouts")) == bought
    assert len(bought) > 20


def _count(places: Counter[tuple[int, int]], number: int) -> int:
    return sum(at == number for at, _ in places)


def by_minute(clicks: list[dict[str, Any]]) -> Counter[str]:
    """How many clicks each minute has."""
    return Counter(datetime.fromisoformat(click["at"]).strftime("%Y-%m-%dT%H:%M:00.000Z") for click in clicks)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_example_of_declarative_pipelines(runs: Runs) -> None:
    runs.topic("clicks")
    runs.node.ok("topic", "create", "checkouts", "clicks-by-minute")
    example = Example(runs)
    clicks = produced(runs, 3000, 1)
    example.run()
    check(runs, example, clicks, 3000)
    minutes = {value["minute"]: value["clicks"] for value in runs.values("clicks-by-minute")}
    counts = by_minute(clicks)
    assert len(minutes) > 30
    assert minutes == {minute: counts[minute] for minute in minutes}

    clicks += produced(runs, 1000, 2)
    killed = example.start()
    try:
        deadline = time.monotonic() + START_S
        while "Flow spark_catalog.default.clicks is RUNNING" not in example.log.read_text():
            assert killed.poll() is None, example.log.read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(random.Random(4).uniform(0, 15))
    finally:
        kill(killed)
    example.run()
    check(runs, example, clicks, 4000)
    # All that came later is of minutes that are over.
    assert sorted(value["minute"] for value in runs.values("clicks-by-minute")) == sorted(minutes)
    example.run()
    check(runs, example, clicks, 4000)
