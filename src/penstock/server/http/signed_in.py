"""/rights, /sign-in and /sign-out: what the signed-in user may do, and the session of a browser.

A session is a token in a cookie that scripts cannot read and that pages of other sites cannot use. Browsers send
it to every port of a host, so its name has the id of the cluster: it is valid at all nodes of one, also when another node
leads, and nodes of different clusters on one machine have sessions of their own.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from penstock.broker import CLUSTER_NAME, TOKEN_LIFE_S, Broker, Operation, ResourceKind, TokenKind, WrongPasswordError
from penstock.gateway.basic_sign_in import NotSignedInError
from penstock.server.http.caller import Caller
from penstock.server.http.errors import NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Done, Nothing, RequestModel, Resource, ResponseModel, Route

KINDS: Final = {"topic": ResourceKind.TOPIC, "group": ResourceKind.GROUP, "cluster": ResourceKind.CLUSTER}
OPERATIONS: Final = tuple(operation for operation in Operation if operation not in (Operation.ANY, Operation.ALL))
DONE: Final = {"done": True}
SIGN_IN_PATH: Final = "/sign-in"
SESSION_COOKIE: Final = "penstock_session"
# Browsers count the credentials of HTTP Basic among cookies, and forget both.
FORGET_CREDENTIALS: Final = {"Clear-Site-Data": '"cookies"'}


class RightsQuery(RequestModel, frozen=True, kw_only=True):
    """The resource; without a name, any of its kind."""

    kind: Literal["topic", "group", "cluster"]
    name: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class RightsView(ResponseModel, frozen=True):
    """The operations that the caller may do with a resource; without a name, with some resource of the kind."""

    operations: list[str]


class SignInBody(RequestModel, frozen=True):
    """A user and its password."""

    user: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    password: Annotated[str, msgspec.Meta(max_length=1000)]


class SignedInResource(Resource):
    """The caller itself."""

    def __init__(self, context: NodeContext) -> None:
        self._broker: Broker = context.broker
        self._cookie = session_cookie(context.cluster_id)

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/rights", self.show, "what the caller may do with a topic, a group or the cluster"),
            Route(
                "POST", SIGN_IN_PATH, self.sign_in, "start the session of a browser, which gets a cookie", (409, 429), model=Done
            ),
            Route(
                "POST", "/sign-out", self.sign_out, "end the session of a browser, and have it forget its password", model=Done
            ),
        ]

    async def show(self, call: Call[Nothing, RightsQuery, Nothing]) -> RightsView:
        """GET /rights. Everyone may ask for their own, whether the resource exists or not."""
        kind, name = KINDS[call.query.kind], call.query.name
        if kind is ResourceKind.CLUSTER:
            name = CLUSTER_NAME
        return RightsView(operations=[operation.name for operation in OPERATIONS if _may(call.caller, operation, kind, name)])

    async def sign_in(self, call: Call[Nothing, Nothing, SignInBody]) -> web.Response:
        """POST /sign-in."""
        broker, body, request = self._broker, call.body, call.request
        if broker.tokens is None:
            raise NotSupportedHereError("the node runs without sasl: clients do not sign in")
        try:
            await broker.sign_in.check_password(body.user, body.password, call.caller.host, "http")
        except WrongPasswordError as error:
            raise NotSignedInError(str(error)) from error
        name = f"{_browser(request.headers.get('User-Agent', ''))} at {call.caller.host}"
        token, _ = await broker.tokens.issue(body.user, TokenKind.SESSION, name)
        answer = web.json_response(DONE)
        answer.set_cookie(
            self._cookie,
            token,
            max_age=TOKEN_LIFE_S,
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return answer

    async def sign_out(self, call: Call[Nothing, Nothing, Nothing]) -> web.Response:
        """POST /sign-out: revokes the session's token, and the headers have the browser forget it."""
        session = call.request.cookies.get(self._cookie)
        if session and self._broker.tokens is not None:
            await self._broker.tokens.revoke_session(session)
        answer = web.json_response(DONE, headers=FORGET_CREDENTIALS)
        answer.del_cookie(self._cookie, httponly=True, samesite="Strict", secure=call.request.secure)
        return answer


def _browser(user_agent: str) -> str:
    """The browser that a User-Agent header names, as far as it can be told: browsers name those they are compatible with."""
    names = {"Edg/": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
    return next((name for mark, name in names.items() if mark in user_agent), "browser")


def session_cookie(cluster_id: str) -> str:
    """The name of the cookie with the token of a session."""
    return f"{SESSION_COOKIE}_{cluster_id}"


def _may(caller: Caller, operation: Operation, kind: ResourceKind, name: str) -> bool:
    return caller.may(operation, kind, name) if name else caller.may_some(operation, kind)
