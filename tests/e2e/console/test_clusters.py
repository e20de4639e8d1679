"""Several clusters in one console: a menu that leads to the same page of another one, each with a sign-in of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import pytest
from playwright.sync_api import Browser

from tests.e2e.console.accessibility import axe_violations, low_contrast
from tests.e2e.console.live_data import base_url
from tests.e2e.console.window import DESK, PHONE, opened_window
from tests.e2e.http.api_client import ApiClient, client_of
from tests.e2e.running_node import RunningNode, running_node
from tests.ports import free_port

pytestmark = pytest.mark.slow

PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A cluster that asks for users."""
    path = tmp_path_factory.mktemp("east")
    (path / "password").write_text(PASSWORD)
    security = ["--sasl", "true", "--admin-password-file", str(path / "password")]
    argv = ["--data-dir", str(path / "data"), "--http-port", "0", "--cluster-name", "east", *security]
    with running_node(path / "log", argv) as running:
        yield running


@pytest.fixture(scope="module")
def west(east: RunningNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A cluster whose console names the other one, and one that is away."""
    path: Path = tmp_path_factory.mktemp("west")
    peers = f"east={base_url(east)},north=http://127.0.0.1:{free_port()}"
    argv = ["--data-dir", str(path / "data"), "--http-port", "0", "--cluster-name", "west", "--console-peers", peers]
    with running_node(path / "log", argv) as running:
        running.ok("topic", "create", "orders")
        yield running


def test_peers_are_told_with_their_states(west: RunningNode, east: RunningNode) -> None:
    api: ApiClient = client_of(west)
    up, away = api.get("/peers")["items"]
    assert (up["name"], up["url"], up["state"], up["message"]) == ("east", base_url(east), "up", "")
    assert (away["name"], away["state"]) == ("north", "away")
    assert "does not answer" in away["message"]
    assert client_of(east, user="admin", password=PASSWORD).get("/peers")["items"] == []


def test_the_menu_of_clusters_keeps_the_page_and_signs_in_there(browser: Browser, west: RunningNode, east: RunningNode) -> None:
    with opened_window(browser, base_url(west)) as window:
        page = window.page
        window.open("/topics?search=or&at=3")
        page.get_by_role("button", name="Cluster west, choose another").click()
        clusters = page.get_by_role("list", name="Clusters")
        clusters.get_by_text("away", exact=True).wait_for()
        window.see("does not answer")
        assert axe_violations(page) == []
        assert low_contrast(page) == []
        window.picture("light-clusters")
        sent: list[str | None] = []
        page.on("request", lambda request: sent.append(request.headers.get("authorization")))
        clusters.get_by_role("link", name="east").click()
        window.see("Sign in to Penstock")
        target = urlparse(page.url)
        assert (f"http://{target.netloc}", target.path, target.query) == (base_url(east), "/topics", "search=or")
        assert set(sent) == {None}
        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        window.see("No matching topics")
        assert page.get_by_role("button", name="choose another").count() == 0, "east names no other cluster"
        window.forgive("401")
        window.foreign.clear()  # the pages of the other cluster, which were asked for


def test_the_menu_of_clusters_in_the_dark_and_on_a_phone(browser: Browser, west: RunningNode) -> None:
    for theme, size in (("dark", DESK), ("light", PHONE)):
        with opened_window(browser, base_url(west), size=size, theme="dark" if theme == "dark" else "light") as window:
            window.open("/topics")
            if size == PHONE:
                window.page.get_by_role("button", name="Menu").click()
            window.page.get_by_role("button", name="Cluster west, choose another").click()
            window.page.get_by_role("list", name="Clusters").get_by_text("away", exact=True).wait_for()
            window.picture(f"{theme}-clusters-{size[0]}")
