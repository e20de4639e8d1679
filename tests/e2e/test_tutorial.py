"""The tutorial, carried out from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import ROOT, Shell, follow


@pytest.mark.slow
@pytest.mark.timeout(600)  # two sessions of Spark
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        assert follow(ROOT / "docs" / "tutorial.md", shell) >= 10
