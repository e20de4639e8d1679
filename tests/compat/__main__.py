"""`python -m tests.compat [SECTION ...]`: other people's tests against Penstock, held against the lists of what passes.

It fails if a test on a list of passing ones fails twice, if a test that does not pass has no reason on the other list, or if
fewer pass than the bar. A test that fails once and then passes is reported as flaky. What is fetched is kept in .compat.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.compat.ledger import Comparison, Ledger
from tests.compat.outcome import Outcome
from tests.compat.preparation import NotPreparedError
from tests.compat.sections import Section, all_sections
from tests.compat.suites import HERE

CLUSTER_MIN = 3
LINE = "{:<24} {:>6} {:>7} {:>8} {:>7} {:>6} {:>5}  {}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one section."""

    name: str
    outcomes: dict[str, Outcome]
    comparison: Comparison
    bar: int
    is_whole: bool

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.comparison.broken or self.comparison.gone:
            return "worse than the list"
        if self.is_whole and len(self.comparison.passed) < self.bar:
            return "below the bar"
        return "reasons are missing" if self.comparison.unexplained else "ok"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if a list or a bar was not kept, or if what was asked for by name cannot be run here."""
    sections = all_sections()
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"which to run, of: {', '.join(sections)} (default: all)")
    parser.add_argument(
        "-k", dest="expression", help="only tests that match: as in pytest, in suites; by a part of the name, else"
    )
    parser.add_argument("--update", action="store_true", help="add tests that pass now to the lists")
    parser.add_argument("--nodes", type=int, default=1, help="1, or 3 and more: run against a cluster (default: 1)")
    arguments = parser.parse_args(argv)
    if arguments.nodes != 1 and (arguments.nodes < CLUSTER_MIN or arguments.update):
        parser.error(f"a cluster has {CLUSTER_MIN} nodes or more, and its exceptions are written by hand: SECTION.one_node")
    unknown = set(arguments.sections) - sections.keys()
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(sections)}")
    results: list[Result] = []
    absent: dict[str, str] = {}
    for name in arguments.sections or sections:
        try:
            results.append(run_section(sections[name], arguments.expression, arguments.nodes, update=arguments.update))
        except NotPreparedError as error:
            absent[name] = str(error)
    report(results, absent)
    return 0 if all(result.verdict == "ok" for result in results) and not (absent and arguments.sections) else 1


def run_section(section: Section, expression: str | None, nodes: int, *, update: bool) -> Result:
    """Prepare it, run it, compare."""
    print(f"{section.name}: preparing", flush=True)
    section.prepare()
    print(f"{section.name}: running", flush=True)
    outcomes, flaky = section.run(expression, nodes)
    ledger = Ledger.load(HERE, section.name, for_cluster=nodes > 1)
    comparison = ledger.compare(outcomes, flaky, is_whole=expression is None)
    if update:
        ledger.add(comparison, outcomes)
    bar = section.bar if nodes == 1 else len(ledger.passing)
    return Result(section.name, outcomes, comparison, bar, expression is None)


def report(results: list[Result], absent: dict[str, str]) -> None:
    """Names of what changed, then a table."""
    for result in results:
        found = result.comparison
        for title, names in (
            ("fail, and are on the list of passing tests", found.broken),
            ("are on the list of passing tests, and no longer in the suite", found.gone),
            ("pass and are not on the list: add them with --update", found.new),
            ("do not pass, and no reason is given", found.unexplained),
            ("failed at first and then passed", found.flaky),
        ):
            if names:
                print(f"\n{result.name}: {len(names)} tests {title}")
                for name in names:
                    reason = result.outcomes[name].reason.splitlines() if name in result.outcomes else []
                    print(f"  {name}" + (f"\n      {reason[0]}" if reason else ""))
    print("\n" + LINE.format("section", "tests", "passed", "skipped", "failed", "flaky", "bar", "verdict"))
    for result in results:
        verdicts = [outcome.verdict for outcome in result.outcomes.values()]
        counts = (len(verdicts), *map(verdicts.count, ("passed", "skipped", "failed")), len(result.comparison.flaky))
        print(LINE.format(result.name, *counts, result.bar, result.verdict))
    for name, problem in absent.items():
        print(f"{name:<24} not run: {problem}")


if __name__ == "__main__":
    sys.exit(main())
