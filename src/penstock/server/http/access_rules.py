"""/access-rules: lists access rules (ACLs), adds and deletes them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from penstock.broker import Access, AccessRule, Broker, Operation, Permission, ResourceKind, RuleFilter, RulePattern
from penstock.server.http.errors import NotFoundError, NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Done, Nothing, Page, Paging, RequestModel, Resource, ResponseModel, Route

NAME_BYTES: Final = msgspec.Meta(min_length=1, max_length=1000)


class RuleBody(RequestModel, frozen=True, kw_only=True):
    """An access rule."""

    user: Annotated[str, NAME_BYTES, msgspec.Meta(description="the name of a user; * is everyone")]
    permission: Literal["allow", "deny"] = "allow"
    operation: Literal[
        "all",
        "read",
        "write",
        "create",
        "delete",
        "alter",
        "describe",
        "cluster_action",
        "describe_configs",
        "alter_configs",
        "idempotent_write",
        "two_phase_commit",
    ]
    kind: Literal["topic", "group", "cluster", "transactional_id"]
    name: Annotated[str, NAME_BYTES, msgspec.Meta(description="the name of the resource; * is every name")]
    pattern: Literal["literal", "prefixed"] = "literal"
    host: Annotated[str, NAME_BYTES, msgspec.Meta(description="the address of clients; * is any")] = "*"

    def rule(self) -> AccessRule:
        """The rule of the broker."""
        return AccessRule(
            ResourceKind[self.kind.upper()],
            self.name,
            RulePattern[self.pattern.upper()],
            f"User:{self.user}",
            self.host,
            Operation[self.operation.upper()],
            Permission[self.permission.upper()],
        )


class RuleView(ResponseModel, frozen=True):
    """An access rule, with the words of a request."""

    user: str
    permission: str
    operation: str
    kind: str
    name: str
    pattern: str
    host: str


class AccessRuleResource(Resource):
    """Access rules."""

    def __init__(self, context: NodeContext) -> None:
        self._broker: Broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        path = "/access-rules"
        return [
            Route("GET", path, self.list, "access rules (ACLs); searched in users and resources", (409,)),
            Route("POST", path, self.add, "add an access rule; one that exists stays", (409, 422)),
            Route("POST", f"{path}/delete", self.delete, "delete an access rule", (404, 409, 422)),
        ]

    async def list(self, call: Call[Nothing, Paging, Nothing]) -> Page[RuleView]:
        """GET /access-rules."""
        call.caller.check_cluster(Operation.DESCRIBE)
        search = call.query.search.lower()
        rules = [
            rule for rule in self._access().rules.matching(RuleFilter()) if search in f"{rule.principal} {rule.name}".lower()
        ]
        return Page([_view(rule) for rule in call.query.page(rules)], len(rules))

    async def add(self, call: Call[Nothing, Nothing, RuleBody]) -> Done:
        """POST /access-rules."""
        call.caller.check_cluster(Operation.ALTER)
        await self._access().rules.add([call.body.rule()])
        return Done()

    async def delete(self, call: Call[Nothing, Nothing, RuleBody]) -> Done:
        """POST /access-rules/delete: a rule has no name, so that it is given as it is."""
        call.caller.check_cluster(Operation.ALTER)
        rules, rule = self._access().rules, call.body.rule()
        rule.check()
        if rule not in rules.about(rule.kind):
            raise NotFoundError("there is no such access rule; `penstock access list` lists them")
        await rules.remove([rule])
        return Done()

    def _access(self) -> Access:
        access = self._broker.access
        if access is None:
            raise NotSupportedHereError("the node runs without sasl: everyone may do everything, so there are no access rules")
        return access


def _view(rule: AccessRule) -> RuleView:
    return RuleView(
        user=rule.principal.removeprefix("User:"),
        permission=rule.permission.name.lower(),
        operation=rule.operation.name.lower(),
        kind=rule.kind.name.lower(),
        name=rule.name,
        pattern=rule.pattern.name.lower(),
        host=rule.host,
    )
