"""A Chromium of the system, driven by Playwright. Where there is none it is installed from Debian's packages, if we may."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.debian_tools import NotAvailableError, installed_tool

NAMES = ("chromium", "chromium-browser")
# Nothing but the console is to be asked for: no updates, no accounts, no other transports.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str:
    """Where the browser is. The test is skipped, with the reason, if there is none and it cannot be installed."""
    found = _on_path()
    if found is not None:
        return found
    try:
        return str(installed_tool("chromium").program)
    except NotAvailableError as error:
        pytest.skip(str(error))


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser for several tests; each opens windows of its own in it."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def _on_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)
