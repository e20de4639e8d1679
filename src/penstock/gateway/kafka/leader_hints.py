"""Where a client should go that asked the wrong node for a partition: errors tell it, so that it need not ask for metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic
from penstock.gateway.kafka.cluster_view import BrokerAddress, Leader
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.wire import uvarint

if TYPE_CHECKING:
    from penstock.gateway.kafka.node import Node

HINTED = frozenset({errors.NOT_LEADER_OR_FOLLOWER, errors.FENCED_LEADER_EPOCH})


def leader_hint(node: Node, topic: str | bytes, number: int, code: int) -> Leader | None:
    """Returns the current leader for a client that got this error from a partition; None if that is unknown or would not help."""
    if code not in HINTED:
        return None
    try:
        known = find_topic(node, topic)
    except PenstockError:
        return None
    if not 0 <= number < known.partitions:
        return None
    if code == errors.FENCED_LEADER_EPOCH:
        return _own(node, known.tablets[number])
    return node.view.leader_elsewhere(known.tablets[number])


def addresses_of(node: Node, leaders: Iterable[Leader]) -> list[BrokerAddress]:
    """Returns the addresses of these nodes, each once."""
    wanted = {leader.node_id for leader in leaders}
    return [broker for broker in node.brokers() if broker.node_id in wanted]


def encode_endpoints(brokers: list[BrokerAddress]) -> bytes:
    """Returns addresses as a tagged field of a Fetch response has them."""
    parts = [uvarint(len(brokers) + 1)]
    for broker in brokers:
        host, rack = broker.host.encode(), broker.rack.encode()
        parts += (broker.node_id.to_bytes(4, "big"), uvarint(len(host) + 1), host, broker.port.to_bytes(4, "big"))
        parts += (uvarint(len(rack) + 1 if rack else 0), rack, b"\0")
    return b"".join(parts)


def _own(node: Node, tablet_id: int) -> Leader | None:
    generation = node.broker.tablets.generations().get(tablet_id)
    return None if generation is None else Leader(node.node_id, generation)
