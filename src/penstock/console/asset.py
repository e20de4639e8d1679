"""A file as a browser gets it: packed if that helps, and kept for as long as its name says."""

from __future__ import annotations

import gzip
import re
from functools import cached_property
from pathlib import Path
from typing import Final

from aiohttp import web

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_TEXT: Final = "text/plain; charset=utf-8"
_FOR_EVER: Final = "private, max-age=31536000, immutable"
_CHECKED_EACH_TIME: Final = "no-cache"
_WITH_DIGEST: Final = re.compile(r"-[\w-]{8}\.\w+$")
# Compressed already.
_PACKED: Final = (".png", ".woff2")


class Asset:
    """One file, and how it is answered."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self._suffix = Path(name).suffix
        self._cache_control = _FOR_EVER if _WITH_DIGEST.search(name) else _CHECKED_EACH_TIME

    @cached_property
    def compressed(self) -> bytes | None:
        """The content packed by gzip, made when it is first asked for."""
        return gzip.compress(self.content, 6, mtime=0) if self._suffix not in _PACKED else None

    def answer(self, request: web.Request) -> web.Response:
        """The file in the form that the browser takes."""
        headers = {
            "Content-Type": _TYPES.get(self._suffix, _TEXT),
            "Cache-Control": self._cache_control,
            "Vary": "Accept-Encoding",
        }
        if self.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=self.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=self.content, headers=headers)
