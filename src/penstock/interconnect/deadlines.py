"""One timer for the deadlines of many calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from penstock.core.clock import Clock

APART_S = 0.005  # between two searches for what has expired


class DeadlineTimer:
    """Calls `expire` when the earliest deadline has passed; it returns the earliest of those that are left, or infinity.

    Most calls end long before their deadline, so searching all of them now and then is cheaper than a timer for each.
    """

    __slots__ = ("_at", "_clock", "_expire", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, expire: Callable[[float], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._expire = expire
        self._at = inf
        self._handle: asyncio.TimerHandle | None = None

    def note(self, deadline: float) -> None:
        """There is one more deadline, by the monotonic clock."""
        if deadline < self._at:
            self._set(deadline)

    def stop(self) -> None:
        """There are no deadlines any more."""
        self._at = inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self, deadline: float) -> None:
        self.stop()
        if deadline < inf:
            self._at = deadline
            self._handle = self._loop.call_later(max(deadline - self._clock.monotonic(), APART_S), self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._at = inf
        self._set(self._expire(self._clock.monotonic()))
