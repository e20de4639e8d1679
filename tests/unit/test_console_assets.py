"""The files of the console: all that a page names is there, nothing is loaded from elsewhere, libraries are unchanged."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from penstock.console import PAGES, mount
from penstock.console.assets import STATIC

VENDOR = STATIC / "vendor"
SCRIPTS = sorted([*STATIC.glob("js/**/*.js"), STATIC / "theme.js"])
LINES_MAX = 500


def test_libraries_are_as_the_table_beside_them_says() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), flags=re.MULTILINE)
    stated = dict(rows)
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.suffix in (".js", ".css", ".woff2")
    }
    assert found == stated


def test_every_library_has_its_licence() -> None:
    licences = {path.name for path in VENDOR.glob("LICENSE.*")}
    assert licences == {"LICENSE.htm", "LICENSE.inter", "LICENSE.preact", "LICENSE.uplot"}


def test_every_import_leads_to_a_file() -> None:
    missing = [
        f"{script.relative_to(STATIC)}: {name}"
        for script in SCRIPTS
        for name in re.findall(r"""(?:from|import\()\s*"([^"]+)\"""", script.read_text())
        if not (script.parent / name).resolve().is_file()
    ]
    assert not missing


def test_all_that_the_page_names_is_there() -> None:
    named = re.findall(r"\{\{assets\}\}/([^\"]+)", (STATIC / "index.html").read_text())
    assert len(named) > 5
    assert [name for name in named if not (STATIC / name).is_file()] == []


def test_nothing_is_asked_of_another_host() -> None:
    ours = [*SCRIPTS, *STATIC.glob("css/*.css"), STATIC / "index.html"]
    found = [path.name for path in ours if re.search(r"""["'(]\s*(?:https?:)?//[a-z0-9]""", path.read_text())]
    assert found == []


def test_scripts_are_short() -> None:
    assert [path.name for path in SCRIPTS if len(path.read_text().splitlines()) > LINES_MAX] == []


def test_pages_are_served_and_other_paths_are_left_alone() -> None:
    paths = ["/", *(f"/{page}" for page in PAGES), "/topics/orders/config", "/consumers/%2F%2Ftmp%2Freader"]
    others = ["/api/v1/nothing", "/metrics", "/topicsfoo", "/assets/old/js/main.js"]
    statuses = {path: status for path, (status, _, _) in _answers([*paths, *others]).items()}
    assert statuses == dict.fromkeys(paths, 200) | dict.fromkeys(others, 404)


def test_files_are_kept_for_ever_and_the_page_is_not() -> None:
    _, headers, page = _answers(["/"])["/"]
    assert (headers["Cache-Control"], headers["Content-Encoding"]) == ("no-cache", "gzip")
    named = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)
    answers = _answers(named)
    assert len(named) > 5
    assert {status for status, _, _ in answers.values()} == {200}
    assert all("immutable" in headers["Cache-Control"] for _, headers, _ in answers.values())
    script = next(path for path in named if path.endswith("/js/main.js"))
    assert answers[script][1]["Content-Type"] == "text/javascript; charset=utf-8"


def _answers(paths: Sequence[str]) -> dict[str, tuple[int, Mapping[str, str], str]]:
    """Status, headers and text of each path of an application that has nothing but the console."""

    async def ask() -> dict[str, tuple[int, Mapping[str, str], str]]:
        app = web.Application()
        mount(app)
        found: dict[str, tuple[int, Mapping[str, str], str]] = {}
        async with TestClient(TestServer(app)) as client:
            for path in paths:
                async with client.get(URL(path, encoded=True)) as response:
                    found[path] = (response.status, response.headers, (await response.read()).decode(errors="replace"))
        return found

    return asyncio.run(ask())
