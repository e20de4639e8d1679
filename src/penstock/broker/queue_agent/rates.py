"""How fast a counter grows: now, and over a minute, an hour and a day. Pure: the time is given."""

from __future__ import annotations

from math import exp

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
WINDOWS_S = (MINUTE_S, HOUR_S, DAY_S)
STILL = 1e-3  # a second


class Rate:
    """The growth of one counter, averaged with weights that fade exponentially. A window that is not yet as old as it is long
    answers with the next shorter one."""

    __slots__ = ("_averages", "_count", "_current", "_last_s", "_started_s")

    def __init__(self) -> None:
        self._count: int | None = None
        self._started_s = self._last_s = self._current = 0.0
        self._averages = [0.0, 0.0, 0.0]

    def update(self, now_s: float, count: int) -> None:
        """The counter stands at `count` now. One that has gone back begins anew."""
        if self._count is None or count < self._count:
            self._count, self._started_s, self._last_s, self._current = count, now_s, now_s, 0.0
            return
        passed_s = now_s - self._last_s
        if passed_s <= 0:
            return
        self._current = (count - self._count) / passed_s
        if self._current or any(self._averages):
            for at, window_s in enumerate(WINDOWS_S):
                fade = exp(-2 * passed_s / window_s)
                self._averages[at] = self._averages[at] * fade + self._current * (1 - fade)
        self._count, self._last_s = count, now_s

    @property
    def is_still(self) -> bool:
        """Whether there was no growth for some minutes: only the long averages may still fade, and those slowly."""
        return not self._current and self._averages[0] < STILL

    def shown(self) -> dict[str, float]:
        """The rates as statuses give them."""
        age_s = self._last_s - self._started_s
        minute, hour, day = self._averages
        over_hour = hour if age_s >= HOUR_S else minute
        return {
            "current": self._current,
            "1m_raw": minute,
            "1m": minute,
            "1h": over_hour,
            "1d": day if age_s >= DAY_S else over_hour,
        }


def summed(rates: list[dict[str, float]]) -> dict[str, float]:
    """The rates of several counters together."""
    names = ("current", "1m_raw", "1m", "1h", "1d")
    return {name: float(sum(rate[name] for rate in rates)) for name in names}
