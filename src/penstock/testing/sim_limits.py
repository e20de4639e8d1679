"""What a simulated run may use up before it is taken for one that never ends."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

_YEAR_S = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class RunLimits:
    """A run that exceeds any of these fails with RunawayError."""

    steps: int = 20_000_000
    instant_steps: int = 1_000_000  # between two moments of virtual time; the busiest known run takes 15,000
    time_s: float = 10 * _YEAR_S
    memory_bytes: int = 4 << 30  # of the whole process


def memory_held() -> int:
    """The bytes of memory that this process holds; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return 0
