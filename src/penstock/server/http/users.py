"""/users/{name}/tokens: revokes the tokens of users."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.broker import Broker, Operation, UnknownUserError
from penstock.server.http.errors import NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Done, Nothing, RequestModel, Resource, Route


class UserNames(RequestModel, frozen=True):
    """The user in the path."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class UserResource(Resource):
    """Users, where Kafka's protocol has no request."""

    def __init__(self, context: NodeContext) -> None:
        self._broker: Broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        summary = "end all tokens of a user, who has to sign in again"
        return [Route("DELETE", "/users/{name}/tokens", self.revoke, summary, (404, 409))]

    async def revoke(self, call: Call[UserNames, Nothing, Nothing]) -> Done:
        """DELETE /users/{name}/tokens."""
        call.caller.check_cluster(Operation.ALTER)
        tokens = self._broker.tokens
        if tokens is None:
            raise NotSupportedHereError("the node runs without sasl: clients do not authenticate, so there are no tokens")
        if not self._broker.users.credentials(call.names.name):
            raise UnknownUserError(f"there is no user {call.names.name!r}; `penstock user list` shows who there is")
        await tokens.revoke(call.names.name)
        return Done()
