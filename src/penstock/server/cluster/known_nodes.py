"""The nodes of a cluster as they are shown to people."""

from __future__ import annotations

from typing import NamedTuple

from penstock.coordination import Coordination


class KnownNode(NamedTuple):
    """A node or worker of the cluster. `kafka` is where its Kafka listener is; None if it does not run, or has none. `tablets` of
    topics are those that it owns."""

    node_id: int
    name: str
    kafka: str | None
    is_running: bool
    is_leader: bool
    is_draining: bool
    tablets: int


def known_nodes(coordination: Coordination) -> list[KnownNode]:
    """Every node that was not removed, in order, whether it runs or not."""
    running = {member.node_id: member for member in coordination.members()}
    leader, tablets = coordination.leader, coordination.owners().counts()
    found: list[KnownNode] = []
    for node_id, node in sorted(coordination.nodes().items()):
        if not node.is_removed:
            member = running.get(node_id)
            kafka = None if member is None else member.addresses.get("kafka") or member.addresses.get("kafka_tls")
            found.append(
                KnownNode(
                    node_id,
                    node.name,
                    kafka,
                    is_running=member is not None,
                    is_leader=leader is not None and leader.record.node_id == node_id,
                    is_draining=node.is_draining,
                    tablets=tablets.get(node_id, 0),
                )
            )
    return found
