"""A driver as the node sees it: a child process with a log of its own, which ends when its standard input does."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.server.settings import SETTINGS

log = logging.getLogger(__name__)

PROGRAM: Final = (sys.executable, "-m", "penstock.spark.pipelines.driver")
LOG_BYTES_MAX: Final = 8 << 20  # then the first half of the log is dropped
LINE_BYTES_MAX: Final = 1 << 20


def child_environment() -> dict[str, str]:
    """The environment of child processes: without the passwords of the node."""
    secrets = {setting.variable for setting in SETTINGS.values() if setting.is_secret}
    return {name: value for name, value in os.environ.items() if name not in secrets}


class DriverProcess:
    """A started driver. Events are read with `events`, orders are sent with `send`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, log_path: Path) -> DriverProcess:
        """Start a driver; raises OSError. Signals of the terminal do not reach it."""
        with log_path.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                limit=LINE_BYTES_MAX,
                env=child_environment(),
                cwd=log_path.parent,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, order: Mapping[str, Any]) -> None:
        """Send an order; one that has ended does not read it."""
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the driver's events until it ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            try:
                event = json.loads(line)
            except ValueError:
                log.warning("the driver %d says what is no event: %r", self.pid, line[:200])
                continue
            yield event

    async def wait(self) -> int:
        """Wait until it has ended; its exit code, or minus the signal that ended it."""
        return await self._process.wait()

    async def close(self, timeout_s: float) -> None:
        """End it by ending its input; kill it if it takes too long, with all that it has started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        finally:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Kill it and Spark's processes, which are in its session."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def trim_log(path: Path) -> None:
    """Drop the older half of a log that has become large. Drivers append to it, so that their next line follows what is left."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= LOG_BYTES_MAX:
            return
        file.seek(size - LOG_BYTES_MAX // 2)
        file.readline()
        kept = file.read()
        file.seek(0)
        file.write(kept)
        file.truncate()
