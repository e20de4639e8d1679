"""A node that asks who is there: the console signs in, shows what the user may see, and manages users and access rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.console.accessibility import axe_violations, low_contrast, unnamed_controls
from tests.e2e.console.live_data import base_url
from tests.e2e.console.window import DESK, PHONE, Window, opened_window
from tests.e2e.running_node import RunningNode, penstock, running_node

pytestmark = pytest.mark.slow

PASSWORD = "open sesame"


@contextmanager
def secured_console(path: Path) -> Iterator[RunningNode]:
    """A node that requires authentication, with one topic."""
    (path / "password").write_text(PASSWORD)
    security = ["--sasl", "true", "--admin-password-file", str(path / "password")]
    with running_node(path / "log", ["--data-dir", str(path / "data"), "--http-port", "0", *security]) as running:
        made = penstock("topic", "create", "secret-plans", variables=admin(running))
        assert made.returncode == 0, made.stderr
        yield running


@pytest.fixture(scope="module")
def secured(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with secured_console(tmp_path_factory.mktemp("secured")) as running:
        yield running


def admin(node: RunningNode) -> dict[str, str]:
    return {"PENSTOCK_BOOTSTRAP": node.bootstrap, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}


def sign_in(window: Window, user: str, password: str, path: str = "/") -> None:
    """Fill in the form that a page shows before anyone has signed in."""
    page = window.page
    window.open(path)
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".side-foot button", has_text="Sign out").wait_for(state="attached")  # in the menu on a phone
    window.forgive("401")


def test_who_signs_in_sees_the_console_and_signs_out(browser: Browser, secured: RunningNode) -> None:
    with opened_window(browser, base_url(secured)) as window:
        page = window.page
        sign_in(window, "admin", PASSWORD, "/topics")
        window.see("secret-plans")
        assert window.path == "/topics", "the page that was asked for"
        window.open("/settings")
        window.see("you are admin")
        page.get_by_role("button", name="Sign out", exact=True).click()
        window.see("Sign in to Penstock")
        window.open("/topics")
        window.see("Sign in to Penstock")
        window.forgive("401")


def test_a_wrong_password_is_refused_and_nothing_is_shown(browser: Browser, secured: RunningNode) -> None:
    for size, theme in ((DESK, "light"), (PHONE, "dark")):
        with opened_window(browser, base_url(secured), size=size, theme="dark" if theme == "dark" else "light") as window:
            page = window.page
            window.open("/topics")
            assert page.request.get(base_url(secured) + "/api/v1/topics").status == 401
            page.get_by_label("User").fill("admin")
            page.get_by_label("Password").fill("guess")
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("alert").wait_for()
            assert page.get_by_text("secret-plans").count() == 0
            assert unnamed_controls(page) == []
            assert axe_violations(page) == []
            window.picture(f"{theme}-sign-in")
            window.forgive("401")


def test_a_user_without_rights_is_told_so(browser: Browser, secured: RunningNode) -> None:
    made = penstock("user", "set", "guest", stdin=b"guest password\n", variables=admin(secured))
    assert made.returncode == 0, made.stderr
    for resource in (["--topic", "secret-plans"], ["--group", "*"]):
        allowed = penstock("access", "allow", *resource, "guest", "read", variables=admin(secured))
        assert allowed.returncode == 0, allowed.stderr
    with opened_window(browser, base_url(secured)) as window:
        page = window.page
        sign_in(window, "guest", "guest password")
        window.see("You are signed in as guest, and see what you have rights to")
        assert page.get_by_text("Nothing needs attention").count() == 0
        window.open("/topics")
        page.locator("button:disabled", has_text="Create topic").wait_for()
        window.open("/topics/secret-plans")
        page.locator("button:disabled", has_text="Produce").wait_for()
        page.get_by_role("button", name="Actions").click()
        assert page.get_by_role("menuitem", name="Delete topic").is_disabled()
        window.picture("light-guest")
        window.open("/security")
        page.get_by_role("alert").wait_for()  # it may not see who else there is
        window.forgive("403")


def test_users_and_access_rules_are_managed(browser: Browser, secured: RunningNode) -> None:
    with opened_window(browser, base_url(secured)) as window:
        page = window.page
        sign_in(window, "admin", PASSWORD, "/security")
        page.get_by_role("button", name="Create user").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox", name="User").fill("ada")
        dialog.get_by_label("Password").fill("lovelace")
        page.get_by_role("button", name="Create", exact=True).click()
        users = page.get_by_role("table", name="Users")
        users.get_by_text("ada", exact=True).wait_for()
        page.get_by_role("button", name="Add rule").click()
        dialog.get_by_role("textbox", name="User").fill("ada")
        dialog.get_by_label("Operation").select_option("write")
        dialog.get_by_label("Name").fill("secret-")
        dialog.get_by_label("Matches").select_option("prefixed")
        page.get_by_text("ada may write topic secret-*.").wait_for()
        window.picture("light-add-rule")
        page.get_by_role("button", name="Add", exact=True).click()
        delete = page.get_by_role("button", name="Delete the rule: ada may write topic secret-*")
        delete.wait_for()
        assert unnamed_controls(page) == []
        assert low_contrast(page) == []
        assert axe_violations(page) == []
        window.picture("light-security")
        ada = {"PENSTOCK_BOOTSTRAP": secured.bootstrap, "PENSTOCK_USER": "ada", "PENSTOCK_PASSWORD": "lovelace"}
        assert penstock("produce", "secret-plans", "hello", variables=ada).returncode == 0
        delete.click()
        page.get_by_role("button", name="Delete", exact=True).click()
        delete.wait_for(state="detached")
        assert penstock("produce", "secret-plans", "hello", variables=ada).returncode != 0
        page.get_by_role("button", name="Delete user ada").click()
        page.get_by_label("Type ada to confirm").fill("ada")
        page.get_by_role("button", name="Delete", exact=True).click()
        users.get_by_text("ada", exact=True).wait_for(state="detached")


def test_a_topic_is_cloned_with_its_access_rules(browser: Browser, secured: RunningNode) -> None:
    for user in ("clara", "otto"):
        assert penstock("user", "set", user, stdin=b"a password\n", variables=admin(secured)).returncode == 0
    assert penstock("access", "allow", "--topic", "secret-plans", "clara", "write", variables=admin(secured)).returncode == 0
    with opened_window(browser, base_url(secured)) as window:
        page = window.page
        sign_in(window, "admin", PASSWORD, "/topics/secret-plans")
        page.get_by_role("button", name="Actions").click()
        page.get_by_role("menuitem", name="Clone topic").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name of the new topic").fill("plans-2")
        dialog.get_by_label("Copy the access rules that name secret-plans").check()
        dialog.get_by_role("button", name="Clone", exact=True).click()
        page.wait_for_url("**/topics/plans-2")
    produced = [
        penstock(
            "produce", "plans-2", "hello", variables={**admin(secured), "PENSTOCK_USER": user, "PENSTOCK_PASSWORD": "a password"}
        )
        for user in ("clara", "otto")
    ]
    assert [done.returncode == 0 for done in produced] == [True, False]


def test_tokens_are_created_listed_and_revoked(browser: Browser, secured: RunningNode) -> None:
    with opened_window(browser, base_url(secured)) as window:
        page = window.page
        sign_in(window, "admin", PASSWORD, "/security")
        tokens = page.get_by_role("table", name="Tokens")
        tokens.get_by_text("Chrome at 127.0.0.1").first.wait_for()  # this very session
        page.get_by_role("button", name="Create token").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name").fill("nightly report")
        dialog.get_by_label("Expires in").fill("30d")
        dialog.get_by_role("button", name="Create", exact=True).click()
        token = dialog.get_by_label("The token").inner_text()
        window.picture("light-token")
        dialog.get_by_role("button", name="Done").click()
        bearer = {"Authorization": f"Bearer {token}"}
        asked = f"{base_url(secured)}/api/v1/cluster"
        with opened_window(browser, base_url(secured)) as program:
            assert program.page.request.get(asked, headers=bearer).json()["user"] == "admin"
        assert unnamed_controls(page) == []
        assert axe_violations(page) == []
        page.get_by_role("button", name="Revoke the token nightly report of admin").click()
        dialog.get_by_role("button", name="Revoke", exact=True).click()
        tokens.get_by_text("nightly report").wait_for(state="detached")
        with opened_window(browser, base_url(secured)) as program:
            assert program.page.request.get(asked, headers=bearer).status == 401
    for size, theme in ((PHONE, "light"), (DESK, "dark")):
        with opened_window(browser, base_url(secured), size=size, theme="dark" if theme == "dark" else "light") as window:
            sign_in(window, "admin", PASSWORD, "/security")
            window.page.get_by_role("table", name="Users").wait_for()
            window.picture(f"{theme}-security-{size[0]}")
