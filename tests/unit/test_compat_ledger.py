"""The lists of other people's tests: what is worse, what is new, and that they only grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.ledger import Ledger
from tests.compat.outcome import Outcome
from tests.compat.suites import HERE, all_suites

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", "boom"), Outcome("skipped", "too old")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "suite.passing").write_text("a\nb\n")
    (tmp_path / "suite.not_passing").write_text("c  # needs a moon\n")
    return Ledger.load(tmp_path, "suite")


def test_a_listed_test_that_fails_makes_a_run_worse(ledger: Ledger) -> None:
    found = ledger.compare({"a": PASSED, "b": FAILED, "c": FAILED}, set(), is_whole=True)
    assert (found.broken, found.gone, found.new, found.unexplained) == (["b"], [], [], [])


def test_a_listed_test_that_is_not_there_makes_a_whole_run_worse(ledger: Ledger) -> None:
    assert ledger.compare({"a": PASSED}, set(), is_whole=True).gone == ["b"]
    assert ledger.compare({"a": PASSED}, set(), is_whole=False).gone == []


def test_what_cannot_pass_with_a_cluster_is_expected_there_alone(ledger: Ledger) -> None:
    (ledger.folder / "suite.one_node").write_text("b  # there is one broker\n")
    with_cluster = Ledger.load(ledger.folder, "suite", for_cluster=True)
    outcomes = {"a": PASSED, "b": FAILED, "c": FAILED}
    assert ledger.compare(outcomes, set(), is_whole=True).broken == ["b"]
    found = with_cluster.compare(outcomes, set(), is_whole=True)
    assert (found.broken, found.unexplained) == ([], [])


def test_what_fails_without_a_reason_is_named(ledger: Ledger) -> None:
    outcomes = {"a": PASSED, "b": PASSED, "c": FAILED, "d": FAILED, "e": SKIPPED}
    assert ledger.compare(outcomes, set(), is_whole=True).unexplained == ["d", "e"]


def test_the_lists_grow_by_what_passes_and_what_the_suite_explains(ledger: Ledger) -> None:
    outcomes = {"a": PASSED, "b": FAILED, "c": PASSED, "d": FAILED, "e": SKIPPED}
    ledger.add(ledger.compare(outcomes, set(), is_whole=True), outcomes)
    again = Ledger.load(ledger.folder, "suite")
    assert again.passing == {"a", "b", "c"}
    assert again.not_passing == {"d": "not looked into yet", "e": "skipped by the suite: too old"}
    assert again.compare(outcomes, set(), is_whole=True).unexplained == ["d"]


@pytest.mark.parametrize("name", all_suites())
def test_every_suite_has_its_lists_and_no_test_is_on_both(name: str) -> None:
    kept = Ledger.load(HERE, name)
    assert len(kept.passing) >= all_suites()[name].bar
    assert kept.passing.isdisjoint(kept.not_passing)
    assert "not looked into yet" not in kept.not_passing.values()
