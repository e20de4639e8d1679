"""`python -m tests.compat [SUITE ...]`: the clients' own suites against Penstock, held against the lists of what passes.

It fails if a test on a list of passing ones fails twice, or if fewer pass than the suite's bar. A test that fails once and then
passes is reported as flaky. What is needed is kept in .compat between runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.compat.ledger import Comparison, Ledger
from tests.compat.preparation import NotPreparedError, prepare
from tests.compat.suite_run import Outcome, broker_for, run
from tests.compat.suites import HERE, Suite, all_suites

LINE = "{:<18} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}  {}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one suite."""

    name: str
    outcomes: dict[str, Outcome]
    comparison: Comparison
    bar: int


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if a list or a bar was not kept."""
    suites = all_suites()
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"which to run, of: {', '.join(suites)} (default: all)")
    parser.add_argument("-k", dest="expression", help="only tests that match, as in pytest")
    parser.add_argument("--update", action="store_true", help="add tests that pass now to the lists")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.suites) - suites.keys()
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(suites)}")
    results: list[Result] = []
    absent: dict[str, str] = {}
    for name in arguments.suites or suites:
        try:
            results.append(run_suite(suites[name], arguments.expression, update=arguments.update))
        except NotPreparedError as error:
            absent[name] = str(error)
    report(results, absent, is_whole=arguments.expression is None)
    is_kept = all(result.comparison.is_good for result in results)
    reach_bars = arguments.expression is not None or all(len(one.comparison.passed) >= one.bar for one in results)
    return 0 if is_kept and reach_bars and not (absent and arguments.suites) else 1


def run_suite(suite: Suite, expression: str | None, *, update: bool) -> Result:
    """Run a suite, what failed a second time, and compare."""
    print(f"{suite.name} {suite.version}: preparing", flush=True)
    python = prepare(suite)
    log = suite.home / "broker.log"
    for old in (log, suite.home / "pytest.log"):
        old.unlink(missing_ok=True)
    print(f"{suite.name} {suite.version}: running; see {suite.home / 'pytest.log'}", flush=True)
    with broker_for(suite, log) as bootstrap:
        outcomes = run(suite, python, bootstrap, (), ("-k", expression) if expression else ())
        failed = [name for name, outcome in outcomes.items() if outcome.verdict == "failed"]
        again = run(suite, python, bootstrap, failed) if failed else {}
    flaky = {name for name in failed if name in again and again[name].verdict == "passed"}
    outcomes |= {name: again[name] for name in flaky}
    ledger = Ledger.load(HERE, suite.name)
    comparison = ledger.compare(outcomes, flaky, is_whole=expression is None)
    if update:
        ledger.add(comparison, outcomes)
    return Result(suite.name, outcomes, comparison, suite.bar)


def report(results: list[Result], absent: dict[str, str], *, is_whole: bool) -> None:
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
    print("\n" + LINE.format("suite", "tests", "passed", "skipped", "failed", "flaky", "bar", "verdict"))
    for result in results:
        print(_row(result, is_whole=is_whole))
    for name, problem in absent.items():
        print(f"{name:<18} not run: {problem}")


def _row(result: Result, *, is_whole: bool) -> str:
    verdicts = [outcome.verdict for outcome in result.outcomes.values()]
    passed = verdicts.count("passed")
    verdict = "ok" if result.comparison.is_good else "worse than the list"
    if is_whole and passed < result.bar:
        verdict = "below the bar"
    counts = (len(verdicts), passed, verdicts.count("skipped"), verdicts.count("failed"), len(result.comparison.flaky))
    return LINE.format(result.name, *counts, result.bar, verdict)


if __name__ == "__main__":
    sys.exit(main())
