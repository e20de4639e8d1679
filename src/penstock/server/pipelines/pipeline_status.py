"""How a deployed pipeline is doing, as the node knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STARTING, RUNNING, STOPPING, RESTARTING = "starting", "running", "stopping", "restarting"
PAUSED, STOPPED, FINISHED, FAILED = "paused", "stopped", "finished", "failed"
STATES: Final = (STARTING, RUNNING, STOPPING, RESTARTING, PAUSED, STOPPED, FINISHED, FAILED)


@dataclass(slots=True)
class PipelineStatus:
    """`restarts` counts since the node started; `retry_ms` is when a failed one is started again."""

    state: str = STARTING
    since_ms: int = 0
    restarts: int = 0
    last_error: str | None = None
    retry_ms: int | None = None
    pid: int | None = None  # of the driver
