"""Protects every HTTP port from requests that a page of another site makes a browser send.

A browser sends what any page tells it to, from within the network that the node trusts. It names the site of the page in
`Origin` and `Sec-Fetch-Site`, and without asking first it sends only a few types of content; a name that a page has pointed at a
loopback address shows in `Host`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from penstock.core.errors import InvalidRequestError

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
# What a page may have sent to another site without that site's consent.
FORM_TYPES: Final = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
OWN_SITES: Final = frozenset({"same-origin", "none"})
# Of answers that are data: never run, never framed, never part of a page of another site.
DATA_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ForeignRequestError(InvalidRequestError):
    """The request may come from a page of another site."""

    code = "foreign_request"


class WrongContentTypeError(InvalidRequestError):
    """The Content-Type of the body is one that any page can send."""

    code = "wrong_content_type"


class HttpGuard:
    """Refuses requests of other sites' pages. `hosts` are the names that the listener may be called by; None is any. A listener
    that serves pages lets other sites link to them: reading is not refused there, which no other site can see anyway."""

    def __init__(self, hosts: frozenset[str] | None, *, serves_pages: bool = False) -> None:
        self._hosts = hosts
        self._serves_pages = serves_pages

    def check(self, request: web.Request) -> None:
        """ForeignRequestError if a page of another site may have sent the request."""
        hosts = self._hosts
        if hosts is not None and _host_name(request.host) not in hosts:
            raise ForeignRequestError(
                f"the request is for host {request.host!r}; this listener is for this machine alone, by the names "
                f"{', '.join(sorted(hosts))}"
            )
        if self._serves_pages and request.method in SAFE_METHODS:
            return
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"{request.scheme}://{request.host}":
            raise ForeignRequestError(
                f"the request was sent by a page of {origin!r}; only pages of this listener itself may do anything here"
            )
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in OWN_SITES:
            raise ForeignRequestError(f"the request was sent by a page of another site (Sec-Fetch-Site: {site})")

    def middleware(self) -> Middleware:
        """A middleware that checks every request of an application."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.check(request)
            return await handler(request)

        return guard


def check_content_type(request: web.Request, wanted: str) -> None:
    """WrongContentTypeError if the body has a type that any page can make a browser send."""
    if request.content_type in FORM_TYPES:
        raise WrongContentTypeError(f"the body comes as {request.content_type}; send the header Content-Type: {wanted}")


async def add_data_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Have an answer taken for the data it is. A signal of an application, `on_response_prepare`."""
    for name, value in DATA_HEADERS.items():
        response.headers.setdefault(name, value)


def own_hosts(bound: str, *others: str | None) -> frozenset[str] | None:
    """The names by which a listener may be called that is bound to this address. One that only this machine reaches knows them
    all, and so can tell when a page elsewhere has a browser call it by another; None if anyone may be calling."""
    try:
        is_loopback = ipaddress.ip_address(bound).is_loopback
    except ValueError:
        is_loopback = bound == "localhost"
    if not is_loopback:
        return None
    return frozenset({"localhost", "127.0.0.1", "::1", bound, *(name for name in others if name is not None)})


def _host_name(host: str) -> str:
    """The name in a Host header, without a port and without the brackets of IPv6."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
