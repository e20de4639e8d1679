"""Pictures of every page of the console for the documentation: `make pictures` writes them to docs/images.

Every page is taken in the light theme; those that newcomers see first in the dark one and on a phone too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.e2e.cluster.running_cluster import running_cluster
from tests.e2e.console.browser import running_browser
from tests.e2e.console.live_data import base_url, node_with_data
from tests.e2e.console.test_pages import PAGES
from tests.e2e.console.window import DESK, PHONE, ROOT, Theme, Window, opened_window

FIRST_SEEN = ("overview", "topics", "messages", "consumers", "configuration", "pipeline")
SETTLE_MS = 600

Form = tuple[str, Theme, tuple[int, int]]


def main() -> int:
    """Start a node with data, wait until charts have something to show, and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.console.pictures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to collect data for charts")
    parser.add_argument("--all", action="store_true", help="every page in every form, for a look")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    first = [page for page in PAGES if page[2] in FIRST_SEEN]
    forms: list[Form] = [("", "light", DESK), ("-dark", "dark", DESK), ("-phone", "light", PHONE)]
    with (
        tempfile.TemporaryDirectory(prefix="penstock-pictures-") as folder,
        running_browser() as browser,
        node_with_data(Path(folder)) as node,
    ):
        time.sleep(arguments.seconds)
        for form, theme, size in forms:
            with opened_window(browser, base_url(node), size=size, theme=theme) as window:
                _take(window, PAGES if arguments.all or not form else first, arguments.folder, form)
    with tempfile.TemporaryDirectory(prefix="penstock-pictures-") as folder:
        _take_cluster(Path(folder), forms, arguments.folder)
    return 0


def _take_cluster(data: Path, forms: list[Form], folder: Path) -> None:
    """The pages that show more in a cluster."""
    options = {number: ("--rack", f"rack-{number}") for number in (1, 2, 3)}
    with running_cluster(data, options=options) as cluster:
        for topic, partitions in (("orders", "12"), ("clicks", "24"), ("readings", "6")):
            cluster.use("topic", "create", topic, "--partitions", partitions)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(5000):
            producer.produce("clicks", b"x" * 100, partition=number % 24 if number % 3 else 7)
        assert producer.flush(60) == 0
        with running_browser() as browser:
            for form, theme, size in forms:
                with opened_window(browser, cluster.url(min(cluster.nodes)), size=size, theme=theme) as window:
                    nodes = ("/nodes", "rack-3" if size == DESK else "leader", "nodes")
                    _take(window, [nodes, ("/topics/clicks/partitions", "have a leader", "partition-map")], folder, form)


def _take(window: Window, pages: list[tuple[str, str, str]], folder: Path, form: str) -> None:
    for path, text, name in pages:
        window.open(path)
        window.page.get_by_text(text).first.wait_for(state="attached")
        window.page.wait_for_timeout(SETTLE_MS)
        window.page.screenshot(path=folder / f"{name}{form}.png")


if __name__ == "__main__":
    sys.exit(main())
