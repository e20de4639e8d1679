"""The Kafka gateway: any Kafka client, unchanged (seed 003)."""

from __future__ import annotations

from penstock.gateway.kafka.gateway import KafkaGateway
from penstock.gateway.kafka.options import KafkaOptions

__all__ = ["KafkaGateway", "KafkaOptions"]
