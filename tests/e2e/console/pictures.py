"""Pictures of every page of the console for the documentation: `make pictures` writes them to docs/images.

Every page is taken in the light theme, in the dark one, and on a phone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from playwright.sync_api import Browser

from tests.e2e.cluster.running_cluster import running_cluster
from tests.e2e.console.browser import running_browser
from tests.e2e.console.live_data import base_url, node_with_data
from tests.e2e.console.test_pages import PAGES
from tests.e2e.console.test_sign_in import PASSWORD, admin, secured_console, sign_in
from tests.e2e.console.window import DESK, PHONE, ROOT, Theme, Window, opened_window
from tests.e2e.http.api_client import client_of
from tests.e2e.running_node import RunningNode, penstock

SETTLE_MS = 600
SECURED: Final = [("/security", "nightly report", "security")]
CLUSTERED: Final = [("/nodes", "rack-3", "nodes"), ("/topics/clicks/partitions", "have a leader", "partition-map")]


class Form(NamedTuple):
    """One of the ways a page is taken."""

    suffix: str
    theme: Theme
    size: tuple[int, int]

    def window(self, browser: Browser, base: str) -> AbstractContextManager[Window]:
        """A window of this form. A phone has no room for a scroll bar, but shows it over the page."""
        return opened_window(browser, base, size=self.size, theme=self.theme, is_mobile=self.size == PHONE)


class PictureRun(NamedTuple):
    """Where pictures go, which pages are wanted (None: all), and how long to collect data for charts."""

    folder: Path
    only: list[str] | None
    seconds: float

    def take(self, window: Window, pages: list[tuple[str, str, str]], form: Form) -> None:
        """Open pages and keep their pictures."""
        for path, text, name in pages:
            if self.only is None or name in self.only:
                window.open(path)
                window.page.get_by_text(text).first.wait_for(state="attached")
                self.keep(window, name, form)

    def keep(self, window: Window, name: str, form: Form) -> None:
        """Keep the picture of what is shown."""
        window.page.wait_for_timeout(SETTLE_MS)
        window.page.screenshot(path=self.folder / f"{name}{form.suffix}.png")


FORMS: Final = (Form("", "light", DESK), Form("-dark", "dark", DESK), Form("-phone", "light", PHONE))
# Taken from nodes that have more to show there.
ELSEWHERE: Final = {name for _, _, name in (*SECURED, *CLUSTERED)}
ALONE: Final = [page for page in PAGES if page[2] not in ELSEWHERE]
NAMES: Final = [
    f"{name}{form.suffix}.png" for _, _, name in (*ALONE, *SECURED, *CLUSTERED, ("", "", "sign-in")) for form in FORMS
]


def main() -> int:
    """Start nodes with data, wait until charts have something to show, and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.console.pictures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to collect data for charts")
    parser.add_argument("--only", nargs="*", metavar="PAGE", help="pages to take again, such as nodes or sign-in")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    only: list[str] | None = arguments.only
    folder.mkdir(parents=True, exist_ok=True)
    for take, names in ((_take_alone, ALONE), (_take_secured, [*SECURED, ("", "", "sign-in")]), (_take_cluster, CLUSTERED)):
        if only is None or any(name in only for _, _, name in names):
            with tempfile.TemporaryDirectory(prefix="penstock-pictures-") as data:
                take(Path(data), PictureRun(folder, only, arguments.seconds))
    return 0


def _take_alone(data: Path, run: PictureRun) -> None:
    """Most pages, of one node with data of every kind."""
    with running_browser() as browser, node_with_data(data) as node:
        time.sleep(run.seconds)
        for form in FORMS:
            with form.window(browser, base_url(node)) as window:
                run.take(window, ALONE, form)


def _take_secured(data: Path, run: PictureRun) -> None:
    """The pages that show users."""
    with running_browser() as browser, secured_console(data) as node:
        _fill_secured(node)
        for form in FORMS:
            with form.window(browser, base_url(node)) as window:
                window.open("/")
                window.see("Sign in to Penstock")
                run.keep(window, "sign-in", form)
                sign_in(window, "admin", PASSWORD)
                run.take(window, SECURED, form)


def _fill_secured(node: RunningNode) -> None:
    for user in ("anna", "reports"):
        penstock("user", "set", user, stdin=f"of {user}\n".encode(), variables=admin(node))
    for rule in (
        ["allow", "--topic-prefix", "shop.", "anna", "read", "write"],
        ["allow", "--group", "*", "anna", "read"],
        ["allow", "--topic", "secret-plans", "reports", "read"],
        ["deny", "--topic", "salaries", "*", "read"],
    ):
        penstock("access", *rule, variables=admin(node))
    api = client_of(node, user="admin", password=PASSWORD)
    api.post("/users/reports/tokens", {"name": "nightly report", "life_s": 90 * 86_400})
    api.post("/users/anna/tokens", {"name": "notebook", "life_s": 7 * 86_400})
    assert api.call("PUT", "/quotas", {"user": "anna", "client": None, "producer_byte_rate": 1 << 20}).status == 200


def _take_cluster(data: Path, run: PictureRun) -> None:
    """The pages that show more in a cluster. It is started first: commands cannot run in the loop of a browser."""
    options = {number: ("--rack", f"rack-{number}") for number in (1, 2, 3)}
    with running_cluster(data, options=options) as cluster:
        for topic, partitions in (("orders", "12"), ("clicks", "24"), ("readings", "6")):
            cluster.use("topic", "create", topic, "--partitions", partitions)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(5000):
            producer.produce("clicks", b"x" * 100, partition=number % 24 if number % 3 else 7)
        assert producer.flush(60) == 0
        with running_browser() as browser:
            for form in FORMS:
                with form.window(browser, cluster.url(min(cluster.nodes))) as window:
                    run.take(window, CLUSTERED, form)


if __name__ == "__main__":
    sys.exit(main())
