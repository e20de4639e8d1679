"""The reference pages say what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.exit_codes import MEANINGS, ExitCode
from penstock.cli.reference import PAGES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_reference_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/reference/{name} is old; run `python -m penstock.cli.reference`"


def test_every_exit_code_is_documented() -> None:
    assert set(MEANINGS) == set(ExitCode)
