"""Quotas: how many bytes a second a client may send or fetch, and how long it is asked to wait beyond that. Pure."""

from __future__ import annotations

from penstock.core.clock import Clock

WINDOW_S = 1.0
CLIENTS_MAX = 10_000


class RateLimit:
    """A bucket that fills at a rate and holds what one second brings. It may be overdrawn; then whoever drew waits."""

    __slots__ = ("_clock", "_level", "_rate", "_seen")

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._level = rate * WINDOW_S
        self._seen = clock.monotonic()

    def draw(self, amount: int) -> int:
        """Take so many bytes; the milliseconds to wait before the next."""
        now = self._clock.monotonic()
        self._level = min(self._level + (now - self._seen) * self._rate, self._rate * WINDOW_S) - amount
        self._seen = now
        return 0 if self._level >= 0 else int(-self._level / self._rate * 1000)


class Quotas:
    """Limits for producing and for fetching, each client by itself. None is without limit."""

    def __init__(self, produce_rate: float | None, fetch_rate: float | None, clock: Clock) -> None:
        self._rates = {"produce": produce_rate, "fetch": fetch_rate}
        self._clock = clock
        self._limits: dict[tuple[str, str], RateLimit] = {}

    def draw(self, kind: str, client: str, amount: int) -> int:
        """A client produces or fetches so many bytes; the milliseconds it is to be held back."""
        rate = self._rates[kind]
        if rate is None:
            return 0
        limit = self._limits.get((kind, client))
        if limit is None:
            if len(self._limits) >= CLIENTS_MAX:
                # Clients name themselves as they like; whoever came first starts over.
                del self._limits[next(iter(self._limits))]
            limit = self._limits[kind, client] = RateLimit(rate, self._clock)
        return limit.draw(amount)
