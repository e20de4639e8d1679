"""Serves the documentation at /docs: what `make docs` has built into `docs_static`, read from disk when it is asked for."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web

from penstock.console.asset import Asset

STATIC: Final = Path(__file__).parent / "docs_static"
PREFIX: Final = "/docs"
INDEX: Final = "index.html"


def mount_docs(app: web.Application) -> None:
    """Add the documentation to an application. Without it, /docs says how to build it."""

    @cache
    def names() -> frozenset[str]:
        return frozenset(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())

    @cache
    def asset(name: str) -> Asset:
        return Asset(name, (STATIC / name).read_bytes())

    async def redirect(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{PREFIX}/{INDEX}")

    async def serve(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"] or INDEX
        if name not in await asyncio.to_thread(names):
            reason = f"There is no page {name}; {PREFIX}/ lists them."
            if INDEX not in names():
                reason = "The documentation is not built. In a clone, `make docs` builds it; a built wheel has it."
            raise web.HTTPNotFound(text=reason)
        return (await asyncio.to_thread(asset, name)).answer(request)

    app.router.add_get(PREFIX, redirect)
    app.router.add_get(PREFIX + "/{name:.*}", serve)
