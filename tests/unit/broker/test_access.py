"""Access rules and users: who may do what, and that both outlive a restart."""

from __future__ import annotations

from random import Random

import pytest

from penstock.broker import (
    AccessRule,
    Credential,
    InvalidRuleError,
    Mechanism,
    Operation,
    Permission,
    ResourceKind,
    RuleFilter,
    RulePattern,
    Security,
    UnacceptableCredentialError,
    UnknownUserError,
    Users,
)
from penstock.broker.access import Access, AccessRules
from tests.sim_tablet import SimNode, on_node

ANNA, BEN, ADMIN = "User:anna", "User:ben", "User:admin"
HOST = "10.0.0.1"
SECURITY = Security("admin", "secret", Random(1))


def rule(
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    kind: ResourceKind = ResourceKind.TOPIC,
    pattern: RulePattern = RulePattern.LITERAL,
    principal: str = ANNA,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> AccessRule:
    return AccessRule(kind, name, pattern, principal, host, operation, permission)


def decides(*rules: AccessRule, allow_without_rule: bool = False) -> Access:
    """An access with these rules."""

    async def scenario(node: SimNode) -> Access:
        kept = AccessRules(await node.kv(1))
        await kept.add(rules)
        return Access(kept, admins=frozenset({ADMIN}), allow_without_rule=allow_without_rule)

    return on_node(scenario)


def may(
    access: Access, operation: Operation = Operation.READ, name: str = "orders", principal: str = ANNA, host: str = HOST
) -> bool:
    return access.allows(principal, host, operation, ResourceKind.TOPIC, name)


def test_without_rules_only_the_administrator_may() -> None:
    access = decides()
    assert not may(access)
    assert may(access, Operation.DELETE, principal=ADMIN)


def test_without_rules_all_may_if_that_is_asked_for() -> None:
    access = decides(rule(name="secret", principal=BEN), allow_without_rule=True)
    assert may(access)
    assert not may(access, name="secret")


def test_a_rule_is_about_one_user_name_and_operation() -> None:
    access = decides(rule())
    assert may(access)
    assert not may(access, principal=BEN)
    assert not may(access, name="orders2")
    assert not may(access, Operation.WRITE)


def test_a_prefix_and_a_star_speak_of_many_names() -> None:
    access = decides(rule(name="ord", pattern=RulePattern.PREFIXED), rule(Operation.WRITE, "*"))
    assert may(access, name="orders")
    assert not may(access, name="xord")
    assert may(access, Operation.WRITE, "anything")


def test_a_star_among_prefixes_is_just_a_character() -> None:
    assert not may(decides(rule(name="*", pattern=RulePattern.PREFIXED)))


def test_a_rule_for_everyone_and_for_a_host() -> None:
    access = decides(rule(principal="User:*", host=HOST))
    assert may(access, principal=BEN)
    assert not may(access, principal=BEN, host="10.0.0.2")


def test_a_denial_wins() -> None:
    access = decides(rule(Operation.ALL, "*"), rule(permission=Permission.DENY))
    assert not may(access)
    assert may(access, Operation.WRITE)
    assert may(access, name="other")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_whoever_may_use_it_may_describe_it(operation: Operation) -> None:
    assert may(decides(rule(operation)), Operation.DESCRIBE)


def test_a_denial_of_more_does_not_deny_less() -> None:
    access = decides(rule(Operation.DESCRIBE), rule(Operation.READ, permission=Permission.DENY))
    assert may(access, Operation.DESCRIBE)


def test_a_new_rule_counts_at_once_and_a_removed_one_no_more() -> None:
    async def scenario(node: SimNode) -> list[bool]:
        rules = AccessRules(await node.kv(1))
        access = Access(rules, admins=frozenset())
        seen = [may(access)]
        await rules.add([rule()])
        seen.append(may(access))
        await rules.remove(rules.matching(RuleFilter(principal=ANNA)))
        seen.append(may(access))
        return seen

    assert on_node(scenario) == [False, True, False]


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ((), False),
        ((rule(Operation.WRITE),), True),
        ((rule(Operation.READ),), False),
        ((rule(Operation.WRITE), rule(Operation.WRITE, permission=Permission.DENY)), False),
        ((rule(Operation.WRITE, "*"), rule(Operation.WRITE, permission=Permission.DENY)), True),
        ((rule(Operation.WRITE), rule(Operation.ALL, "*", permission=Permission.DENY)), False),
        (
            (
                rule(Operation.WRITE, "ord", pattern=RulePattern.PREFIXED),
                rule(Operation.WRITE, "o", pattern=RulePattern.PREFIXED, permission=Permission.DENY),
            ),
            False,
        ),
    ],
)
def test_whether_some_topic_can_be_written_to(rules: tuple[AccessRule, ...], allowed: bool) -> None:
    assert decides(*rules).allows_some(ANNA, HOST, Operation.WRITE, ResourceKind.TOPIC) is allowed


def test_rules_are_found_by_what_they_say() -> None:
    rules = [
        rule(),
        rule(name="ord", pattern=RulePattern.PREFIXED),
        rule(name="*"),
        rule(name="other", principal=BEN),
        rule(kind=ResourceKind.GROUP),
    ]

    async def scenario(node: SimNode) -> list[list[AccessRule]]:
        kept = AccessRules(await node.kv(1))
        await kept.add(rules)
        return [
            kept.matching(RuleFilter(ResourceKind.TOPIC, "orders", RulePattern.MATCH)),
            kept.matching(RuleFilter(ResourceKind.TOPIC, "orders", RulePattern.LITERAL)),
            kept.matching(RuleFilter(principal=BEN)),
            kept.matching(RuleFilter(operation=Operation.WRITE)),
            kept.matching(RuleFilter(kind=ResourceKind.GROUP, permission=Permission.ALLOW)),
        ]

    by_match, by_name, by_user, by_operation, by_kind = on_node(scenario)
    assert set(by_match) == set(rules[:3])
    assert by_name == rules[:1]
    assert by_user == [rules[3]]
    assert by_operation == []
    assert by_kind == [rules[4]]


@pytest.mark.parametrize(
    "wrong",
    [
        rule(Operation.IDEMPOTENT_WRITE),
        rule(name=""),
        rule(principal="anna"),
        rule(host=""),
        rule(kind=ResourceKind.CLUSTER, operation=Operation.ALTER),
        rule(kind=ResourceKind.ANY),
        rule(pattern=RulePattern.MATCH),
        rule(permission=Permission.ANY),
    ],
)
def test_a_rule_that_means_nothing_is_refused(wrong: AccessRule) -> None:
    with pytest.raises(InvalidRuleError):
        wrong.check()


def test_rules_and_credentials_outlive_a_restart() -> None:
    credential = Credential.of_password(Mechanism.SCRAM_SHA_512, 4096, b"salt", "pencil")

    async def scenario(node: SimNode) -> tuple[list[AccessRule], Credential | None, list[str]]:
        tablet = await node.kv(1)
        await AccessRules(tablet).add([rule(), rule(name="gone")])
        await AccessRules(tablet).remove([rule(name="gone")])
        await Users(tablet, None).change([("anna", credential), ("ben", credential)])
        await Users(tablet, None).change([], [("ben", Mechanism.SCRAM_SHA_512)])
        await node.close()
        node.start()
        tablet = await node.kv(2)
        users = Users(tablet, None)
        return AccessRules(tablet).matching(RuleFilter()), users.credential("anna", Mechanism.SCRAM_SHA_512), users.names()

    assert on_node(scenario) == ([rule()], credential, ["anna"])


def test_the_administrator_has_a_credential_that_nobody_else_sets() -> None:
    async def scenario(node: SimNode) -> Users:
        return Users(await node.kv(1), SECURITY)

    users = on_node(scenario)
    assert [one.is_of("secret") for one in users.credentials("admin")] == [True, True]
    assert [one.is_of("wrong") for one in users.credentials("admin")] == [False, False]
    assert users.names() == []
    with pytest.raises(UnacceptableCredentialError):
        users.check_set("admin", 4096)
    with pytest.raises(UnacceptableCredentialError):
        users.check_set("anna", 4095)
    with pytest.raises(UnknownUserError):
        users.check_remove("anna", Mechanism.SCRAM_SHA_256)


def test_a_password_is_nowhere_to_be_read() -> None:
    assert "secret" not in repr(SECURITY)
