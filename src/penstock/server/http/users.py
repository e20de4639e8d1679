"""/users: lists users, sets their passwords, and deletes them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.broker import Broker, Operation, Security
from penstock.server.http.errors import NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Done, Nothing, Page, Paging, RequestModel, Resource, ResponseModel, Route


class UserNames(RequestModel, frozen=True):
    """The user in the path."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class NewPassword(RequestModel, frozen=True):
    """A password; only what verifies it is stored."""

    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class UserView(ResponseModel, frozen=True):
    """A user, and how it can authenticate."""

    name: str
    mechanisms: list[str]
    is_admin: Annotated[bool, msgspec.Meta(description="named where the node is started; may do everything")]
    tokens: Annotated[int, msgspec.Meta(description="how many valid tokens it has")]
    token_revocations: Annotated[int, msgspec.Meta(description="how often all its tokens were revoked")]


class UserResource(Resource):
    """Users and their passwords."""

    def __init__(self, context: NodeContext) -> None:
        self._broker: Broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        user_path = "/users/{name}"
        return [
            Route("GET", "/users", self.list, "users, by name; the administrator first", (409,)),
            Route("PUT", user_path, self.set_password, "create a user, or change its password", (409, 422)),
            Route("DELETE", user_path, self.delete, "delete a user; its access rules stay", (404, 409, 422)),
        ]

    async def list(self, call: Call[Nothing, Paging, Nothing]) -> Page[UserView]:
        """GET /users."""
        call.caller.check_cluster(Operation.DESCRIBE)
        admin = self._security().admin_user
        users, tokens = self._broker.users, self._broker.tokens
        wanted = [name for name in (admin, *users.names()) if call.query.search.lower() in name.lower()]
        views = [
            UserView(
                name=name,
                mechanisms=[credential.mechanism.sasl_name for credential in users.credentials(name)],
                is_admin=name == admin,
                tokens=0 if tokens is None else len(tokens.records(name)),
                token_revocations=0 if tokens is None else tokens.revocations(name),
            )
            for name in call.query.page(wanted)
        ]
        return Page(views, len(wanted))

    async def set_password(self, call: Call[UserNames, Nothing, NewPassword]) -> Done:
        """PUT /users/{name}: a credential for every mechanism, as `penstock user set` makes."""
        call.caller.check_cluster(Operation.ALTER)
        self._security()
        await self._broker.users.set_password(call.names.name, call.body.password)
        return Done()

    async def delete(self, call: Call[UserNames, Nothing, Nothing]) -> Done:
        """DELETE /users/{name}."""
        call.caller.check_cluster(Operation.ALTER)
        self._security()
        await self._broker.users.delete(call.names.name)
        return Done()

    def _security(self) -> Security:
        security = self._broker.options.security
        if security is None:
            raise NotSupportedHereError(
                "the node runs without sasl: clients do not authenticate, so there are no users. Start it with --sasl true"
            )
        return security
