"""Patterns over topic names against Python's own, and the ones that would take forever."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.groups.topic_pattern import InvalidPatternError, TopicPattern

ATOMS = st.sampled_from(
    ["a", "b", ".", "\\.", "-", "[ab]", "[^a]", "[a-c_]", "\\d", "\\w", "\\W", "(?:a|b)", "(ab|)", "$", "^", "1"]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "{0}"])
NAMES = st.text("abcAB1._-", max_size=8)


@st.composite
def patterns(draw: st.DrawFn, depth: int = 0) -> str:
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        atom = f"({draw(patterns(depth + 1))})" if depth < 2 and draw(st.booleans()) else draw(ATOMS)
        parts.append(atom + (draw(REPEATS) if atom not in "^$" else ""))
        if draw(st.integers(0, 5)) == 0:
            parts.append("|")
    return "".join(parts)


@settings(deadline=None, max_examples=300)
@given(patterns(), st.booleans(), st.lists(NAMES, min_size=1, max_size=5))
def test_names_match_as_python_matches_them(pattern: str, ignores_case: bool, names: list[str]) -> None:
    text = "(?i)" + pattern if ignores_case else pattern
    ours, theirs = TopicPattern(text), re.compile(text.replace("$", r"\Z"))
    assert [ours.matches(name) for name in names] == [theirs.fullmatch(name) is not None for name in names]


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    with suppress(InvalidPatternError):
        TopicPattern(pattern).matches("ab")


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "[", "[a", "[b-a]", "a**", "*", "a{2}{3}", "a{3,2}", "a{1001}", r"\1", r"(a)\1", "(?=a)", "(?!a)"),
        *("(?<=a)b", "(?P=x)", "\\", "(?x)a", "[[:nothing:]]", "(((a{1000}){1000}){1000})"),
        "a" * 5000,
    ],
)
def test_wrong_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("orders-.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("^orders.*$", "orders-eu", True),
        ("(?i)ORDERS", "orders", True),
        ("a(?i)b", "aB", True),
        ("(?i:a)b", "AB", False),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"[[:alpha:]]+\.[[:^digit:]]", "abc.x", True),
        ("(?P<region>eu|us)-x", "us-x", True),
        ("(?<region>eu|us)-x", "eu-x", True),
        (r"\Aa\z", "a", True),
        ("[]a]+", "aa", True),
        ("[a-]+", "a-a", True),
        (r"[\w.]+", "a.b", True),
        ("", "a", False),
    ],
)
def test_forms_of_patterns(pattern: str, name: str, fits: bool) -> None:
    assert TopicPattern(pattern).matches(name) is fits


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a+)+", "(a|aa)+x", "(.*)(.*)(.*)(.*)x", "(a?){50}a{50}", "(x+x+)+y"])
def test_patterns_that_explode_elsewhere_are_harmless(pattern: str) -> None:
    compiled = TopicPattern(pattern)
    for name in ("a" * 249, "x" * 249, "ax" * 124):
        assert compiled.matches(name) in (True, False)


def test_a_pattern_that_takes_too_much_memory_is_refused() -> None:
    with pytest.raises(InvalidPatternError):
        TopicPattern("((a{100}){10}){10}[[:alpha:]]{1000}")
