"""What can be checked of a page without a person: names of controls, contrast of text, reach by the keyboard, jumps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

CONTRAST_MIN = 4.5
TABS_MAX = 400

_AXE = Path(__file__).resolve().parents[3] / "console/node_modules/axe-core/axe.min.js"
_AXE_OPTIONS = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "rules": {"color-contrast": {"enabled": False}},
}
_CHECKS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").strip().removesuffix(";")


def axe_violations(page: Page) -> list[str]:
    """What axe, which most accessibility tools use, finds of WCAG 2.2 A and AA and of good practice; contrast is measured by
    `low_contrast`, faster. The test is skipped if the packages of the console are not installed, as with a built wheel."""
    if not _AXE.exists():
        pytest.skip("axe-core is not installed; `make setup` installs it with the console's packages")
    page.evaluate(_AXE.read_text(encoding="utf-8") + "; undefined")
    found = page.evaluate(f"() => axe.run({json.dumps(_AXE_OPTIONS)})")
    return [
        f"{violation['id']} ({violation['help']}): {', '.join(str(node['target'][0]) for node in violation['nodes'][:5])}"
        for violation in found["violations"]
    ]


def unnamed_controls(page: Page) -> list[str]:
    """Controls that a screen reader could not name."""
    found: list[str] = _run(page, "unnamed()")
    return found


def low_contrast(page: Page) -> list[Any]:
    """Texts that are too pale, with their contrast and colours."""
    checked = _run(page, f"lowContrast({CONTRAST_MIN})")
    assert checked["seen"] > 10, "no text was looked at"
    found: list[Any] = checked["found"]
    return found


def layout_shift(page: Page) -> float:
    """How much of the page has moved by itself since it was opened, as browsers count it."""
    return float(_run(page, "layoutShift()"))


def unreached_by_keyboard(page: Page) -> tuple[list[str], int]:
    """Controls that Tab does not come to, and how many it came to without showing where it is."""
    _run(page, "markControls()")
    hidden = 0
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        is_shown = _run(page, "noteFocus()")
        if is_shown is None or not _run(page, "missed()"):
            break
        hidden += not is_shown
    missed: list[str] = _run(page, "missed()")
    return missed, hidden


def _run(page: Page, call: str) -> Any:
    return page.evaluate(f"{_CHECKS}.{call}")
