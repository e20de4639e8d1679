"""How long to wait before a worker that has ended is started again. No I/O."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 30.0
STEADY_S: Final = 10.0
"""A worker that ran for so long is started again at once."""


class RestartBackoff:
    """Of one worker: none after the first failure, then longer and longer."""

    def __init__(self) -> None:
        self._failures = 0

    def next_pause_s(self, ran_s: float) -> float:
        """The pause after a run of this length."""
        if ran_s >= STEADY_S:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return min(PAUSE_S_MAX, FIRST_PAUSE_S * 2.0 ** (self._failures - 2))
