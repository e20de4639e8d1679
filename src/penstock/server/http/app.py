"""The web application: authentication, protection against other sites, and error responses. Responses are declared by routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from penstock.broker import BadTokenError
from penstock.core.errors import PenstockError
from penstock.gateway.basic_sign_in import ANONYMOUS, BasicSignIn, NotSignedInError
from penstock.gateway.forwarded_client import seen_through
from penstock.gateway.http_bodies import BodyLimits, IncomingBodies
from penstock.gateway.http_guard import HttpGuard
from penstock.server.http.caller import Caller
from penstock.server.http.errors import error_response, error_response_of
from penstock.server.http.node_context import NodeContext
from penstock.server.http.openapi import openapi
from penstock.server.http.route import BODIES, BODY_BYTES_MAX, OPEN_HANDLERS, Call, Nothing, Route
from penstock.server.http.signed_in import SIGN_IN_PATH, session_cookie

log = logging.getLogger(__name__)

API_PREFIX: Final = "/api/v1"
# Public: health checks have no password, nor does a browser before it signs in.
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", API_PREFIX + SIGN_IN_PATH})
# The header by which the console says that it asks for a password itself, so that the browser need not.
CONSOLE_HEADER: Final = "X-Penstock-Console"
CALLER: Final = web.RequestKey("caller", Caller)
CONTENT_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; img-src 'self' data:"
)
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Mount = Callable[[web.Application], None]


def make_app(
    context: NodeContext, routes: Sequence[Route], hosts: frozenset[str] | None, mounts: Sequence[Mount]
) -> web.Application:
    """The application with these routes below the prefix of the API. `hosts` are the accepted host names; None is any.
    Applications added by `mounts` have the same protection, and come after the API. Other nodes sign what they forward with the
    secret."""
    broker, guard = context.broker, HttpGuard(hosts, serves_pages=True)
    app = web.Application(
        client_max_size=BODY_BYTES_MAX,
        middlewares=[_catch_errors, guard.middleware(), seen_through(context.forward_secret), _signed_in(context)],
    )
    app[OPEN_HANDLERS] = set()
    app[BODIES] = IncomingBodies(BodyLimits(), broker.clock)
    app.on_response_prepare.append(_add_headers)

    @cache
    def document() -> dict[str, Any]:
        return openapi(routes, API_PREFIX, is_secured=broker.options.security is not None)

    async def show_document(call: Call[Nothing, Nothing, Nothing]) -> web.Response:
        # Made when it is asked for, and not on the loop: it takes longer than the rest of a start.
        return web.json_response(await asyncio.to_thread(document))

    for route in [*routes, Route("GET", "/openapi.json", show_document, "this document")]:
        app.router.add_route(route.method, API_PREFIX + route.path, _handler_of(route))
    for mount in mounts:
        mount(app)
    return app


def caller_of(request: web.Request) -> Caller:
    """The authenticated caller of a request."""
    return request[CALLER]


def _handler_of(route: Route) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await route.serve(request, caller_of(request))

    return handle


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    if request.path.startswith(API_PREFIX):
        response.headers.setdefault("Cache-Control", "no-store")


@web.middleware
async def _catch_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into JSON responses with a stable code."""
    try:
        return await handler(request)
    except PenstockError as error:
        answer = error_response_of(error)
        if CONSOLE_HEADER in request.headers:
            answer.headers.popall("WWW-Authenticate", None)
        if answer.status >= 500:
            log.warning("%s %s: %s", request.method, request.path, error)
        return answer
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _told_refusal(request, error)
    except HttpProcessingError as error:
        return error_response(400, "malformed_request", f"the request is not HTTP as it must be: {error.message}")
    except ConnectionError:
        raise  # the client has disconnected
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return error_response(500, "internal", "the request failed within the node; its log says where")


def _told_refusal(request: web.Request, error: web.HTTPException) -> web.Response:
    """The response to requests that the web framework refuses."""
    messages = {
        404: f"there is nothing at {request.path}; GET {API_PREFIX}/openapi.json lists all that there is",
        405: f"{request.path} does not take {request.method}; GET {API_PREFIX}/openapi.json says what it takes",
        413: f"the body is larger than {BODY_BYTES_MAX} bytes; send less at once",
    }
    answer = error_response(error.status, error.reason.replace(" ", "_"), messages.get(error.status, error.text or error.reason))
    if "Allow" in error.headers:
        answer.headers["Allow"] = error.headers["Allow"]
    return answer


def _signed_in(context: NodeContext) -> Middleware:
    """Identifies the caller, by the token of a session or by HTTP Basic authentication."""
    broker, cookie = context.broker, session_cookie(context.cluster_id)
    sign_in = BasicSignIn(broker, "http")

    async def principal(request: web.Request) -> str:
        authorization, session = request.headers.get("Authorization", ""), request.cookies.get(cookie)
        if authorization or not session or broker.tokens is None:
            return await sign_in.principal(authorization, request.remote or "")
        try:
            return "User:" + broker.tokens.user_of(session)
        except BadTokenError as error:
            raise NotSignedInError(f"the session has ended: {error}") from error

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_open = request.path in OPEN_PATHS or request.match_info.handler in request.app[OPEN_HANDLERS]
        name = ANONYMOUS if is_open else await principal(request)
        request[CALLER] = Caller(name, request.remote or "", broker.access)
        return await handler(request)

    return check
