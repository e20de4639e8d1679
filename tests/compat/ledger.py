"""The two lists that are kept of every suite: the tests that pass, which only grows, and why each of the others does not.

`NAME.passing` has the id of one test a line. `NAME.not_passing` has an id and a reason a line, with two spaces and a # between.
`NAME.one_node` has, in the same form, what passes with one node and cannot with a cluster of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.outcome import Outcome

_REASON_MARK = "  # "
UNEXPLAINED = "not looked into yet"


@dataclass(slots=True)
class Ledger:
    """What is known of a suite."""

    folder: Path
    name: str
    passing: set[str] = field(default_factory=set)
    not_passing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, name: str, *, for_cluster: bool = False) -> Ledger:
        """Read both lists; one that is not there is empty."""
        made = cls(folder, name)
        made.passing.update(_lines(folder / f"{name}.passing"))
        made.not_passing.update(_reasons(folder / f"{name}.not_passing"))
        if for_cluster:
            made.not_passing.update(_reasons(folder / f"{name}.one_node"))
            made.passing -= made.not_passing.keys()
        return made

    def compare(self, outcomes: dict[str, Outcome], flaky: set[str], *, is_whole: bool) -> Comparison:
        """Hold a run against the lists. Only a run of the whole suite can tell that a test has gone."""
        passed = {name for name, outcome in outcomes.items() if outcome.verdict == "passed"}
        return Comparison(
            passed=passed,
            broken=sorted(self.passing & outcomes.keys() - passed),
            gone=sorted(self.passing - outcomes.keys()) if is_whole else [],
            new=sorted(passed - self.passing),
            unexplained=sorted(
                name for name in outcomes.keys() - passed - self.passing if self.not_passing.get(name, UNEXPLAINED) == UNEXPLAINED
            ),
            flaky=sorted(flaky),
        )

    def add(self, comparison: Comparison, outcomes: dict[str, Outcome]) -> None:
        """Add what passes now, and the others with the reason the suite itself gives, if it has skipped them."""
        self.passing.update(comparison.new)
        for name in comparison.new:
            self.not_passing.pop(name, None)
        for name in comparison.unexplained:
            outcome = outcomes[name]
            self.not_passing[name] = f"skipped by the suite: {outcome.reason}" if outcome.verdict == "skipped" else UNEXPLAINED
        _write(self.folder / f"{self.name}.passing", sorted(self.passing))
        reasons = [f"{name}{_REASON_MARK}{reason}" for name, reason in sorted(self.not_passing.items())]
        _write(self.folder / f"{self.name}.not_passing", reasons)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a run differs from what is known."""

    passed: set[str]
    broken: list[str]
    gone: list[str]
    new: list[str]
    unexplained: list[str]
    flaky: list[str]

    @property
    def is_good(self) -> bool:
        """Nothing that passed before fails now, or is missing."""
        return not self.broken and not self.gone


def _reasons(path: Path) -> dict[str, str]:
    parts = (line.partition(_REASON_MARK) for line in _lines(path))
    return {test: reason or UNEXPLAINED for test, _, reason in parts}


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line] if path.exists() else []


def _write(path: Path, lines: list[str]) -> None:
    """A list that is empty needs no file."""
    if lines:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        path.unlink(missing_ok=True)
