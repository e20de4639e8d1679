"""`penstock up` in a process of its own, and the other commands run against it, as a user would."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 60.0  # on a machine with more to do
STOP_S = 30.0
COMMAND_S = 180.0  # on a machine with more to do; only one that hangs takes so long
PENSTOCK = (sys.executable, "-m", "penstock.cli.main")


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without any setting of ours that happens to be in it, and with some of a test. Nodes of tests that do not
    ask for HTTP have none, so that they do not meet at its port; and messages with timestamps of long ago stay as long as a slow
    machine needs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    clean["XDG_CONFIG_HOME"] = "/nonexistent"  # the profiles of the user who runs the tests do not apply
    return {**clean, "PENSTOCK_HTTP_PORT": "none", "PENSTOCK_RETENTION_INTERVAL_S": "3600", **(variables or {})}


def penstock(
    *argv: str,
    stdin: bytes = b"",
    cwd: Path | None = None,
    timeout: float = COMMAND_S,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end."""
    return subprocess.run(
        [*PENSTOCK, *argv], input=stdin, capture_output=True, timeout=timeout, check=False, cwd=cwd, env=environment(variables)
    )


class RunningNode:
    """A node that has said it is ready."""

    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, Any]) -> None:
        self.process = process
        self.ready = ready

    @property
    def bootstrap(self) -> str:
        """Where its Kafka listener is."""
        kafka = self.ready["listeners"]["kafka"]
        return f"{kafka['host']}:{kafka['port']}"

    def run(self, *argv: str, stdin: bytes = b"", timeout: float = COMMAND_S) -> subprocess.CompletedProcess[bytes]:
        """Run a command against it."""
        return penstock(*argv, stdin=stdin, timeout=timeout, variables={"PENSTOCK_BOOTSTRAP": self.bootstrap})

    def ok(self, *argv: str, stdin: bytes = b"") -> str:
        """Run a command that must succeed; what it printed."""
        done = self.run(*argv, stdin=stdin)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout.decode()

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(STOP_S)


@contextmanager
def running_node(log: Path, argv: Sequence[str], program: Sequence[str] = PENSTOCK) -> Iterator[RunningNode]:
    """Start a node, on a free port unless told otherwise, with its log in a file. What is left of it is killed at the end."""
    port = () if "--kafka-port" in argv else ("--kafka-port", "0")
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [*program, "up", "-o", "json", *port, *argv], stdout=subprocess.PIPE, stderr=stderr, env=environment()
        )
    try:
        yield RunningNode(process, json.loads(_first_line(process, log)))
    finally:
        process.kill()
        process.wait(STOP_S)
        assert process.stdout is not None
        process.stdout.close()


def _first_line(process: subprocess.Popen[bytes], log: Path) -> bytes:
    assert process.stdout is not None
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.1)[0]:
            line = process.stdout.readline()
            if line:
                return line
            break
    raise AssertionError(f"no ready line; exit code {process.poll()}; log:\n{log.read_text()}")
