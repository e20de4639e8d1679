"""What is counted while the node works: plain numbers that a hot path adds to, and that someone else reads when asked.

A probe knows neither names of metrics nor who reads them. Nothing here locks: each probe is written by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from penstock.core.clock import Clock, SystemClock

DURATION_BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)

_BOUNDS_S: Final = list(DURATION_BOUNDS_S)

OK: Final = "ok"
REFUSED: Final = "refused"  # answered with an error that the client is meant to deal with
GONE: Final = "gone"  # the client did not wait for its answer
FAILED: Final = "failed"  # not answered, or only to say that the node is at fault


class Durations:
    """How many took how long: counts by fixed bounds, the last for all that took longer, and the sum."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATION_BOUNDS_S) + 1)
        self.total_s = 0.0

    def note(self, seconds: float) -> None:
        """One more."""
        at = 0
        for bound in _BOUNDS_S:  # most are short, so this is sooner at its end than a bisection
            if seconds <= bound:
                break
            at += 1
        self.counts[at] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def add(self, other: Durations) -> None:
        """Take in all of another."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s


class Span(Protocol):
    """One piece of work in a trace."""

    traceparent: str  # of what is done for it

    def end(self, outcome: str) -> None:
        """It is done."""
        ...


class Tracing(Protocol):
    """Receives spans. Without one nothing is traced, at no cost."""

    def begin(self, name: str, traceparent: str | None = None, attributes: Mapping[str, str | int] | None = None) -> Span:
        """Begin a span, as a part of the client's trace if it sent one."""
        ...


class RequestProbe:
    """The requests of one gateway: how long each kind took and how it ended, and what came and went with them."""

    __slots__ = ("bytes_in", "bytes_out", "connections_opened", "durations", "now", "throttled", "throttled_s", "tracing")

    def __init__(self, clock: Clock | None = None) -> None:
        self.now = (clock or SystemClock()).monotonic
        self.durations: dict[tuple[str | int, str], Durations] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_opened = 0
        self.throttled = 0  # requests whose client was throttled
        self.throttled_s = 0.0
        self.tracing: Tracing | None = None

    def note(self, api: str | int, outcome: str, seconds: float) -> None:
        """A request is done. `api` is one of a few names."""
        durations = self.durations.get((api, outcome))
        if durations is None:
            durations = self.durations[api, outcome] = Durations()
        durations.note(seconds)

    def count_throttle(self, seconds: float) -> None:
        """A client is over its quota and has to wait."""
        self.throttled += 1
        self.throttled_s += seconds

    def requests(self) -> Iterator[tuple[str, str, Durations]]:
        """Every kind of request that came: its name, how it ended, and how long those took."""
        for (api, outcome), durations in list(self.durations.items()):
            yield self.name_of(api), outcome, durations

    def name_of(self, api: str | int) -> str:
        """What a kind of request is called."""
        return str(api)

    def is_prompt(self, api: str) -> bool:
        """Whether such a request is answered as soon as it can be, so that its time says how fast the node is."""
        return bool(api)
