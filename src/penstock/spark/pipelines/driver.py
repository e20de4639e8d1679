"""The driver of deployed pipelines: one Spark application, in a process that a node starts, tells what to run, and outlives.

Standard input, a JSON object a line: first {"application": …, "master": …, "conf": {…}}, then {"run": NAME, "version": …,
"file": {…}} and {"stop": NAME}. When it ends, so does this process, at once if pipelines still run: they continue from their last
commit. Standard output: {"running": NAME, "version": …} and {"ended": NAME, "version": …, "state": "finished", "stopped" or
"failed", "error": …, "is_final": …}. Everything else goes to standard error, which is the application's log.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.deployed import DeployedFile, read_deployed
from penstock.spark.pipelines.errors import SparkLostError
from penstock.spark.pipelines.progress import ProgressDisplay
from penstock.spark.pipelines.runner import NEVER_RETRIED, Runner, first_line
from penstock.spark.pipelines.spark_master import choose_master
from penstock.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OOM_SCORE: Final = "500"  # the kernel ends a driver before the node that started it
NICENESS: Final = 2
SETTINGS: Final[Mapping[str, str]] = {
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",  # a large batch of one pipeline does not make the others wait
}
EXIT_SPARK_LOST: Final = 3


class SparkApplication:
    """The Spark session of this process, started with the first pipeline; each has a session of its own, with its own views."""

    def __init__(self, name: str, master: str | None, conf: Mapping[str, str]) -> None:
        self._name = name
        self._master = choose_master(master, conf)
        self._conf = {**SETTINGS, **conf}
        self._starting = threading.Lock()
        self._session: SparkSession | None = None

    def new_session(self, pool: str) -> SparkSession:
        """A session for the pipeline of this thread."""
        with self._starting:
            if self._session is None:
                self._session = session(f"penstock {self._name}", master=self._master, settings=self._conf)
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        return self._session.newSession()

    def stop(self) -> None:
        """Stop Spark, if it was started."""
        if self._session is not None:
            self._session.stop()


class Driver:
    """Runs pipelines, each in a thread."""

    def __init__(self, application: SparkApplication, events: IO[str]) -> None:
        self._application = application
        self._events = events
        self._telling = threading.Lock()
        self._runners: dict[str, Runner | None] = {}  # None until its file is read
        self._stopping: set[str] = set()
        self._threads: dict[str, threading.Thread] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no pipeline runs."""
        return not any(thread.is_alive() for thread in self._threads.values())

    def run(self, name: str, version: int, file: DeployedFile) -> None:
        """Start a pipeline."""
        self._stopping.discard(name)
        thread = threading.Thread(target=self._run, args=(name, version, file), name=f"pipeline {name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def stop(self, name: str) -> None:
        """Stop a pipeline after its batch in flight."""
        self._stopping.add(name)
        runner = self._runners.get(name)
        if runner is not None:
            runner.stop()

    def _run(self, name: str, version: int, file: DeployedFile) -> None:
        display = ProgressDisplay(sys.stderr, lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {name}: ")
        end: dict[str, Any] = {"ended": name, "version": version, "error": None, "is_final": True}
        try:
            runner = self._make_runner(name, file, display)
            self._tell({"running": name, "version": version})
            runner.run()
            end["state"] = "stopped" if name in self._stopping else "finished"
        except Exception as error:  # whatever ends it is told to the node, which decides what follows
            sentence = str(error) if isinstance(error, PenstockError) else first_line(error)
            display.say(f"failed: {sentence}")
            if not isinstance(error, PenstockError):
                logging.getLogger(__name__).warning("pipeline %s failed", name, exc_info=error)
            is_lost = isinstance(error, SparkLostError)
            end |= {"state": "failed", "error": sentence, "is_final": isinstance(error, NEVER_RETRIED) and not is_lost}
            if is_lost:
                self._tell(end)
                os._exit(EXIT_SPARK_LOST)
        finally:
            self._runners.pop(name, None)
        self._tell(end)

    def _make_runner(self, name: str, file: DeployedFile, display: ProgressDisplay) -> Runner:
        spec = read_deployed(file)
        # The node runs one instance: another one is of a node that lost this pipeline, and is fenced.
        runner = Runner(spec, lambda: self._application.new_session(name), display, takes_over=True, reset=file.reset)
        self._runners[name] = runner
        if name in self._stopping:
            runner.stop()
        return runner

    def _tell(self, event: Mapping[str, Any]) -> None:
        with self._telling, suppress(BrokenPipeError):  # the node is gone; standard input has ended as well
            self._events.write(json.dumps(event) + "\n")
            self._events.flush()


def main() -> None:
    """Serve a node until it ends."""
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Spark and functions of users print
    _yield_to_the_node()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    first = json.loads(sys.stdin.readline() or "null")
    if first is None:
        return
    application = SparkApplication(first["application"], first["master"], first["conf"])
    driver = Driver(application, events)
    for line in sys.stdin:
        order = json.loads(line)
        if "run" in order:
            driver.run(order["run"], order["version"], DeployedFile(**order["file"]))
        else:
            driver.stop(order["stop"])
    if not driver.is_idle:
        os._exit(1)  # the node was killed: a batch in flight is committed as a whole or not at all
    application.stop()


def _yield_to_the_node() -> None:
    os.nice(NICENESS)
    with suppress(OSError):  # not on this system
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")


if __name__ == "__main__":
    main()
