"""The files of the console: all that a page names is there, nothing is loaded from elsewhere, licences are bundled."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from penstock.console import PAGES, mount
from penstock.console.asset import Asset
from penstock.console.assets import STATIC, ConsoleMissingError

SOURCE = Path(__file__).resolve().parents[3] / "console"
SCRIPTS = sorted([*(SOURCE / "src").rglob("*.ts*"), SOURCE / "public/theme.js"])
LINES_MAX = 500
FIRST_PAGE_BYTES_MAX = 102 << 10
BUNDLED_LIBRARIES = ("@fontsource-variable/inter", "preact", "uplot")


def test_every_library_has_its_licence() -> None:
    text = (STATIC / "LICENSES.txt").read_text()
    assert [name for name in BUNDLED_LIBRARIES if not re.search(rf"^{name} \d", text, flags=re.MULTILINE)] == []


def test_the_lock_file_names_no_place_to_download_from() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    assert [name for name, about in packages.items() if "resolved" in about] == []
    assert [name for name, about in packages.items() if name and "integrity" not in about] == []


def test_all_that_the_page_names_is_there() -> None:
    named = re.findall(r'(?:src|href)="/assets/([^"]+)"', (STATIC / "index.html").read_text())
    assert len(named) > 4
    assert [name for name in named if not (STATIC / name).is_file()] == []


def test_nothing_is_asked_of_another_host() -> None:
    ours = [*SCRIPTS, *(SOURCE / "src/css").glob("*.css"), STATIC / "index.html"]
    found = [path.name for path in ours if re.search(r"""["'(]\s*(?:https?:)?//[a-z0-9]""", path.read_text())]
    assert found == []


def test_the_first_page_is_small() -> None:
    """The page, what it names, and all that the overview loads after it, as it is sent."""
    wanted, loaded = ["index.html", _built("overview"), _built("charts"), _built("uPlot.esm")], set[str]()
    while wanted:
        name = wanted.pop()
        if name not in loaded:
            loaded.add(name)
            wanted += _loaded_by(name)
    assert {Path(name).suffix for name in loaded} == {".css", ".html", ".js", ".svg", ".woff2"}
    assert sum(len(_sent(name)) for name in loaded) <= FIRST_PAGE_BYTES_MAX


def _built(source: str) -> str:
    """The file that a source was bundled into."""
    (name,) = (path.name for path in STATIC.glob(f"{source}-????????.js"))
    return name


def _loaded_by(name: str) -> list[str]:
    """What a browser loads at once for a page or a script."""
    text = (STATIC / name).read_text() if name.endswith((".html", ".js")) else ""
    named = r'(?:src|href)="/assets/([^"]+)"' if name.endswith(".html") else r'\b(?:from|import)\s*["`]\./([^"`]+)["`]'
    return re.findall(named, text)


def _sent(name: str) -> bytes:
    asset = Asset(name, (STATIC / name).read_bytes())
    return asset.compressed or asset.content


def test_scripts_are_typed() -> None:
    """Strictly and throughout: an `any` says why in the same line."""
    given_up = re.compile(r"@ts-(?:ignore|nocheck|expect-error)|(?::|<|\bas|,) ?any(?=[\[\],;)>=]| \||$)(?!.*//)")
    assert [path.name for path in SCRIPTS if given_up.search(path.read_text())] == []
    assert [path.name for path in (SOURCE / "src").rglob("*.js")] == []


def test_scripts_are_short() -> None:
    assert [path.name for path in SCRIPTS if len(path.read_text().splitlines()) > LINES_MAX] == []


def test_a_package_without_the_console_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("penstock.console.assets.STATIC", tmp_path)
    with pytest.raises(ConsoleMissingError, match="make setup"):
        mount(web.Application())


def test_pages_are_served_and_other_paths_are_left_alone() -> None:
    paths = ["/", *(f"/{page}" for page in PAGES), "/topics/orders/config", "/consumers/%2F%2Ftmp%2Freader"]
    others = ["/api/v1/nothing", "/metrics", "/topicsfoo", "/assets/main-01234567.js"]
    statuses = {path: status for path, (status, _, _) in _answers([*paths, *others]).items()}
    assert statuses == dict.fromkeys(paths, 200) | dict.fromkeys(others, 404)


def test_people_at_an_unknown_address_get_a_page_that_says_so() -> None:
    answers = _answers(["/nowhere", "/api/v1/nothing"], accept="text/html,*/*")
    assert answers["/nowhere"][0] == 404
    assert '<div id="app">' in answers["/nowhere"][2]
    assert '<div id="app">' not in answers["/api/v1/nothing"][2]


def test_files_are_kept_for_ever_and_the_page_is_not() -> None:
    _, headers, page = _answers(["/"])["/"]
    assert (headers["Cache-Control"], headers["Content-Encoding"]) == ("no-cache", "gzip")
    named = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)
    answers = _answers(named)
    assert len(named) > 4
    assert {status for status, _, _ in answers.values()} == {200}
    kept = {path for path, (_, headers, _) in answers.items() if "immutable" in headers["Cache-Control"]}
    assert set(answers) - kept == {"/assets/icon.svg", "/assets/theme.js"}  # the names of all others carry a digest
    script = next(path for path in kept if path.endswith(".js"))
    assert answers[script][1]["Content-Type"] == "text/javascript; charset=utf-8"


def _answers(paths: Sequence[str], accept: str = "*/*") -> dict[str, tuple[int, Mapping[str, str], str]]:
    """Status, headers and text of each path of an application that has nothing but the console."""

    async def ask() -> dict[str, tuple[int, Mapping[str, str], str]]:
        app = web.Application()
        mount(app)
        found: dict[str, tuple[int, Mapping[str, str], str]] = {}
        async with TestClient(TestServer(app)) as client:
            for path in paths:
                async with client.get(URL(path, encoded=True), headers={"Accept": accept}) as response:
                    found[path] = (response.status, response.headers, (await response.read()).decode(errors="replace"))
        return found

    return asyncio.run(ask())
