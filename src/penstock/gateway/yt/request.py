"""An HTTP request taken apart: where clients put parameters, and how bodies are compressed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from penstock.gateway.yt.errors import INVALID_FORMAT, REQUEST_TOO_LARGE, YtError
from penstock.gateway.yt.formats import parse_json, parse_yson

BODY_BYTES_MAX = 128 << 20
GZIP_OR_ZLIB = 47  # zlib's way of asking for either


async def read_body(request: web.Request) -> bytes:
    """The body of a request without its compression, which may be another than it says."""
    raw = bytearray()
    async for chunk in request.content.iter_any():
        raw += chunk
        _check_size(len(raw))
    return _plain(bytes(raw), request.headers.get("Content-Encoding", "identity"))


def parameters_of(request: web.Request, body: bytes, *, in_body: bool) -> dict[str, Any]:
    """The parameters of a command, from the query, the headers and, if it has no other body, the body."""
    found: dict[str, Any] = dict(request.query)
    is_json = "json" in request.headers.get("X-YT-Header-Format", "yson")
    header = _header(request.headers)
    if header:
        found |= _map(parse_json(header, "X-YT-Parameters") if is_json else parse_yson(header, "X-YT-Parameters"))
    if in_body and body.strip():
        is_json = "json" in request.headers.get("Content-Type", "json")
        found |= _map(parse_json(body, "the body") if is_json else parse_yson(body, "the body"))
    return found


def _header(headers: Mapping[str, str]) -> bytes:
    """The parameters in the header; long ones come in several."""
    parts = [headers.get("X-YT-Parameters", "")]
    number = 0
    while (part := headers.get(f"X-YT-Parameters-{number}")) is not None:
        parts.append(part)
        number += 1
    return "".join(parts).encode("utf-8", "surrogateescape")


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise YtError(INVALID_FORMAT, f"parameters are a map, not {type(value).__name__}")
    return value


def _plain(raw: bytes, encoding: str) -> bytes:
    if encoding == "identity" or not raw:
        return raw
    if encoding not in ("gzip", "deflate"):
        raise YtError(INVALID_FORMAT, f"bodies compressed with {encoding!r} are not read; use gzip or identity")
    unpacker = zlib.decompressobj(GZIP_OR_ZLIB)
    try:
        plain = unpacker.decompress(raw, BODY_BYTES_MAX + 1)
    except zlib.error as error:
        raise YtError(INVALID_FORMAT, f"the body does not decompress: {error}") from error
    _check_size(len(plain))
    return plain


def _check_size(size: int) -> None:
    if size > BODY_BYTES_MAX:
        raise YtError(REQUEST_TOO_LARGE, f"the body has more than {BODY_BYTES_MAX} bytes; send fewer rows at a time")
