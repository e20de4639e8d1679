"""What is wrong with a cluster, as one of its nodes sees it."""

from __future__ import annotations

from penstock.coordination import Coordination
from penstock.placement import Placement
from penstock.server.cluster.groups import ClusterGroups
from penstock.server.cluster.peers import Peers
from penstock.server.metrics.alerts import ClusterTrouble


def cluster_troubles(
    coordination: Coordination, peers: Peers, groups: ClusterGroups, placement: Placement | None
) -> list[ClusterTrouble]:
    """Nodes that are away or cannot be reached, groups at risk, tablets that no node serves, and an etcd that is away."""
    running = {member.node_id for member in coordination.members()}
    nodes = coordination.nodes().items()
    away = [f"node {number} ({node.name}) is away" for number, node in nodes if number not in running and not node.is_removed]
    tablets = [] if placement is None else placement.troubles()
    message = coordination.status.message
    return [
        *(ClusterTrouble("node", trouble) for trouble in (*peers.troubles(), *away)),
        *(ClusterTrouble("group", risk.message, is_critical=risk.is_lost) for risk in groups.risks()),
        *(ClusterTrouble("tablets", trouble, is_critical=True) for trouble in tablets),
        *((ClusterTrouble("store", message),) if message else ()),
    ]
