"""Which requests of Kafka's protocol a node serves, for the reference page."""

from __future__ import annotations

from penstock.gateway.kafka import SERVED_APIS

__all__ = ["SERVED_APIS"]
