"""How busy the tablets of a node are, from counters that only grow. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from math import exp
from typing import Final

WINDOW_S: Final = 10.0
APART_S: Final = 0.5  # two looks that are closer than this tell nothing


class TabletLoads:
    """Bytes a second of each tablet, averaged so that what was long ago counts little."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._counts: dict[int, int] = {}
        self._rates: dict[int, float] = {}

    def update(self, now: float, counts: Mapping[int, int]) -> None:
        """Take the bytes that each tablet has written and read so far; those that are missing are forgotten."""
        passed_s = None if self._looked_at is None else now - self._looked_at
        if passed_s is not None and passed_s < APART_S:
            return
        weight = 0.0 if passed_s is None else 1 - exp(-passed_s / WINDOW_S)
        rates: dict[int, float] = {}
        for tablet_id, count in counts.items():
            before, grown = self._rates.get(tablet_id, 0.0), count - self._counts.get(tablet_id, count)
            rates[tablet_id] = before if passed_s is None else before + weight * (max(grown, 0) / passed_s - before)
        self._looked_at, self._counts, self._rates = now, dict(counts), rates

    def rate(self, tablet_id: int) -> float:
        """Bytes a second; 0 if it was not seen for long enough."""
        return self._rates.get(tablet_id, 0.0)

    def busiest(self, count: int) -> dict[int, float]:
        """Bytes a second of the busiest tablets; those without any load are left out."""
        busy = ((tablet_id, rate) for tablet_id, rate in self._rates.items() if rate > 0)
        return dict(nlargest(count, busy, key=lambda item: item[1]))
