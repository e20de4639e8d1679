"""/tokens: lists the tokens that were issued, creates them for programs, and revokes them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from penstock.broker import (
    CLUSTER_NAME,
    TOKEN_LIFE_S_MAX,
    TOKEN_NAME_CHARACTERS_MAX,
    Broker,
    Operation,
    ResourceKind,
    TokenKind,
    TokenRecord,
    Tokens,
    UnknownTokenError,
    UnknownUserError,
)
from penstock.server.http.caller import Caller
from penstock.server.http.errors import NotAllowedError, NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Done, Nothing, Page, Paging, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.users import UserNames

MINUTE_S = 60


class TokenNames(RequestModel, frozen=True):
    """The token in the path."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class NewToken(RequestModel, frozen=True):
    """A token for a program."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=TOKEN_NAME_CHARACTERS_MAX, description="what it is for")]
    life_s: Annotated[int, msgspec.Meta(ge=MINUTE_S, le=TOKEN_LIFE_S_MAX, description="when it expires, in seconds from now")]


class TokenView(ResponseModel, frozen=True, kw_only=True):
    """A valid token; the token itself is not kept."""

    id: str
    user: str
    kind: Annotated[
        Literal["session", "ydb", "api"], msgspec.Meta(description="of a browser, of a YDB client, or created for a program")
    ]
    name: Annotated[str, msgspec.Meta(description="what it is for; of a session or a YDB client, where it signed in")]
    created_ms: int
    expires_ms: int


class IssuedToken(TokenView, frozen=True, kw_only=True):
    """A new token. This response is the only one that has it."""

    token: str


class TokenResource(Resource):
    """The tokens of users. Users may list, create and revoke their own; those of others need a right on the cluster."""

    def __init__(self, context: NodeContext) -> None:
        self._broker: Broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        user_tokens = "/users/{name}/tokens"
        revoke_all = "revoke all tokens of a user, who has to sign in again"
        return [
            Route("GET", "/tokens", self.list, "valid tokens, newest first", (409,)),
            Route("POST", user_tokens, self.create, "create a token for a program", (404, 409)),
            Route("DELETE", "/tokens/{id}", self.revoke, "revoke a token", (404, 409)),
            Route("DELETE", user_tokens, self.revoke_all, revoke_all, (404, 409)),
        ]

    async def list(self, call: Call[Nothing, Paging, Nothing]) -> Page[TokenView]:
        """GET /tokens: all that the caller may see."""
        caller, text = call.caller, call.query.search.lower()
        sees_all = caller.may(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)
        records = self._tokens().records(None if sees_all else _user(caller))
        wanted = [record for record in records if text in record.user.lower() or text in record.name.lower()]
        return Page([_view(record) for record in call.query.page(wanted)], len(wanted))

    async def create(self, call: Call[UserNames, Nothing, NewToken]) -> IssuedToken:
        """POST /users/{name}/tokens."""
        tokens, user = self._tokens(), call.names.name
        _check_own(call.caller, user)
        if user == self._broker.users.admin and user != _user(call.caller):
            raise NotAllowedError(f"only {user!r} itself may create tokens of the administrator, who is allowed everything")
        token, record = await tokens.issue(user, TokenKind.API, call.body.name, call.body.life_s)
        assert record is not None, "a token of a program has a record"
        return IssuedToken(**msgspec.structs.asdict(_view(record)), token=token)

    async def revoke(self, call: Call[TokenNames, Nothing, Nothing]) -> Done:
        """DELETE /tokens/{id}."""
        tokens = self._tokens()
        try:
            record = tokens.record(call.names.id)
        except UnknownTokenError:
            call.caller.check_cluster(Operation.ALTER)
            raise
        _check_own(call.caller, record.user)
        await tokens.revoke(record)
        return Done()

    async def revoke_all(self, call: Call[UserNames, Nothing, Nothing]) -> Done:
        """DELETE /users/{name}/tokens."""
        tokens, user = self._tokens(), call.names.name
        _check_own(call.caller, user)
        if not self._broker.users.credentials(user):
            raise UnknownUserError(f"there is no user {user!r}; `penstock user list` lists the users")
        await tokens.revoke_all(user)
        return Done()

    def _tokens(self) -> Tokens:
        if self._broker.tokens is None:
            raise NotSupportedHereError("the node runs without sasl: clients do not authenticate, so there are no tokens")
        return self._broker.tokens


def _user(caller: Caller) -> str:
    return caller.principal.removeprefix("User:")


def _check_own(caller: Caller, user: str) -> None:
    """Raise NotAllowedError unless the tokens are the caller's own, or the caller may alter the cluster."""
    if _user(caller) != user:
        caller.check_cluster(Operation.ALTER)


def _view(record: TokenRecord) -> TokenView:
    return TokenView(
        id=record.id,
        user=record.user,
        kind=record.kind.value,
        name=record.name,
        created_ms=record.created_s * 1000,
        expires_ms=record.expires_s * 1000,
    )
