"""Who calls, and what access rules let it do: the same rules, with the same meaning, as on the Kafka side."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker import CLUSTER_NAME, Access, Operation, ResourceKind
from penstock.server.http.errors import NotAllowedError


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller; without access rules everyone may do everything."""

    principal: str
    host: str
    access: Access | None

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether it may do something with a resource."""
        return self.access is None or self.access.allows(self.principal, self.host, operation, kind, name)

    def may_some(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether it may do something with at least one resource of a kind."""
        return self.access is None or self.access.allows_some(self.principal, self.host, operation, kind)

    def check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """Raises NotAllowedError unless the caller may. Checked before the lookup, so that existence is not revealed."""
        if not self.may(operation, kind, name):
            raise NotAllowedError(
                f"{self.principal} may not {operation.name} the {kind.name.lower()} {name!r}; an administrator can allow it with "
                f"`penstock access allow`"
            )

    def may_topic(self, operation: Operation, name: str) -> bool:
        """Whether it may do something with a topic."""
        return self.may(operation, ResourceKind.TOPIC, name)

    def check_topic(self, operation: Operation, name: str) -> None:
        """NotAllowedError unless it may do this with a topic."""
        self.check(operation, ResourceKind.TOPIC, name)

    def check_group(self, operation: Operation, name: str) -> None:
        """NotAllowedError unless it may do this with a consumer, which is a group for access rules."""
        self.check(operation, ResourceKind.GROUP, name)

    def check_cluster(self, operation: Operation) -> None:
        """NotAllowedError unless it may do this with the cluster."""
        self.check(operation, ResourceKind.CLUSTER, CLUSTER_NAME)
