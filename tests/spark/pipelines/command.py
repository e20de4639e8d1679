"""`penstock pipeline run` in a process of its own, to be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.e2e.running_node import environment

START_S = 240.0
SETTINGS = ("spark.ui.enabled=false", "spark.driver.memory=600m", "spark.sql.shuffle.partitions=2")


class PipelineProcess:
    """One process of the command; its output goes to a file."""

    def __init__(self, file: Path, log: Path, *options: str, master: str = "local[2]") -> None:
        self.log = log
        settings = [part for setting in SETTINGS for part in ("--conf", setting)]
        command = [
            sys.executable,
            "-m",
            "penstock.cli.main",
            "pipeline",
            "run",
            str(file),
            "--master",
            master,
            *settings,
            *options,
        ]
        variables = {name: value for name, value in environment().items() if name != "PYSPARK_PYTHON"}
        with log.open("ab") as output:
            # A group of its own: Spark starts processes that must not outlive a test.
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=variables, start_new_session=True)

    def kill(self) -> None:
        """kill -9 of the driver and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout_s: float = 240.0) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def wait(self, timeout_s: float = 300.0) -> int:
        """Until it ends by itself; its exit code."""
        return self.process.wait(timeout_s)

    def wait_for(self, text: str, timeout_s: float = START_S) -> None:
        """Until it has said something."""
        deadline = time.monotonic() + timeout_s
        while text not in self.said():
            assert self.process.poll() is None, self.said()[-3000:]
            assert time.monotonic() < deadline, self.said()[-3000:]
            time.sleep(0.1)

    def said(self) -> str:
        """All that it and those before it have written to the log."""
        return self.log.read_text(errors="replace")
