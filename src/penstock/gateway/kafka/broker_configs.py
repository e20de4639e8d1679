"""The configuration of this broker under Kafka's names, for those who ask. It is set where the node is started, not here."""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker import TOPIC_CONFIG_KEYS
from penstock.broker.groups import ConsumerGroupOptions
from penstock.broker.transactions import TransactionOptions
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.security.sasl import MECHANISMS

HOUR_MS = 3600 * 1000


class BrokerConfig(NamedTuple):
    """One setting: its value, its type by Kafka's name, and what it is for."""

    value: str
    kind: str
    doc: str


def broker_configs(node: Node) -> dict[str, BrokerConfig]:
    """Every setting that has a meaning here."""
    options, broker = node.options, node.broker.options
    groups = broker.groups
    listener = f"{node.security_protocol}://{node.host}:{node.port}"
    return {
        "advertised.listeners": BrokerConfig(listener, "string", "the address that clients are told to connect to"),
        "auto.create.topics.enable": BrokerConfig(
            str(broker.auto_create_topics).lower(), "boolean", "whether a topic that a client names is made when it is not there"
        ),
        "broker.id": BrokerConfig(str(node.node_id), "int", "the number of this node"),
        "connections.max.idle.ms": BrokerConfig(
            str(int(options.idle_timeout_s * 1000)), "long", "a connection on which nothing moves for so long is closed"
        ),
        "default.replication.factor": BrokerConfig(str(node.view.copies_max), "int", "the copies that the storage group keeps"),
        "delete.topic.enable": BrokerConfig("true", "boolean", "whether topics can be deleted"),
        "fetch.max.bytes": BrokerConfig(str(options.fetch_bytes_max), "int", "the most that one reply to a fetch holds"),
        "group.initial.rebalance.delay.ms": BrokerConfig(
            str(groups.initial_rebalance_delay_ms), "int", "how long the first member of a group waits for others"
        ),
        "group.max.session.timeout.ms": BrokerConfig(
            str(groups.session_timeout_ms_max), "int", "the longest session timeout that a member may ask for"
        ),
        "group.max.size": BrokerConfig(str(groups.members_max or (1 << 31) - 1), "int", "how many members a group may have"),
        "group.min.session.timeout.ms": BrokerConfig(
            str(groups.session_timeout_ms_min), "int", "the shortest session timeout that a member may ask for"
        ),
        **_consumer_group_configs(broker.consumer_groups),
        **_storage_configs(node),
        **_security_configs(node, listener),
        **_transaction_configs(broker.transactions),
        "max.connections": BrokerConfig(str(options.connections_max), "int", "how many clients can be connected"),
        "max.incremental.fetch.session.cache.slots": BrokerConfig(
            str(options.fetch_sessions_max), "int", "how many fetch sessions are kept"
        ),
        "node.id": BrokerConfig(str(node.node_id), "int", "the number of this node"),
        "num.partitions": BrokerConfig(
            str(broker.default_partitions), "int", "how many partitions a topic gets if its maker does not say"
        ),
        "offset.metadata.max.bytes": BrokerConfig("4096", "int", "the most that is kept with a position"),
        "offsets.retention.minutes": BrokerConfig(
            str(int(groups.offsets_retention_s // 60)), "int", "how long the positions of a group are kept without its members"
        ),
        "offsets.topic.num.partitions": BrokerConfig("1", "int", "always 1: positions are kept in a tablet of their own"),
        "penstock.listeners": BrokerConfig(
            ",".join(f"{name}={address}" for name, address in sorted(node.other_listeners().items())),
            "list",
            "the addresses of this node for other protocols",
        ),
        "socket.request.max.bytes": BrokerConfig(str(options.frame_bytes_max), "int", "the largest request that is taken"),
    }


def _storage_configs(node: Node) -> dict[str, BrokerConfig]:
    """Those of data and its copies."""
    copies = "always 1: the storage group below keeps the copies"
    hours = int(TOPIC_CONFIG_KEYS["retention.ms"].default) // HOUR_MS
    return {
        "auto.leader.rebalance.enable": BrokerConfig("false", "boolean", "always false: partitions are where they are"),
        "log.dirs": BrokerConfig(
            ",".join(str(path) for path in node.broker.data_directories()), "string", "the directories of the storage group"
        ),
        "log.retention.hours": BrokerConfig(str(hours), "int", "how long messages are kept, as in log.retention.ms"),
        "offsets.topic.replication.factor": BrokerConfig("1", "short", copies),
        "transaction.state.log.min.isr": BrokerConfig("1", "int", copies),
        "transaction.state.log.replication.factor": BrokerConfig("1", "short", copies),
    }


def _security_configs(node: Node, listener: str) -> dict[str, BrokerConfig]:
    """Those of who clients are and what they may do."""
    security = node.broker.options.security
    mechanisms = "" if security is None else ",".join(MECHANISMS)
    admin = "" if security is None else f"User:{security.admin_user}"
    allows = security is None or security.allow_without_rule
    return {
        "allow.everyone.if.no.acl.found": BrokerConfig(
            str(allows).lower(), "boolean", "whether everyone may do what no access rule speaks of"
        ),
        "listeners": BrokerConfig(listener, "string", "the address of the listener, as clients are told"),
        "sasl.enabled.mechanisms": BrokerConfig(mechanisms, "list", "the ways in which clients can say who they are"),
        "super.users": BrokerConfig(admin, "string", "who may do everything"),
    }


def _transaction_configs(options: TransactionOptions) -> dict[str, BrokerConfig]:
    """Those of transactions."""
    return {
        "transaction.max.timeout.ms": BrokerConfig(
            str(int(options.timeout_max_s * 1000)), "int", "the longest timeout that a transaction may ask for"
        ),
        "transactional.id.expiration.ms": BrokerConfig(
            str(int(options.id_expiration_s * 1000)), "int", "a transactional id that is not used for so long is forgotten"
        ),
    }


def _consumer_group_configs(groups: ConsumerGroupOptions) -> dict[str, BrokerConfig]:
    """Those of groups whose partitions the broker assigns."""
    return {
        "group.consumer.assignors": BrokerConfig(
            ",".join(groups.assignors), "list", "the assignors of the broker; the first is used if members name none"
        ),
        "group.consumer.heartbeat.interval.ms": BrokerConfig(
            str(groups.heartbeat_interval_ms), "int", "how often members report whose partitions the broker assigns"
        ),
        "group.consumer.max.size": BrokerConfig(
            str(groups.members_max), "int", "how many members a group can have whose partitions the broker assigns"
        ),
        "group.consumer.session.timeout.ms": BrokerConfig(
            str(groups.session_timeout_ms), "int", "such a member that is silent for so long is removed"
        ),
    }
