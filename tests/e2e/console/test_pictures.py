"""The pictures of the documentation: every page has one in each form, and each is named on the page about the console."""

from __future__ import annotations

from tests.e2e.console.pictures import NAMES
from tests.e2e.console.window import ROOT


def test_every_page_has_its_pictures_and_each_is_linked() -> None:
    assert {path.name for path in (ROOT / "docs" / "images").iterdir()} == set(NAMES), "run `make pictures`"
    page = (ROOT / "docs" / "how-to" / "console.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"](../images/{name})" not in page] == []
