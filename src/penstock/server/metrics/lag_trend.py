"""Detects consumers whose lag keeps growing. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from penstock.server.metrics.survey import Lag

STEP_S: Final = 60.0
STEPS: Final = 5  # in a row of which each is more than the one before
SECONDS_MIN: Final = 60.0
MESSAGES_MIN: Final = 1000
WATCHED_MAX: Final = 500

Pair = tuple[str, str]


class LagTrend:
    """Remembers the largest lags, minute by minute."""

    def __init__(self) -> None:
        self._known: dict[Pair, deque[int]] = {}
        self._noted_s = float("-inf")

    def note(self, now_s: float, lags: Sequence[Lag]) -> None:
        """Record the current lags, largest first; used once a minute."""
        if now_s - self._noted_s < STEP_S:
            return
        self._noted_s = now_s
        known: dict[Pair, deque[int]] = {}
        for lag in lags[:WATCHED_MAX]:
            pair = (lag.consumer, lag.topic)
            steps = known[pair] = self._known.get(pair) or deque(maxlen=STEPS + 1)
            steps.append(lag.messages)
        self._known = known

    def is_growing(self, lag: Lag) -> bool:
        """Whether the lag has grown in each of the last minutes and is significant."""
        if lag.messages < MESSAGES_MIN or lag.seconds < SECONDS_MIN:
            return False
        steps = list(self._known.get((lag.consumer, lag.topic), ()))
        return len(steps) > STEPS and all(before < after for before, after in pairwise(steps))
