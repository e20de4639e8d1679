"""The configuration of this broker under Kafka's names, for those who ask. It is set where the node is started, not here."""

from __future__ import annotations

from typing import NamedTuple

from penstock.gateway.kafka.node import Node


class BrokerConfig(NamedTuple):
    """One setting: its value, its type by Kafka's name, and what it is for."""

    value: str
    kind: str
    doc: str


def broker_configs(node: Node) -> dict[str, BrokerConfig]:
    """Every setting that has a meaning here."""
    options, broker = node.options, node.broker.options
    listener = f"PLAINTEXT://{node.host}:{node.port}"
    return {
        "advertised.listeners": BrokerConfig(listener, "string", "the address that clients are told to connect to"),
        "auto.create.topics.enable": BrokerConfig(
            str(broker.auto_create_topics).lower(), "boolean", "whether a topic that a client names is made when it is not there"
        ),
        "broker.id": BrokerConfig(str(node.node_id), "int", "the number of this node"),
        "connections.max.idle.ms": BrokerConfig(
            str(int(options.idle_timeout_s * 1000)), "long", "a connection on which nothing moves for so long is closed"
        ),
        "default.replication.factor": BrokerConfig("1", "int", "always 1: the storage group below keeps the copies"),
        "delete.topic.enable": BrokerConfig("true", "boolean", "whether topics can be deleted"),
        "fetch.max.bytes": BrokerConfig(str(options.fetch_bytes_max), "int", "the most that one reply to a fetch holds"),
        "max.connections": BrokerConfig(str(options.connections_max), "int", "how many clients can be connected"),
        "max.incremental.fetch.session.cache.slots": BrokerConfig(
            str(options.fetch_sessions_max), "int", "how many fetch sessions are kept"
        ),
        "node.id": BrokerConfig(str(node.node_id), "int", "the number of this node"),
        "num.partitions": BrokerConfig(
            str(broker.default_partitions), "int", "how many partitions a topic gets if its maker does not say"
        ),
        "offset.metadata.max.bytes": BrokerConfig("4096", "int", "the most that is kept with a position"),
        "socket.request.max.bytes": BrokerConfig(str(options.frame_bytes_max), "int", "the largest request that is taken"),
    }
