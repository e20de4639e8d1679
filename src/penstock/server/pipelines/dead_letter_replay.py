"""Runs the replay of a pipeline's dead letters in a child process, and keeps how far it is.

The child writes one line of JSON per committed part, {"sent": …, "total": …}, and a last one, {"replayed": …} or {"error": …}.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from penstock.core.clock import Clock
from penstock.server.pipelines.driver_process import child_environment

STALL_S: Final = 120.0
ERROR_BYTES_MAX: Final = 64 << 10


@dataclass(slots=True)
class ReplayStatus:
    """How far a replay is: `replayed` of `total` dead letters are sent. `total` is 0 until they are counted."""

    started_ms: int
    state: Literal["running", "done", "failed"] = "running"
    replayed: int = 0
    total: int = 0
    error: str | None = None
    ended_ms: int | None = None


class DeadLetterReplay:
    """One replay. `run` does not raise: `status` says how it ended."""

    def __init__(self, program: tuple[str, ...], order: dict[str, Any], clock: Clock) -> None:
        self._program = program
        self._order = order
        self._clock = clock
        self.status = ReplayStatus(int(clock.wall() * 1000))

    async def run(self) -> None:
        """Run the child to its end; one that makes no progress is killed."""
        status = self.status
        try:
            status.error = await self._run_child()
        except TimeoutError:
            status.error = f"no progress for {STALL_S:.0f} s; what was sent is committed, and another replay continues there"
        except OSError as error:
            status.error = f"the replay could not be started: {error}"
        except asyncio.CancelledError:
            status.error = "the node stopped; another replay continues where this one was"
            raise
        finally:
            status.state = "failed" if status.error else "done"
            status.ended_ms = int(self._clock.wall() * 1000)

    async def _run_child(self) -> str | None:
        """Follow the child. Returns why it failed; None if it did not."""
        process = await asyncio.create_subprocess_exec(
            *self._program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        trouble = asyncio.create_task(_read_end(process.stderr), name="errors of a replay")
        try:
            process.stdin.write(json.dumps(self._order).encode())
            process.stdin.write_eof()
            ending: dict[str, Any] = {}
            while line := await self._next_line(process.stdout):
                with suppress(ValueError):  # what libraries print
                    ending = json.loads(line)
                    self._note(ending)
            async with asyncio.timeout(STALL_S):
                await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            told = await trouble
        if "replayed" in ending:
            return None
        last = told.decode(errors="replace").strip().rpartition("\n")[2]
        return str(ending.get("error") or last or f"the replay exited with code {process.returncode}")

    async def _next_line(self, stdout: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(STALL_S):
            return await stdout.readline()

    def _note(self, told: dict[str, Any]) -> None:
        self.status.replayed = int(told.get("sent", told.get("replayed", self.status.replayed)))
        self.status.total = int(told.get("total", self.status.total))


async def _read_end(stderr: asyncio.StreamReader) -> bytes:
    """The end of what a child has written, however much that is."""
    end = b""
    while part := await stderr.read(ERROR_BYTES_MAX):
        end = (end + part)[-ERROR_BYTES_MAX:]
    return end
