"""The Kafka gateway: any Kafka client, unchanged (seed 003)."""

from __future__ import annotations

from penstock.gateway.kafka.dispatch import CALLS
from penstock.gateway.kafka.gateway import KafkaGateway
from penstock.gateway.kafka.node import BrokerAddress
from penstock.gateway.kafka.options import KafkaOptions

__all__ = ["SERVED_APIS", "BrokerAddress", "KafkaGateway", "KafkaOptions"]

SERVED_APIS = frozenset(CALLS)
"""The keys of the requests that are served."""
