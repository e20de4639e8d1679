"""Promises in the docs name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/.]+?)(?:::(\w+))?`")


def test_every_test_that_a_guarantee_names_exists() -> None:
    named = NAMED.findall((ROOT / "docs" / "guarantees.md").read_text())
    assert named, "the guarantees name no tests at all"
    missing = []
    for path, function in named:
        file = ROOT / path
        if not file.exists() or (function and f"def {function}(" not in file.read_text()):
            missing.append(f"{path}::{function}" if function else path)
    assert missing == []
