"""Access rules (ACLs): which users may do what with which topic, group, transactional id or the cluster; stored in the system
tablet.

"a" | 16 bytes of the rule's SHA-256     the rule, as JSON with a version

The numbers of kinds, patterns, operations and permissions are Kafka's, so that a gateway need not translate them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import Final, NamedTuple

from penstock.broker.system_tablet import TableTablet
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.tablet import DeleteRange, Request, Write

VERSION = 1
EVERY_NAME = "*"
EVERY_HOST = "*"
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"
DECISIONS_MAX = 100_000
NAME_SIZE_MAX = 1000


class ResourceKind(IntEnum):
    """The type of resource of a rule. ANY matches all of them in a filter."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class RulePattern(IntEnum):
    """How a rule names its resource. ANY and MATCH are for filters: every pattern, or those that match one name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation on a resource. ANY is for filters, ALL for rules."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Allow or deny. ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_OF_TOPICS: Final = frozenset(
    {
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    }
)
# The valid operations of each type of resource.
OPERATIONS: Final[dict[ResourceKind, frozenset[Operation]]] = {
    ResourceKind.TOPIC: _OF_TOPICS,
    ResourceKind.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceKind.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
            Operation.ALTER,
            Operation.DESCRIBE,
        }
    ),
    ResourceKind.TRANSACTIONAL_ID: frozenset({Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT}),
}
# The operation on the left is implied by each on the right.
_IMPLIED_BY: Final[dict[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class InvalidRuleError(InvalidRequestError):
    """The access rule is invalid."""

    code = "invalid_access_rule"


class AccessRule(NamedTuple):
    """One access rule."""

    kind: ResourceKind
    name: str
    pattern: RulePattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def check(self) -> None:
        """Raise InvalidRuleError if the rule is invalid."""
        if self.kind not in OPERATIONS or self.pattern not in (RulePattern.LITERAL, RulePattern.PREFIXED):
            raise InvalidRuleError("a rule names one kind of resource, by its name or by a prefix")
        if self.permission not in (Permission.ALLOW, Permission.DENY):
            raise InvalidRuleError("a rule allows or denies")
        if self.operation is not Operation.ALL and self.operation not in OPERATIONS[self.kind]:
            raise InvalidRuleError(f"{self.operation.name} is nothing that is done with a {self.kind.name}")
        if not self.name or len(self.name.encode()) > NAME_SIZE_MAX:
            raise InvalidRuleError(f"the name of a resource has 1 to {NAME_SIZE_MAX} bytes")
        if self.kind is ResourceKind.CLUSTER and self.name not in (CLUSTER_NAME, EVERY_NAME):
            raise InvalidRuleError(f"the only resource of kind CLUSTER is {CLUSTER_NAME!r}")
        if not self.principal.startswith("User:") or self.principal == "User:" or len(self.principal) > NAME_SIZE_MAX:
            raise InvalidRuleError(f"a principal is written User:name, not {self.principal!r}")
        if not self.host:
            raise InvalidRuleError(f"a rule names a host by its address, or all by {EVERY_HOST!r}")

    def is_about(self, name: str) -> bool:
        """Whether it matches a resource of this name."""
        if self.pattern is RulePattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERY_NAME)

    def speaks_to(self, principal: str, host: str) -> bool:
        """Whether it applies to this user and host."""
        return self.principal in (principal, EVERYONE) and self.host in (host, EVERY_HOST)

    def covers(self, operation: Operation) -> bool:
        """Whether it applies to an operation. Allow rules include implied operations; deny rules do not."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())


class RuleFilter(NamedTuple):
    """A filter of rules; None and ANY match everything."""

    kind: ResourceKind = ResourceKind.ANY
    name: str | None = None
    pattern: RulePattern = RulePattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, rule: AccessRule) -> bool:
        """Whether a rule matches the filter."""
        return (
            self.kind in (ResourceKind.ANY, rule.kind)
            and self._names(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )

    def _names(self, rule: AccessRule) -> bool:
        if self.pattern is RulePattern.MATCH:
            return self.name is None or rule.is_about(self.name)
        return self.pattern in (RulePattern.ANY, rule.pattern) and self.name in (None, rule.name)


class AccessRules:
    """All access rules. Every change is durable before it takes effect."""

    def __init__(self, tablet: TableTablet) -> None:
        self._tablet = tablet
        self._rules = _load(tablet)
        self.version = 0  # grows with every change

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        self._rules = _load(tablet)
        self.version += 1

    def matching(self, wanted: RuleFilter) -> list[AccessRule]:
        """The matching rules, in a stable order."""
        return sorted(rule for rule in self._rules if wanted.matches(rule))

    async def add(self, rules: Sequence[AccessRule]) -> None:
        """Add rules atomically; existing ones stay."""
        for rule in rules:
            rule.check()
        if rules:
            await self._tablet.execute(Request(tuple(Write(_key(rule), b"", head=_pack(rule)) for rule in rules)))
            self._rules.update(dict.fromkeys(rules))
            self.version += 1

    async def remove(self, rules: Iterable[AccessRule]) -> None:
        """Delete rules atomically."""
        gone = [rule for rule in rules if rule in self._rules]
        if gone:
            keys = [_key(rule) for rule in gone]
            await self._tablet.execute(Request(tuple(DeleteRange(key, key + b"\0") for key in keys), makes_room=True))
            for rule in gone:
                self._rules.pop(rule, None)
            self.version += 1

    def about(self, kind: ResourceKind) -> list[AccessRule]:
        """The rules about resources of a kind."""
        return [rule for rule in self._rules if rule.kind is kind]


class Access:
    """Evaluates the rules. Deny rules take precedence; what no rule allows is denied; administrators are allowed everything."""

    def __init__(self, rules: AccessRules, *, admins: frozenset[str], allow_without_rule: bool = False) -> None:
        self.rules = rules
        self._admins = admins
        self._allow_without_rule = allow_without_rule
        self._decisions: dict[tuple[str, str, Operation, ResourceKind, str], bool] = {}
        self._decided_at = rules.version

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether a user on a host is allowed an operation on a resource."""
        if principal in self._admins:
            return True
        if self._decided_at != self.rules.version or len(self._decisions) > DECISIONS_MAX:
            self._decisions.clear()
            self._decided_at = self.rules.version
        key = (principal, host, operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = self._decide(*key)
        return decision

    def allows_some(self, principal: str, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether a user is allowed an operation on any resource of a type."""
        if principal in self._admins:
            return True
        rules = [rule for rule in self.rules.about(kind) if rule.speaks_to(principal, host) and rule.covers(operation)]
        denied = [rule for rule in rules if rule.permission is Permission.DENY]
        if any(rule.pattern is RulePattern.LITERAL and rule.name == EVERY_NAME for rule in denied):
            return False
        allowed = [rule for rule in rules if rule.permission is Permission.ALLOW]
        return self._allow_without_rule or any(not _is_dominated(rule, denied) for rule in allowed)

    def _decide(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        rules = [rule for rule in self.rules.about(kind) if rule.is_about(name)]
        if not rules:
            return self._allow_without_rule
        verdicts = {rule.permission for rule in rules if rule.speaks_to(principal, host) and rule.covers(operation)}
        return Permission.DENY not in verdicts and Permission.ALLOW in verdicts


def _is_dominated(rule: AccessRule, denied: list[AccessRule]) -> bool:
    """Whether deny rules cover everything that a rule allows."""
    if rule.pattern is RulePattern.LITERAL and rule.name != EVERY_NAME:
        return any(deny.is_about(rule.name) for deny in denied)
    return any(
        deny.pattern is RulePattern.PREFIXED and rule.name != EVERY_NAME and rule.name.startswith(deny.name) for deny in denied
    )


def _load(tablet: TableTablet) -> dict[AccessRule, None]:
    return {_unpack(tablet.head(key) or b""): None for key in tablet.keys(b"a", b"b")}


def _pack(rule: AccessRule) -> bytes:
    return json.dumps({"version": VERSION, "rule": list(rule)}).encode()


def _unpack(raw: bytes) -> AccessRule:
    fields = json.loads(raw)
    if fields["version"] > VERSION:
        raise ConfigError(f"an access rule has format {fields['version']}; upgrade Penstock")
    kind, name, pattern, principal, host, operation, permission = fields["rule"]
    return AccessRule(
        ResourceKind(kind), name, RulePattern(pattern), principal, host, Operation(operation), Permission(permission)
    )


def _key(rule: AccessRule) -> bytes:
    return b"a" + sha256(_pack(rule)).digest()[:16]
