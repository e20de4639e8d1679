"""A worker as its supervisor sees it: a child process that says when it is ready, and ends when the supervisor does."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.server.supervisor.worker_order import WorkerOrder

log = logging.getLogger(__name__)

READY_BYTES_MAX: Final = 1 << 20


class WorkerProcess:
    """A started worker. It stops by itself when its standard input is closed, as it is when the supervisor is killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ready: dict[str, Any] | None = None

    @classmethod
    async def start(cls, program: Sequence[str], locks: Sequence[int]) -> WorkerProcess:
        """Start a process that waits to be told which worker to be. It inherits locks, and shares standard error with this one;
        signals of the terminal do not reach it. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=tuple(locks),
            start_new_session=True,
            limit=READY_BYTES_MAX,
        )
        return cls(process)

    async def send(self, order: WorkerOrder) -> None:
        """Tell it which worker to be."""
        assert self._process.stdin is not None
        self._process.stdin.write(order.encode())
        with suppress(ConnectionError):  # it has ended already, and `wait` tells how
            await self._process.stdin.drain()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.returncode

    async def wait_ready(self) -> bool:
        """Wait until it serves; False if it ends before. What it said is in `ready` then."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line.endswith(b"\n"):
            self.ready = json.loads(line)
        return self.ready is not None

    async def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        return await self._process.wait()

    async def stop(self, timeout_s: float) -> None:
        """Have it finish the requests in flight; kill it if it takes too long."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            log.error("process %d does not stop; it is killed", self.pid)
            self.kill()
            await self._process.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it at once."""
        with suppress(ProcessLookupError):
            self._process.kill()
