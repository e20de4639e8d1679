"""Growth rates of a counter: current, and over a minute, an hour and a day. Pure: the time is an argument."""

from __future__ import annotations

from math import exp

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
WINDOWS_S = (MINUTE_S, HOUR_S, DAY_S)
STILL = 1e-3  # a second
NAMES = ("current", "1m_raw", "1m", "1h", "1d")


class Rate:
    """The growth of one counter, averaged with weights that fade exponentially. A window that is longer than the counter has been
    watched tells of the time that it has been."""

    __slots__ = ("_averages", "_count", "_current", "_last_s", "_started_s")

    def __init__(self) -> None:
        self._count: int | None = None
        self._started_s = self._last_s = self._current = 0.0
        self._averages = [0.0, 0.0, 0.0]

    def update(self, now_s: float, count: int) -> None:
        """Update with the current value. A counter that has gone back counts as unchanged."""
        if self._count is None:
            self._count, self._started_s, self._last_s = count, now_s, now_s
            return
        passed_s = now_s - self._last_s
        if passed_s <= 0:
            return
        self._current = max(count - self._count, 0) / passed_s
        if self._current or any(self._averages):
            for at, window_s in enumerate(WINDOWS_S):
                fade = exp(-2 * passed_s / window_s)
                self._averages[at] = self._averages[at] * fade + self._current * (1 - fade)
        self._count, self._last_s = count, now_s

    def fade(self, now_s: float) -> None:
        """Update without growth."""
        if self._count is not None:
            self.update(now_s, self._count)

    @property
    def is_still(self) -> bool:
        """Whether there was no growth for some minutes, so that only the long averages still decay."""
        return not self._current and self._averages[0] < STILL

    def shown(self) -> dict[str, float]:
        """The rates as statuses give them."""
        age_s = self._last_s - self._started_s
        if age_s <= 0:
            return dict.fromkeys(NAMES, 0.0)
        # The weights of what was watched sum up to less than 1 while a window is young.
        watched = [
            average / (1 - exp(-2 * age_s / window_s)) for average, window_s in zip(self._averages, WINDOWS_S, strict=True)
        ]
        return dict(zip(NAMES, (self._current, watched[0], *watched), strict=True))


def summed(rates: list[dict[str, float]]) -> dict[str, float]:
    """The rates of several counters together."""
    return {name: float(sum(rate[name] for rate in rates)) for name in NAMES}
