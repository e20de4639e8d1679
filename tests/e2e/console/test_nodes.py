"""The page of nodes: what its buttons do to a cluster, from a node that does not lead, and the alerts for what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until
from tests.e2e.console.browser import running_browser
from tests.e2e.console.window import Window, opened_window

pytestmark = pytest.mark.slow


def alerts(cluster: RunningCluster, number: int) -> set[str]:
    """The codes of the alerts that a node shows."""
    return {alert["code"] for alert in cluster.api(number, "/overview")["alerts"]}


def wait_for(cluster: RunningCluster, number: int, what: str, *, drains: int | None = None, is_so: bool) -> None:
    """Wait until the cluster is maintained, or a node drains, or not, as another node shows it."""

    def look() -> bool:
        shown = cluster.api(number, "/nodes")
        draining = {node["name"] for node in shown["nodes"] if node["is_draining"]}
        return (bool(shown["is_maintained"]) if drains is None else f"n{drains}" in draining) is is_so

    until(what, look)


def move_a_tablet(cluster: RunningCluster, window: Window, asked: int) -> None:
    """Choose another node for a tablet, confirm it, and see it run there."""
    tablet = cluster.api(asked, "/tablets")["items"][0]
    target = max(node["node_id"] for node in cluster.api(asked, "/nodes")["nodes"] if node["node_id"] != tablet["node"])
    page = window.page
    page.get_by_label("Tablets", exact=True).get_by_role("button", name="Move…").first.click()
    dialog = page.get_by_role("dialog")
    assert f"Move tablet {tablet['tablet']} of {tablet['topic']}?" in dialog.inner_text()
    dialog.get_by_label("From node").select_option(str(target))
    dialog.get_by_role("button", name="Move", exact=True).click()

    def moved() -> bool:
        shown = next(item for item in cluster.api(asked, "/tablets")["items"] if item["tablet"] == tablet["tablet"])
        return (shown["node"], shown["state"]) == (target, "up")

    until("the tablet has moved", moved)
    window.until(f"document.body.innerText.includes('Tablet {tablet['tablet']}')")  # the answer is shown


def test_nodes_are_drained_maintained_and_missed(tmp_path: Path) -> None:
    # The browser comes last: commands cannot run in this process while it does.
    with running_cluster(tmp_path) as cluster, running_browser() as browser:
        cluster.use("topic", "create", "orders", "--partitions", "6")
        active = cluster.active()
        asked, lost = (number for number in cluster.nodes if number != active)
        with opened_window(browser, cluster.url(asked)) as window:
            window.open("/nodes")
            row = window.page.locator(f"table tr:has-text('n{lost}')").first
            for verb, is_draining in (("Drain", True), ("Undrain", False)):
                row.get_by_role("button", name=f"{verb}…").click()
                window.page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()
                wait_for(cluster, asked, verb, drains=lost, is_so=is_draining)
            move_a_tablet(cluster, window, asked)
            for verb, is_on in (("Begin", True), ("End", False)):
                window.page.get_by_role("button", name=f"{verb} maintenance…").click()
                window.page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()
                wait_for(cluster, asked, verb, is_so=is_on)
                window.until(f"document.body.innerText.includes('Maintenance is on') === {str(is_on).lower()}")
            assert not alerts(cluster, asked) & {"NODE_LOST", "GROUP_AT_RISK", "TABLETS_NOT_SERVED"}
            cluster.kill(lost)
            until("the alerts fire", lambda: {"NODE_LOST", "GROUP_AT_RISK"} <= alerts(cluster, asked))
            window.until("document.body.innerText.includes('1 away')")
            window.open("/")
            window.see(f"n{lost}")
