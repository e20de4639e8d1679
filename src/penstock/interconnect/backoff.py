"""How long to wait before the next attempt."""

from __future__ import annotations

from random import Random


class Backoff:
    """Delays that double up to a maximum, each drawn from its upper half, so that nodes do not come back all at once. Pure."""

    def __init__(self, random: Random, first_s: float, max_s: float) -> None:
        self._random = random
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def delay_s(self) -> float:
        """The delay after one more failure."""
        delay_s = self._next_s * self._random.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, self._max_s)
        return delay_s

    def reset(self) -> None:
        """An attempt succeeded."""
        self._next_s = self._first_s
