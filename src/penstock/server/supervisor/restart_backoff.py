"""How long to wait before a process that has ended is started again. No I/O."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 30.0
STEADY_S: Final = 10.0
"""A process that ran for so long is started again at once."""


class RestartBackoff:
    """Of one process: none after the first failure, then longer and longer."""

    def __init__(self, pause_s_max: float = PAUSE_S_MAX, steady_s: float = STEADY_S) -> None:
        self._pause_s_max = pause_s_max
        self._steady_s = steady_s
        self._failures = 0

    def next_pause_s(self, ran_s: float) -> float:
        """The pause after a run of this length."""
        if ran_s >= self._steady_s:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return min(self._pause_s_max, FIRST_PAUSE_S * 2.0 ** (self._failures - 2))
