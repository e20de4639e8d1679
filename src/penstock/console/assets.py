"""Serves the files of the console from memory: what the build of the folder `console` of the repository has left in `static`.

Files whose names carry a digest of their contents may be kept by a browser for ever. The page that names them never is, so an
upgrade is seen at the next reload.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from penstock.console.asset import Asset
from penstock.console.docs import mount_docs
from penstock.core.errors import ConfigError
from penstock.server.http import OPEN_HANDLERS

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
# The first parts of the paths that are pages of the console; everything else below `/` is left to the API and to metrics.
PAGES: Final = ("topics", "consumers", "queues", "storage", "nodes", "streams", "pipelines", "schemas", "security", "settings")

_PREFIX: Final = "/assets"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleMissingError(ConfigError):
    """The package was built without the files of the console."""

    code = "console_missing"


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

    app.setdefault(OPEN_HANDLERS, set()).update((serve_page, serve_asset))  # the page itself asks for a password
    app.middlewares.append(serve_unknown)
    mount_docs(app)
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
    names = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())
    return {name: Asset(name, (STATIC / name).read_bytes()) for name in names}
