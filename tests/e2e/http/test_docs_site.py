"""The documentation as a site: it builds without a warning, a node serves it, and pages need nothing but what is served."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from penstock.console import docs
from tests.documented import ROOT

OUTSIDE = ("http:", "https:", "mailto:", "data:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is now. A link or an anchor that leads nowhere fails the build."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", "docs_site/mkdocs.yml"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*build, "--site-dir", str(folder)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_found_by_the_search(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index.html"} <= found


def test_all_that_pages_name_is_served_under_the_policy_of_the_node(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "STATIC", site)

    async def scenario() -> None:
        app = web.Application()
        docs.mount_docs(app)
        async with TestClient(TestServer(app)) as client:
            page = await client.get("/docs")  # redirected
            assert (page.status, page.url.path) == (200, "/docs/index.html")
            for name in ("index.html", "how-to/console.html", "CONTRIBUTING.html"):
                text = await (await client.get(f"/docs/{name}")).text()
                assert "<script>" not in text
                assert "<style" not in text
                assert 'style="' not in text
                for named in set(re.findall(r'(?:src|href)="([^"#]+)', text)):
                    if not named.startswith(OUTSIDE):
                        answer = await client.get(urljoin(f"/docs/{name}", named))
                        assert answer.status == 200, (name, named)
            assert (await client.get("/docs/../../pyproject.toml")).status == 404
            assert (await client.get("/docs/%2e%2e/asset.py")).status == 404

    asyncio.run(scenario())


def test_a_clone_without_the_site_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "STATIC", tmp_path)

    async def scenario() -> None:
        app = web.Application()
        docs.mount_docs(app)
        async with TestClient(TestServer(app)) as client:
            answer = await client.get("/docs/")
            assert answer.status == 404
            assert "make docs" in await answer.text()

    asyncio.run(scenario())
