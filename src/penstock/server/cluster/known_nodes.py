"""The nodes of a cluster as they are shown to people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from penstock.coordination import Coordination, MemberRecord
from penstock.placement import NodeState as PlacedState
from penstock.placement import Placement

NODE_STATES: Final = "node-states"
"""The request of operators for the states of all nodes; the leader answers in JSON, by node id."""

NodeState = Literal["leader", "running", "leaving", "unreached", "away"]


class KnownNode(NamedTuple):
    """A node or worker of the cluster. `kafka` is the address of its Kafka listener; None if it is down or has none. `tablets`
    counts the tablets of topics that it owns. `since_ms` is when it started or was lost; None if unknown."""

    node_id: int
    name: str
    state: NodeState
    is_running: bool
    is_leader: bool
    is_draining: bool
    since_ms: int | None
    rack: str
    datacenter: str
    version: str
    kafka: str | None
    addresses: dict[str, str]
    disks: dict[str, str]
    tablets: int


class ServingNode(NamedTuple):
    """The node that serves a request, and where its listener is; None if it has none, or is not known."""

    name: str
    address: str | None
    node_id: int | None = None

    @property
    def refusal(self) -> str:
        """Why another node does not serve the request, and what to do."""
        if self.address is None:
            return f"no node serves this now, {self.name} is starting or away; try again in a moment"
        return f"this node does not lead; {self.name} does, ask it at {self.address}"


def serving_node(coordination: Coordination, node_id: int | None, own_id: int, listener: str = "http") -> ServingNode:
    """Another node that serves the requests of a listener for this one."""
    addresses = (member.addresses for member in coordination.members() if member.node_id == node_id)
    address = None if node_id == own_id else next((known.get(listener) for known in addresses), None)
    return ServingNode("the leader" if node_id is None else f"node {node_id}", address, node_id)


def known_nodes(coordination: Coordination) -> list[KnownNode]:
    """Every node that was not removed, in order, whether it runs or not."""
    running = {member.node_id: member for member in coordination.members()}
    leader, tablets = coordination.leader, coordination.owners().counts()
    nodes: list[KnownNode] = []
    for node_id, node in sorted(coordination.nodes().items()):
        if node.is_removed:
            continue
        member = running.get(node_id)
        is_leader = leader is not None and leader.record.node_id == node_id
        known = member or MemberRecord(node_id=node_id, name=node.name, directory_id="", instance_id="")
        nodes.append(
            KnownNode(
                node_id,
                node.name,
                "away" if member is None else "leader" if is_leader else "leaving" if member.is_leaving else "running",
                is_running=member is not None,
                is_leader=is_leader,
                is_draining=node.is_draining,
                since_ms=known.started_ms or None,
                rack=known.rack,
                datacenter=known.datacenter,
                version=known.version,
                kafka=known.addresses.get("kafka") or known.addresses.get("kafka_tls"),
                addresses=known.addresses,
                disks=known.disks,
                tablets=tablets.get(node_id, 0),
            )
        )
    return nodes


def seen_nodes(coordination: Coordination, placement: Placement | None) -> list[KnownNode]:
    """The nodes as the leader sees them: it knows at once of one that is lost, etcd when the lease of that ends."""
    nodes = known_nodes(coordination)
    return nodes if placement is None else [_seen(node, placement) for node in nodes]


def _seen(node: KnownNode, placement: Placement) -> KnownNode:
    view = placement.nodes.get(node.node_id)
    is_unreached = node.is_running and view is not None and view.state is not PlacedState.ALIVE
    return node._replace(state="unreached") if is_unreached else node


class NodeStates:
    """Tells operators the states of all nodes."""

    def __init__(self, coordination: Coordination, placement: Callable[[], Placement | None]) -> None:
        self._coordination = coordination
        self._placement = placement

    async def tell(self, _: Mapping[str, str]) -> str:
        """The answer of the leader."""
        return json.dumps({node.node_id: node.state for node in seen_nodes(self._coordination, self._placement())})
