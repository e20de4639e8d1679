"""A Chromium of the system, driven by Playwright. Where there is none it is installed from Debian's packages, if we may."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

INSTALL_S = 300.0
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
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip("no chromium here, and no right to install it; run: apt-get install chromium")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        done = subprocess.run(command, env=environment, capture_output=True, timeout=INSTALL_S, check=False)
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            pytest.skip(f"no chromium here, and {' '.join(command)} failed: {''.join(last)}")
    found = _on_path()
    if found is None:
        pytest.skip("apt-get has installed chromium, but none of its names is on the path")
    return found


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
