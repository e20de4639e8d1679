"""Promises in the docs name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/.]+?)(?:::(\w+))?`")
REFERENCE_LINES = 11  # numbered lines of the reference page on YT queues


@pytest.mark.parametrize("page", ["guarantees.md", "yt.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = NAMED.findall((ROOT / "docs" / page).read_text())
    assert named, f"{page} names no tests at all"
    missing = []
    for path, function in named:
        file = ROOT / path
        if not file.exists() or (function and f"def {function}(" not in file.read_text()):
            missing.append(f"{path}::{function}" if function else path)
    assert missing == []


def test_every_line_of_the_reference_on_yt_queues_has_a_test() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| `tests/", (ROOT / "docs" / "yt.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, REFERENCE_LINES + 1))
