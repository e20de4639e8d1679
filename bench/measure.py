"""Figures and how they are come by: raw loop and ours in turns, in many short rounds.

A shared disk may be four times slower a second later, for both alike. So a ratio is taken within each round, between neighbours
in time, and the figure is the median of those.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from penstock.kernels import plain_kernels

MIB = 1 << 20
SOURCES = Path(__file__).parents[1] / "src"


@dataclass(frozen=True, slots=True)
class Setting:
    """What all benchmarks of a run share. `scratch` is removed when it ends."""

    scratch: Path
    quick: bool

    def rounds(self, full: int) -> int:
        """How many rounds to measure: a fraction of them in a quick run."""
        return max(3, full // 5) if self.quick else full

    def directory(self, name: str) -> Path:
        """A fresh directory for one benchmark."""
        path = self.scratch / name
        path.mkdir()
        return path


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `figure` is what the goal speaks of; `low` and `high` are its quartiles over the rounds."""

    name: str
    ours: str
    beside: str
    figure: float
    unit: str
    goal: float | None
    at_least: bool
    low: float
    high: float

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None where there is none."""
        if self.goal is None:
            return None
        return self.figure >= self.goal if self.at_least else self.figure <= self.goal

    def as_json(self) -> dict[str, Any]:
        """The row for the file of results."""
        return {**asdict(self), "met": self.met}


class Duel:
    """Rates of a raw loop and of ours, taken in turns so that both meet the same moods of the machine."""

    def __init__(self) -> None:
        self.raw: list[float] = []
        self.ours: list[float] = []

    async def run(
        self,
        rounds: int,
        raw: Callable[[], float],
        ours: Callable[[], Awaitable[float]],
        clear: Callable[[], Awaitable[None]] | None = None,
    ) -> Duel:
        """Each callable does a share of work and returns the amount. They take turns in going first; one round is not counted,
        nor is the time of `clear`, which makes room after each of ours."""
        for number in range(rounds + 1):
            raw_rate = _rate(raw) if number % 2 else 0.0
            started = time.perf_counter()
            amount = await ours()
            our_rate = amount / (time.perf_counter() - started)
            if clear is not None:
                await clear()
            raw_rate = raw_rate or _rate(raw)
            if number:
                self.raw.append(raw_rate)
                self.ours.append(our_rate)
        return self

    def row(self, name: str, *, show: Callable[[float], str], goal: float | None) -> Row:
        """Ours against the raw loop next to it: the median over the rounds, and the quartiles."""
        ratios = [ours / raw for ours, raw in zip(self.ours, self.raw, strict=True)]
        low, high = quartiles(ratios)
        beside = f"raw {show(median(self.raw))}"
        return Row(name, show(median(self.ours)), beside, median(ratios), "x", goal, True, low, high)


def _rate(work: Callable[[], float]) -> float:
    started = time.perf_counter()
    return work() / (time.perf_counter() - started)


def check_compiled() -> None:
    """End the program if a kernel or a typed module is not compiled: what it measures would not be what users run."""
    typed = [path.with_suffix("").relative_to(SOURCES) for path in sorted(SOURCES.glob("penstock/*/*.pxd"))]
    modules = {".".join(path.parts): find_spec(".".join(path.parts)) for path in typed if path.parent.name != "kernels"}
    plain = plain_kernels() + [name for name, spec in modules.items() if spec is None or (spec.origin or "").endswith(".py")]
    if plain:
        raise SystemExit(f"{', '.join(plain)} are not compiled; run first: rm .venv/.installed && make setup")


def limit_row(
    name: str, samples: list[float], *, unit: str, goal: float | None, at_least: bool = False, beside: str = "", ours: str = ""
) -> Row:
    """The median of samples against a fixed limit."""
    low, high = quartiles(samples)
    figure = median(samples)
    return Row(name, ours or f"{figure:.3g} {unit}", beside, figure, unit, goal, at_least, low, high)


def quartiles(values: list[float]) -> tuple[float, float]:
    """The lower and the upper quartile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4 - (len(ordered) % 4 == 0)]


def bytes_rate(rate: float) -> str:
    """Bytes a second, for people."""
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.0f} MB/s"


def count_rate(rate: float) -> str:
    """Operations a second, for people."""
    return f"{rate:,.0f}/s"
