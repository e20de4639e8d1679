"""The address of a client whose HTTP request another node of the cluster has forwarded.

Access rules and the lock after wrong passwords go by the address of the client. The node that forwards a request puts it into a
header, signed with the secret of the cluster together with the request, so that no client can claim another address.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

FORWARDED_HEADER: Final = "Penstock-Forwarded-For"
_PURPOSE: Final = b"penstock forwarded client\0"


def signed_client(secret: bytes, address: str, method: str, path: str) -> str:
    """The value of the header."""
    signature = hmac.new(secret, _PURPOSE + "\0".join((address, method, path)).encode(), hashlib.sha256)
    return f"{address} {signature.hexdigest()}"


def client_address(secret: bytes | None, header: str, method: str, path: str) -> str | None:
    """The address in the header; None if no node of this cluster has written it for this request."""
    address = header.rpartition(" ")[0]
    if secret is None or not hmac.compare_digest(signed_client(secret, address, method, path).encode(), header.encode()):
        return None
    return address


def seen_through(secret: bytes | None) -> Middleware:
    """A middleware that gives a forwarded request the address of its client."""

    @web.middleware
    async def see(request: web.Request, handler: Handler) -> web.StreamResponse:
        header = request.headers.get(FORWARDED_HEADER)
        address = None if header is None else client_address(secret, header, request.method, request.path_qs)
        return await handler(request if address is None else request.clone(remote=address))

    return see
