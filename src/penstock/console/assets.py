"""Serves the files of the console from memory.

All of them are below `/assets/DIGEST/`, where the digest is that of their contents: a browser may keep them for ever, and an
upgrade is seen at the next reload, since the page that names them is never kept.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Final

from aiohttp import web

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
# The first parts of the paths that are pages of the console; everything else below `/` is left to the API and to metrics.
PAGES: Final = ("topics", "consumers", "queues", "storage", "streams", "pipelines", "settings")

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_FOR_EVER: Final = "private, max-age=31536000, immutable"
# Fonts are compressed already.
_COMPRESSED: Final = (".css", ".html", ".js", ".svg")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asset:
    """One file, and how it is answered."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.content = content
        self.suffix = Path(name).suffix

    @cached_property
    def compressed(self) -> bytes | None:
        """The content packed by gzip, made when it is first asked for."""
        return gzip.compress(self.content, 6, mtime=0) if self.suffix in _COMPRESSED else None

    def answer(self, request: web.Request, cache_control: str) -> web.Response:
        """The file in the form that the browser takes."""
        headers = {"Content-Type": _TYPES[self.suffix], "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
        if self.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=self.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=self.content, headers=headers)


def mount(app: web.Application) -> None:
    """Add the pages of the console and their files to an application that serves the admin API."""
    assets = _read_assets()
    prefix = f"/assets/{_digest(assets)}"
    page = Asset(INDEX, assets.pop(INDEX).content.replace(b"{{assets}}", prefix.encode()))

    async def serve_page(request: web.Request) -> web.Response:
        return page.answer(request, "no-cache")

    async def serve_asset(request: web.Request) -> web.Response:
        asset = assets.get(request.match_info["name"])
        if asset is None:
            raise web.HTTPNotFound(text="No such file of the console; reload the page, it may be of another version.")
        return asset.answer(request, _FOR_EVER)

    app.router.add_get("/", serve_page)
    app.router.add_get(f"/{{page:{'|'.join(PAGES)}}}{{rest:(?:/.*)?}}", serve_page)
    app.router.add_get(prefix + "/{name:.+}", serve_asset)


def _read_assets() -> dict[str, Asset]:
    names = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.suffix in _TYPES)
    return {name: Asset(name, (STATIC / name).read_bytes()) for name in names}


def _digest(assets: dict[str, Asset]) -> str:
    digest = hashlib.sha256()
    for name, asset in assets.items():
        digest.update(f"{name} {len(asset.content)}\n".encode())
        digest.update(asset.content)
    return digest.hexdigest()[:16]
