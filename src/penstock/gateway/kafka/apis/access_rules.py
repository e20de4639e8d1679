"""DescribeAcls, CreateAcls and DeleteAcls. Without security there are no users, and these are refused."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from penstock.broker import (
    Access,
    AccessRule,
    InvalidRuleError,
    Operation,
    Permission,
    ResourceKind,
    RuleFilter,
    RulePattern,
)
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import code_of
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

E = TypeVar("E", bound=IntEnum)

NO_SECURITY = (
    "this node was started without security, so there are no access rules; "
    "start it with sasl = true, or allow_without_rule = true"
)


async def describe_acls(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The rules that match, by what they are about."""
    access = call.node.access
    if access is None:
        return DescribeAclsResponse(error_code=errors.SECURITY_DISABLED, error_message=NO_SECURITY)
    try:
        rules = access.rules.matching(_filter(request))
    except PenstockError as error:
        return DescribeAclsResponse(error_code=code_of(error), error_message=str(error))
    resources: dict[tuple[ResourceKind, str, RulePattern], DescribeAclsResource] = {}
    for rule in rules:
        resource = resources.setdefault(
            (rule.kind, rule.name, rule.pattern),
            DescribeAclsResource(resource_type=rule.kind, resource_name=rule.name, pattern_type=rule.pattern),
        )
        resource.acls.append(
            AclDescription(principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission)
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


async def create_acls(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add rules, each for itself."""
    access = call.node.access
    response = CreateAclsResponse()
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        response.results.append(result)
        if access is None:
            result.error_code, result.error_message = errors.SECURITY_DISABLED, NO_SECURITY
            continue
        try:
            await access.rules.add([_rule(creation)])
        except PenstockError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response


async def delete_acls(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Remove the rules that match, filter by filter."""
    access = call.node.access
    return DeleteAclsResponse(filter_results=[await _delete(access, wanted) for wanted in request.filters])


async def _delete(access: Access | None, wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
    if access is None:
        return DeleteAclsFilterResult(error_code=errors.SECURITY_DISABLED, error_message=NO_SECURITY)
    try:
        rules = access.rules.matching(_filter(wanted))
        await access.rules.remove(rules)
    except PenstockError as error:
        return DeleteAclsFilterResult(error_code=code_of(error), error_message=str(error))
    matching = [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=rule.kind,
            resource_name=rule.name,
            pattern_type=rule.pattern,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    return DeleteAclsFilterResult(error_message=None, matching_acls=matching)


def _filter(requested: DescribeAclsRequest | DeleteAclsFilter) -> RuleFilter:
    return RuleFilter(
        _known(ResourceKind, requested.resource_type_filter, "kind of resource"),
        requested.resource_name_filter,
        _known(RulePattern, requested.pattern_type_filter, "kind of pattern"),
        requested.principal_filter,
        requested.host_filter,
        _known(Operation, requested.operation, "operation"),
        _known(Permission, requested.permission_type, "permission"),
    )


def _rule(requested: AclCreation) -> AccessRule:
    return AccessRule(
        _known(ResourceKind, requested.resource_type, "kind of resource"),
        requested.resource_name,
        _known(RulePattern, requested.resource_pattern_type, "kind of pattern"),
        requested.principal,
        requested.host,
        _known(Operation, requested.operation, "operation"),
        _known(Permission, requested.permission_type, "permission"),
    )


def _known(kind: type[E], number: int, what: str) -> E:
    try:
        return kind(number)
    except ValueError:
        raise InvalidRuleError(f"there is no {what} with number {number} here") from None
