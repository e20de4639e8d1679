"""The broker of the demo: `penstock up` in a process of its own, so that it can be killed."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.cli.failure import CommandError
from penstock.console import is_built

START_S: Final = 30.0
STOP_S: Final = 15.0
PENSTOCK: Final = (sys.executable, "-m", "penstock.cli.main")


class DemoNode:
    """A node with its data in a folder. It takes free ports, and the same ones when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {"kafka": 0, "http": 0} if is_built() else {"kafka": 0}
        self.host = "127.0.0.1"

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients connect."""
        return f"{self.host}:{self._ports['kafka']}"

    @property
    def console(self) -> str:
        """Where a browser goes. A clone that is being set up has no console yet."""
        return f"http://{self.host}:{self._ports['http']}" if "http" in self._ports else "not built yet; `make setup` does it"

    def start(self) -> float:
        """Start it and wait until it is ready; how long that took, in seconds."""
        began = time.monotonic()
        options = ["--data-dir", str(self._folder / "broker"), "--host", self.host, "--log-level", "warning", "-o", "json"]
        for name, port in self._ports.items():
            options += [f"--{name}-port", str(port)]
        if "http" not in self._ports:
            options += ["--http-port", "none"]
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*PENSTOCK, "up", *options], stdout=subprocess.PIPE, stderr=log, env=_environment(), start_new_session=True
            )
        listeners = json.loads(self._first_line(self._process))["listeners"]
        self._ports = {name: listeners[name]["port"] for name in self._ports}
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._forget(self._process)

    def stop(self) -> None:
        """Ask it to stop, and see to it that it does."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._forget(self._process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None

    def _first_line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if ready else b""
        if not line:
            said = (self._folder / "broker.log").read_text(errors="replace")[-1000:].strip()
            raise CommandError(f"the broker did not start. It said: {said or 'nothing'}")
        return line


def _environment() -> Mapping[str, str]:
    """This environment without settings of nodes: the demo's broker is as the demo says."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
