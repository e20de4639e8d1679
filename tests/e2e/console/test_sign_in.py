"""A node that asks who is there: the browser signs in by HTTP Basic, and the console shows what the user may see."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Error

from tests.e2e.console.live_data import base_url
from tests.e2e.console.window import opened_window
from tests.e2e.running_node import RunningNode, penstock, running_node

pytestmark = pytest.mark.slow

PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def secured(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path = tmp_path_factory.mktemp("secured")
    (path / "password").write_text(PASSWORD)
    argv = [
        "--data-dir",
        str(path / "data"),
        "--http-port",
        "0",
        "--sasl",
        "true",
        "--admin-password-file",
        str(path / "password"),
    ]
    with running_node(path / "log", argv) as running:
        made = penstock("topic", "create", "secret-plans", variables=admin(running))
        assert made.returncode == 0, made.stderr
        yield running


def admin(node: RunningNode) -> dict[str, str]:
    return {"PENSTOCK_BOOTSTRAP": node.bootstrap, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}


def test_who_signs_in_sees_the_console(browser: Browser, secured: RunningNode) -> None:
    credentials = {"username": "admin", "password": PASSWORD}
    with opened_window(browser, base_url(secured), http_credentials=credentials) as window:
        window.open("/topics")
        window.see("secret-plans")
        window.open("/settings")
        window.see("you are admin")
        window.picture("light-signed-in")


def test_a_user_without_rights_is_told_so_and_signs_out(browser: Browser, secured: RunningNode) -> None:
    made = penstock("user", "set", "guest", stdin=b"guest password\n", variables=admin(secured))
    assert made.returncode == 0, made.stderr
    for resource in (["--topic", "secret-plans"], ["--group", "*"]):
        allowed = penstock("access", "allow", *resource, "guest", "read", variables=admin(secured))
        assert allowed.returncode == 0, allowed.stderr
    credentials = {"username": "guest", "password": "guest password"}
    with opened_window(browser, base_url(secured), http_credentials=credentials) as window:
        page = window.page
        window.open("/")
        window.see("You are signed in as guest, and see what you have rights to")
        assert page.get_by_text("Nothing needs attention").count() == 0
        window.open("/topics")
        page.locator("button:disabled", has_text="Create topic").wait_for()
        window.open("/topics/secret-plans")
        page.locator("button:disabled", has_text="Produce").wait_for()
        page.get_by_role("button", name="Actions").click()
        assert page.get_by_role("menuitem", name="Delete topic").is_disabled()
        window.picture("light-guest")
        # The page goes to the overview by itself; a window that is closed meanwhile may hang.
        with page.expect_navigation(), page.expect_response("**/sign-out") as answer:
            page.get_by_role("button", name="Sign out").click()
        assert answer.value.status == 200


def test_signing_out_makes_the_browser_forget_the_password(browser: Browser, secured: RunningNode) -> None:
    base = base_url(secured)
    with opened_window(browser, base) as window:
        page = window.page
        # As typed into the prompt: the browser keeps the password for the node until it is told to forget it.
        page.goto(base.replace("http://", f"http://admin:{quote(PASSWORD)}@") + "/api/v1/cluster")
        window.foreign.clear()  # the same host, under an address with a password
        window.open("/topics")
        window.see("secret-plans")
        with page.expect_event("requestfailed", lambda request: request.is_navigation_request()) as failed:
            page.get_by_role("button", name="Sign out").click()
        assert failed.value.failure == "net::ERR_INVALID_AUTH_CREDENTIALS"  # a person would get a password prompt
        window.forgive("401")
        window.forgive("favicon.ico")  # browsers ask for it beside what is not a page of the console


def test_who_does_not_sees_nothing(browser: Browser, secured: RunningNode) -> None:
    with opened_window(browser, base_url(secured)) as window:
        response = window.page.request.get(base_url(secured) + "/topics")
        assert response.status == 401
        assert response.headers["www-authenticate"].startswith("Basic")
        assert "secret-plans" not in response.text()
        with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):  # a person would get a password prompt
            window.page.goto(base_url(secured) + "/topics")
        window.forgive("401")
