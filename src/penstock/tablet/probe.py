"""What is counted while tablets commit; one probe for all tablets of a node."""

from __future__ import annotations

from penstock.core.clock import Clock, SystemClock
from penstock.core.probe import Durations


class TabletProbe:
    """Commits: how many, of how many requests, and how long it took until they were durable."""

    __slots__ = ("commits", "failures", "now", "requests")

    def __init__(self, clock: Clock | None = None) -> None:
        self.now = (clock or SystemClock()).monotonic
        self.commits = Durations()
        self.requests = 0
        self.failures = 0
