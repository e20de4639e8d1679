"""Time as a dependency: nothing below the server reads the machine's clock directly, so that a simulation can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: `monotonic` for durations, `wall` for what is stored and shown."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        ...


def boot_time() -> float:
    """Seconds since the machine started, those that it slept included, where that is known; they are the same whatever becomes of
    its wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
