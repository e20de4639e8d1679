"""/rights and /sign-out: what the signed-in user may do, and the end of a browser's session."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from penstock.broker import CLUSTER_NAME, Operation, ResourceKind
from penstock.server.http.caller import Caller
from penstock.server.http.route import Call, Done, Nothing, RequestModel, Resource, ResponseModel, Route

KINDS: Final = {"topic": ResourceKind.TOPIC, "group": ResourceKind.GROUP, "cluster": ResourceKind.CLUSTER}
OPERATIONS: Final = tuple(operation for operation in Operation if operation not in (Operation.ANY, Operation.ALL))
# Browsers count the credentials of HTTP Basic among cookies, and forget both.
FORGET_CREDENTIALS: Final = {"Clear-Site-Data": '"cookies"'}


class RightsQuery(RequestModel, frozen=True, kw_only=True):
    """The resource; without a name, any of its kind."""

    kind: Literal["topic", "group", "cluster"]
    name: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class RightsView(ResponseModel, frozen=True):
    """The operations that the caller may do with a resource; without a name, with some resource of the kind."""

    operations: list[str]


class SignedInResource(Resource):
    """The caller itself."""

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/rights", self.show, "what the caller may do with a topic, a group or the cluster"),
            Route("POST", "/sign-out", self.sign_out, "have a browser forget its user and password", headers=FORGET_CREDENTIALS),
        ]

    async def show(self, call: Call[Nothing, RightsQuery, Nothing]) -> RightsView:
        """GET /rights. Everyone may ask for their own, whether the resource exists or not."""
        kind, name = KINDS[call.query.kind], call.query.name
        if kind is ResourceKind.CLUSTER:
            name = CLUSTER_NAME
        return RightsView(operations=[operation.name for operation in OPERATIONS if _may(call.caller, operation, kind, name)])

    async def sign_out(self, call: Call[Nothing, Nothing, Nothing]) -> Done:
        """POST /sign-out: the header does it."""
        return Done()


def _may(caller: Caller, operation: Operation, kind: ResourceKind, name: str) -> bool:
    return caller.may(operation, kind, name) if name else caller.may_some(operation, kind)
