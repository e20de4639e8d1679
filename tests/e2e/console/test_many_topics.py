"""Ten thousand topics: how long until the page can be used is printed; that it is paged, searched and put back is checked."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser

from tests.e2e.console.live_data import base_url
from tests.e2e.console.window import Window, opened_window
from tests.e2e.running_node import RunningNode, running_node

pytestmark = pytest.mark.soak  # ten thousand topics take a while to make

TOPICS = 10_000
AT_ONCE = 1_000


@pytest.fixture(scope="module")
def crowded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path = tmp_path_factory.mktemp("crowded")
    with running_node(path / "log", ["--data-dir", str(path / "data"), "--http-port", "0", "--durability", "os"]) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for first in range(0, TOPICS, AT_ONCE):
            new = [NewTopic(f"topic-{number:05}", 1, 1) for number in range(first, first + AT_ONCE)]
            for made in admin.create_topics(new, request_timeout=60, operation_timeout=60).values():
                made.result()
        yield running


def test_ten_thousand_topics_are_as_easy_as_ten(
    browser: Browser, crowded: RunningNode, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened_window(browser, base_url(crowded)) as window:
        took = [_seconds_until_usable(window) for _ in range(3)]
        page = window.page
        assert page.locator("tr.data").count() < 100, "only rows in sight are in the page"
        page.evaluate("document.querySelector('.virtual .table-scroll').scrollTop = 42 * 7000")
        window.see("topic-07000")
        window.until("location.search === '?at=7000'")
        page.reload()
        window.see("topic-07000")
        page.keyboard.press("/")
        page.keyboard.type("0999")
        window.see("11 topics")
        window.picture("light-many-topics")
    with capsys.disabled():
        print(f"\nconsole with {TOPICS} topics: usable after {', '.join(f'{one:.2f}' for one in took)} s (goal: 1 s)")  # noqa: T201


def _seconds_until_usable(window: Window) -> float:
    """From asking for the page to a list whose first row can be opened."""
    begun = time.monotonic()
    window.open("/topics")
    window.page.locator("a[data-row]").first.wait_for()
    return time.monotonic() - begun
