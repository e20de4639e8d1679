"""One browser and one node with data for all tests of a file; each test has a window that watches what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.console.browser import running_browser
from tests.e2e.console.live_data import base_url, node_with_data
from tests.e2e.console.window import Window, opened_window
from tests.e2e.running_node import RunningNode


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def node(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path: Path = tmp_path_factory.mktemp("console")
    with node_with_data(path) as running:
        yield running


@pytest.fixture
def window(browser: Browser, node: RunningNode) -> Iterator[Window]:
    with opened_window(browser, base_url(node)) as window:
        yield window
