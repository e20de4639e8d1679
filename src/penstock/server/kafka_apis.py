"""The Kafka APIs and dynamic settings of a node, for the reference page."""

from __future__ import annotations

from penstock.broker.dynamic_config import BROKER_NAMES, DYNAMIC_KEYS
from penstock.gateway.kafka import SERVED_APIS

__all__ = ["BROKER_NAMES", "DYNAMIC_KEYS", "SERVED_APIS"]
