"""The Kafka gateway: any Kafka client, unchanged (seed 003)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.gateway.kafka.gateway import KafkaGateway
    from penstock.gateway.kafka.options import KafkaOptions

__all__ = ["KafkaGateway", "KafkaOptions"]


def __getattr__(name: str) -> Any:
    # Late, so that a command which only speaks the protocol does not load the whole broker.
    if name == "KafkaGateway":
        from penstock.gateway.kafka.gateway import KafkaGateway

        return KafkaGateway
    if name == "KafkaOptions":
        from penstock.gateway.kafka.options import KafkaOptions

        return KafkaOptions
    raise AttributeError(name)
