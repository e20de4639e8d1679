"""What the subcommands of `penstock access` do."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.cli.access import OPERATIONS
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import usage
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import acls, keys

ANY: Final = 1
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
KINDS: Final = {2: "topic", 3: "group", 4: "cluster", 5: "transactional-id"}
CLUSTER_NAME: Final = "kafka-cluster"
_NAMES: Final = {number: name for name, number in OPERATIONS.items()}

Action = Callable[[CommandClient, Namespace, Output], int]


class Rule(NamedTuple):
    """A rule as it is shown."""

    permission: str
    user: str
    operation: str
    resource: str
    host: str


def add(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """One rule for each operation."""
    kind, name, pattern = _resource(arguments)
    creations = [
        acls.AclCreation(
            resource_type=kind,
            resource_name=name or "",
            resource_pattern_type=pattern,
            principal=f"User:{arguments.who}",
            host=arguments.from_host or "*",
            operation=OPERATIONS[operation],
            permission_type=ALLOW if arguments.action == "allow" else DENY,
        )
        for operation in arguments.operations
    ]
    answer = client.call(keys.CREATE_ACLS, acls.CreateAclsRequest(creations=creations), acls.CreateAclsResponse)
    for operation, result in zip(arguments.operations, answer.results, strict=True):
        if result.error_code:
            raise RequestRefusedError(f"{arguments.action} {operation}", result.error_code, result.error_message)
    rules = [
        _shown((creation.resource_type, creation.resource_name, creation.resource_pattern_type), creation)
        for creation in creations
    ]
    for rule in rules:
        output.say(f"{rule.user}: {rule.operation} on {rule.resource} is {'allowed' if rule.permission == 'allow' else 'denied'}")
    if output.as_json:
        output.document([rule._asdict() for rule in rules])
    return ExitCode.OK


def list_rules(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """The rules that match, by what they are about."""
    answer = client.call(keys.DESCRIBE_ACLS, acls.DescribeAclsRequest(**_filter(arguments)), acls.DescribeAclsResponse)
    if answer.error_code:
        raise RequestRefusedError("access rules", answer.error_code, answer.error_message)
    rules = [
        _shown((resource.resource_type, resource.resource_name, resource.pattern_type), rule)
        for resource in answer.resources
        for rule in resource.acls
    ]
    _show(rules, output)
    return ExitCode.OK


def remove(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Remove the rules that match; those removed are shown."""
    if _resource(arguments)[0] == ANY and arguments.who is None and arguments.from_host is None:
        raise usage("name the rules to delete: give --of, or a topic, group, transactional id or --cluster")
    wanted = acls.DeleteAclsFilter(**_filter(arguments))
    answer = client.call(keys.DELETE_ACLS, acls.DeleteAclsRequest(filters=[wanted]), acls.DeleteAclsResponse)
    result = answer.filter_results[0]
    if result.error_code:
        raise RequestRefusedError("access rules", result.error_code, result.error_message)
    _show(
        [_shown((match.resource_type, match.resource_name, match.pattern_type), match) for match in result.matching_acls], output
    )
    return ExitCode.OK


ACTIONS: Final[dict[str, Action]] = {"allow": add, "deny": add, "list": list_rules, "remove": remove}


def _resource(arguments: Namespace) -> tuple[int, str | None, int]:
    """Kind, name and pattern of what the options name."""
    if arguments.cluster:
        return 4, CLUSTER_NAME, LITERAL
    for kind, word in KINDS.items():
        attribute = word.replace("-", "_")
        if getattr(arguments, f"{attribute}_prefix", None) is not None:
            return kind, getattr(arguments, f"{attribute}_prefix"), PREFIXED
        if kind != 4 and getattr(arguments, attribute) is not None:
            return kind, getattr(arguments, attribute), LITERAL
    return ANY, None, ANY


def _filter(arguments: Namespace) -> dict[str, Any]:
    """What the options say of the rules that are meant, as both requests have it."""
    kind, name, pattern = _resource(arguments)
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": _principal(arguments),
        "host_filter": arguments.from_host,
        "operation": ANY,
        "permission_type": ANY,
    }


def _principal(arguments: Namespace) -> str | None:
    return None if arguments.who is None else f"User:{arguments.who}"


def _shown(resource: tuple[int, str, int], rule: acls.AclCreation | acls.AclDescription | acls.DeleteAclsMatchingAcl) -> Rule:
    kind, name, pattern = resource
    about = KINDS.get(kind, str(kind)) if kind == 4 else f"{KINDS.get(kind, kind)} {name}{'…' if pattern == PREFIXED else ''}"
    permission = "allow" if rule.permission_type == ALLOW else "deny"
    operation = _NAMES.get(rule.operation, str(rule.operation))
    return Rule(permission, rule.principal.removeprefix("User:"), operation, about, rule.host)


def _show(rules: list[Rule], output: Output) -> None:
    if output.as_json:
        output.document([rule._asdict() for rule in rules])
    else:
        output.rows(Rule._fields, sorted(rules))
