"""A row of the comparison: the same measure of both brokers, the median and the spread of its rounds, and the goal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from statistics import median

LINE = "{:<62} {:>30} {:>30} {:>7} {:>11}  {}"


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of some rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Figure:
        """From the values of the rounds."""
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.low == self.high:
            return readable(self.median)
        return f"{readable(self.median)} ({readable(self.low)}-{readable(self.high)})"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a row has to reach: a ratio at least, or with `is_of_ours` a figure of ours at most (or at least)."""

    limit: float
    is_of_ours: bool = False
    at_least: bool = True

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.limit:g}" + (" ours" if self.is_of_ours else "")


LEVEL = Goal(1.0)


@dataclass(frozen=True, slots=True)
class Compared:
    """One row. A ratio above 1 is in Penstock's favour."""

    name: str
    unit: str
    ours: Figure
    peer: Figure
    ratio: float
    goal: Goal | None
    load_cores: list[float] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        name: str,
        unit: str,
        ours: Figure,
        peer: Figure,
        *,
        higher_is_better: bool,
        goal: Goal | None = LEVEL,
        load_cores: list[float] | None = None,
    ) -> Compared:
        """With the ratio of the medians."""
        better, worse = (ours, peer) if higher_is_better else (peer, ours)
        ratio = better.median / max(worse.median, 1e-9)
        return cls(name, unit, ours, peer, ratio, goal, load_cores or [])

    @property
    def is_met(self) -> bool:
        """Whether the row reaches its goal, or has none."""
        if self.goal is None:
            return True
        if not self.goal.is_of_ours:
            return self.ratio >= self.goal.limit
        figure = self.ours.median
        return figure >= self.goal.limit if self.goal.at_least else figure <= self.goal.limit

    @property
    def is_lost(self) -> bool:
        """Whether the row misses its goal or the peer is ahead."""
        return not self.is_met or self.ratio < 1

    def __str__(self) -> str:
        verdict = "" if self.is_met else "below"
        if self.load_cores:
            verdict = f"{verdict:<6}load " + " / ".join(f"{cores:.2f}" for cores in self.load_cores) + " cores"
        ours, peer = (f"{figure} {self.unit}" for figure in (self.ours, self.peer))
        return LINE.format(self.name, ours, peer, f"{self.ratio:.2f}", str(self.goal or ""), verdict)


def show(row: Compared) -> Compared:
    """Print a row as soon as it is there."""
    print(row)
    sys.stdout.flush()
    return row


def losing_first(rows: list[Compared]) -> list[Compared]:
    """Rows that miss their goal, the worst first; then those where the peer is ahead; then the others as they were measured."""

    def order(row: Compared) -> tuple[int, float]:
        if not row.is_met:
            return 0, row.ratio
        return (1, row.ratio) if row.is_lost else (2, 0.0)

    return sorted(rows, key=order)


def readable(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
