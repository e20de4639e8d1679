"""Serves the files of the console from memory: what the build of the folder `console` of the repository has left in `static`.

Files whose names carry a digest of their contents may be kept by a browser for ever. The page that names them never is, so an
upgrade is seen at the next reload.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Final

from aiohttp import web

from penstock.core.errors import ConfigError

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
# The first parts of the paths that are pages of the console; everything else below `/` is left to the API and to metrics.
PAGES: Final = ("topics", "consumers", "queues", "storage", "streams", "pipelines", "settings")

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_PREFIX: Final = "/assets"
_FOR_EVER: Final = "private, max-age=31536000, immutable"
_CHECKED_EACH_TIME: Final = "no-cache"
_WITH_DIGEST: Final = re.compile(r"-[\w-]{8}\.\w+$")
# Fonts are compressed already.
_COMPRESSED: Final = (".css", ".html", ".js", ".svg", ".txt")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleMissingError(ConfigError):
    """The package was built without the files of the console."""

    code = "console_missing"


class Asset:
    """One file, and how it is answered."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self._suffix = Path(name).suffix
        self._cache_control = _FOR_EVER if _WITH_DIGEST.search(name) else _CHECKED_EACH_TIME

    @cached_property
    def compressed(self) -> bytes | None:
        """The content packed by gzip, made when it is first asked for."""
        return gzip.compress(self.content, 6, mtime=0) if self._suffix in _COMPRESSED else None

    def answer(self, request: web.Request) -> web.Response:
        """The file in the form that the browser takes."""
        headers = {"Content-Type": _TYPES[self._suffix], "Cache-Control": self._cache_control, "Vary": "Accept-Encoding"}
        if self.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=self.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=self.content, headers=headers)


def mount(app: web.Application) -> None:
    """Add the pages of the console and their files to an application that serves the admin API."""
    assets = _read_assets()
    page = assets.pop(INDEX)

    async def serve_page(request: web.Request) -> web.Response:
        return page.answer(request)

    async def serve_asset(request: web.Request) -> web.Response:
        asset = assets.get(request.match_info["name"])
        if asset is None:
            raise web.HTTPNotFound(text="No such file of the console; reload the page, it may be of another version.")
        return asset.answer(request)

    @web.middleware
    async def serve_unknown(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Shows people who mistype an address a page that says so; programs get the JSON of the API."""
        try:
            return await handler(request)
        except web.HTTPNotFound:
            if (
                request.method != "GET"
                or "text/html" not in request.headers.get("Accept", "")
                or request.path.startswith("/api/")
            ):
                raise
            answer = page.answer(request)
            answer.set_status(404)
            return answer

    app.middlewares.append(serve_unknown)
    app.router.add_get("/", serve_page)
    app.router.add_get(f"/{{page:{'|'.join(PAGES)}}}{{rest:(?:/.*)?}}", serve_page)
    app.router.add_get(_PREFIX + "/{name:.+}", serve_asset)


def is_built() -> bool:
    """Whether the pages are here: in a clone they are once `make setup` has bundled them."""
    return (STATIC / INDEX).is_file()


def _read_assets() -> dict[str, Asset]:
    if not is_built():
        raise ConsoleMissingError(
            f"the console is not built: {STATIC / INDEX} is missing. In a clone, `make setup` builds it; a built wheel has it"
        )
    names = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.suffix in _TYPES)
    return {name: Asset(name, (STATIC / name).read_bytes()) for name in names}
