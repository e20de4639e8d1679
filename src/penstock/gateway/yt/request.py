"""Parses HTTP requests: parameters from where clients put them, and compressed bodies."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, TypeVar

from aiohttp import web

from penstock.gateway.http_bodies import MemoryBudget
from penstock.gateway.yt.call import Command
from penstock.gateway.yt.errors import INVALID_FORMAT, REQUEST_TOO_LARGE, YtError
from penstock.gateway.yt.formats import parse_json, parse_yson

ROWS_BYTES_MAX = 128 << 20
VALUE_BYTES_MAX = 16 << 20  # of a value to set
PARAMETERS_BYTES_MAX = 4 << 20
PLAIN_BYTES_ALWAYS = 16 << 20  # any body may unpack to this
PACKED_RATIO_MAX = 100  # how many times its size a body may unpack to beyond that
UNPACKED_BYTES_MAX = 128 << 20  # of all bodies in work; their parsed rows take several times that
SMALL_BYTES = 64 << 10  # unpacked and parsed in the event loop; a larger body in a thread
THREADS = 2
GZIP_OR_ZLIB = 47  # zlib's way of asking for either

T = TypeVar("T")


@asynccontextmanager
async def decompressed_body(budget: MemoryBudget, raw: bytes, encoding: str, command: Command) -> AsyncIterator[bytes]:
    """Decompress the body of a request, within a memory budget. A body declared as gzip may be zlib."""
    if encoding not in ("identity", "gzip", "deflate"):
        raise YtError(INVALID_FORMAT, f"Content-Encoding {encoding!r} is not supported; use gzip or identity")
    is_packed = encoding != "identity" and bool(raw)
    if not is_packed and len(raw) <= SMALL_BYTES:
        yield raw  # not worth a wait behind large bodies
        return
    limit = _unpacked_max(len(raw), size_max_of(command)) if is_packed else len(raw)
    async with budget.reserve(limit) as use:
        body = await in_thread(partial(decompress, raw, size_max_of(command))) if is_packed else raw
        use(len(body))
        yield body


async def in_thread(work: Callable[[], T]) -> T:
    """Work on a large body in a thread of its own pool, so that neither requests nor sign-ins wait for it."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)


async def parameters_of(request: web.Request, body: bytes, *, in_body: bool) -> dict[str, Any]:
    """The parameters of a command, from the query, the headers and, if it has no other body, the body."""
    if in_body and len(body) > SMALL_BYTES:
        return await in_thread(partial(_parameters, request, body, in_body=True))
    return _parameters(request, body, in_body=in_body)


def decompress(raw: bytes, size_max: int) -> bytes:
    """Decompress a body. YtError if the result is over the limit, or too many times what was sent."""
    limit = _unpacked_max(len(raw), size_max)
    parts: list[bytes] = []
    left = limit + 1
    try:
        while raw and left > 0:  # a gzip file may have several members
            unpacker = zlib.decompressobj(GZIP_OR_ZLIB)
            parts.append(unpacker.decompress(raw, left))
            left -= len(parts[-1])
            if left > 0 and not unpacker.eof:
                raise YtError(INVALID_FORMAT, "the compressed body is incomplete")
            raw = unpacker.unused_data
    except zlib.error as error:
        raise YtError(INVALID_FORMAT, f"the body does not decompress: {error}") from error
    if left <= 0:
        raise YtError(
            REQUEST_TOO_LARGE,
            f"the body unpacks to more than {limit} bytes; at most {size_max} are taken, and beyond {PLAIN_BYTES_ALWAYS} at most "
            f"{PACKED_RATIO_MAX} times what was sent: send fewer rows at a time",
        )
    return b"".join(parts) if len(parts) > 1 else parts[0]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-yt")


def _unpacked_max(size: int, size_max: int) -> int:
    """How many bytes a body of this size may unpack to."""
    return min(size_max, max(PLAIN_BYTES_ALWAYS, PACKED_RATIO_MAX * size))


def size_max_of(command: Command) -> int:
    """The largest body that a command accepts."""
    sizes = {"tabular": ROWS_BYTES_MAX, "structured": VALUE_BYTES_MAX}
    return PARAMETERS_BYTES_MAX if command.input_type is None else sizes[command.input_type]


def _parameters(request: web.Request, body: bytes, *, in_body: bool) -> dict[str, Any]:
    parameters: dict[str, Any] = dict(request.query)
    is_json = "json" in request.headers.get("X-YT-Header-Format", "yson")
    header = _header(request.headers)
    if header:
        parameters |= _map(parse_json(header, "X-YT-Parameters") if is_json else parse_yson(header, "X-YT-Parameters"))
    if in_body and body.strip():
        is_json = "json" in request.headers.get("Content-Type", "json")
        parameters |= _map(parse_json(body, "the body") if is_json else parse_yson(body, "the body"))
    return parameters


def _header(headers: Mapping[str, str]) -> bytes:
    """The parameters in the headers; long ones are split over several."""
    parts = [headers.get("X-YT-Parameters", "")]
    number = 0
    while (part := headers.get(f"X-YT-Parameters-{number}")) is not None:
        parts.append(part)
        number += 1
    return "".join(parts).encode("utf-8", "surrogateescape")


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise YtError(INVALID_FORMAT, f"parameters must be a map, not {type(value).__name__}")
    return value
