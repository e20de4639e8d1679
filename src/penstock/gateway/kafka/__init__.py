"""The Kafka gateway: any Kafka client, unchanged (seed 003)."""

from __future__ import annotations

from penstock.gateway.kafka.cluster_view import (
    NO_EPOCH,
    NO_LEADER,
    Admitted,
    BrokerAddress,
    ClusterView,
    ForwardedReply,
    ForwardedRequest,
    Forwarder,
    Leader,
    MoveRefusedError,
    NoForwardError,
    Replicas,
    TransactionalWrite,
    TransactionGate,
)
from penstock.gateway.kafka.dispatch import CALLS
from penstock.gateway.kafka.gateway import KafkaGateway
from penstock.gateway.kafka.node import OtherListeners
from penstock.gateway.kafka.options import KafkaOptions

__all__ = [
    "NO_EPOCH",
    "NO_LEADER",
    "SERVED_APIS",
    "Admitted",
    "BrokerAddress",
    "ClusterView",
    "ForwardedReply",
    "ForwardedRequest",
    "Forwarder",
    "KafkaGateway",
    "KafkaOptions",
    "Leader",
    "MoveRefusedError",
    "NoForwardError",
    "OtherListeners",
    "Replicas",
    "TransactionGate",
    "TransactionalWrite",
]

SERVED_APIS = frozenset(CALLS)
"""The keys of the requests that are served."""
