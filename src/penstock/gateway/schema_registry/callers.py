"""Who calls the registry, and what access rules let it do. A subject is guarded by the rules of the topic it is named for."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker import CLUSTER_NAME, Access, Operation, ResourceKind
from penstock.broker.schema_registry import RegistryError, resource_topic


@dataclass(frozen=True, slots=True)
class RegistryCaller:
    """An authenticated caller; without access rules everyone may do everything."""

    principal: str
    host: str
    access: Access | None

    def may(self, operation: Operation, subject: str) -> bool:
        """Whether it may do something with a subject."""
        return self._allows(operation, ResourceKind.TOPIC, resource_topic(subject))

    def check(self, operation: Operation, subject: str) -> None:
        """A RegistryError unless it may."""
        if not self.may(operation, subject):
            raise RegistryError(
                40301,
                f"User is denied operation {operation.name} on subject {subject}: {self.principal} needs it for topic "
                f"{resource_topic(subject)!r}, which `penstock access allow` gives",
            )

    def check_global(self, operation: Operation) -> None:
        """A RegistryError unless it may do something with the registry as a whole."""
        if not self._allows(operation, ResourceKind.CLUSTER, CLUSTER_NAME):
            raise RegistryError(40301, f"User is denied operation {operation.name} on the cluster: {self.principal}")

    def _allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self.access is None or self.access.allows(self.principal, self.host, operation, kind, name)
