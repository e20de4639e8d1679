"""The configuration of this broker under Kafka's names, for DescribeConfigs. It is set when the node starts, not here."""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker import TOPIC_CONFIG_KEYS
from penstock.broker.groups import ConsumerGroupOptions, GroupOptions
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
    """Every setting that applies here."""
    options, broker = node.options, node.broker.options
    groups = broker.groups
    listener = f"{node.security_protocol}://{node.host}:{node.port}"
    return {
        "advertised.listeners": BrokerConfig(listener, "string", "the address that clients connect to"),
        "auto.create.topics.enable": BrokerConfig(
            str(broker.auto_create_topics).lower(), "boolean", "whether a topic is created when a client first uses it"
        ),
        "broker.id": BrokerConfig(str(node.node_id), "int", "the id of this node"),
        "connections.max.idle.ms": BrokerConfig(
            str(int(options.idle_timeout_s * 1000)), "long", "how long a connection may be idle before it is closed"
        ),
        "default.replication.factor": BrokerConfig(str(node.view.copies_max), "int", "the copies that the storage group keeps"),
        "delete.topic.enable": BrokerConfig("true", "boolean", "whether topics can be deleted"),
        "fetch.max.bytes": BrokerConfig(str(options.fetch_bytes_max), "int", "the maximum size of a fetch response"),
        **_classic_group_configs(groups),
        **_consumer_group_configs(broker.consumer_groups),
        **_storage_configs(node),
        **_security_configs(node, listener),
        **_transaction_configs(broker.transactions),
        "max.connections": BrokerConfig(str(options.connections_max), "int", "the maximum number of connections"),
        "max.incremental.fetch.session.cache.slots": BrokerConfig(
            str(options.fetch_sessions_max), "int", "the maximum number of fetch sessions"
        ),
        "node.id": BrokerConfig(str(node.node_id), "int", "the id of this node"),
        "num.partitions": BrokerConfig(
            str(broker.default_partitions), "int", "the number of partitions of a new topic, unless given"
        ),
        "offset.metadata.max.bytes": BrokerConfig("4096", "int", "the maximum size of the metadata of a committed offset"),
        "offsets.retention.minutes": BrokerConfig(
            str(int(groups.offsets_retention_s // 60)),
            "int",
            "how long committed offsets are kept after the last member has left",
        ),
        "offsets.topic.num.partitions": BrokerConfig(
            "1", "int", "always 1: committed offsets are stored in a tablet of their own"
        ),
        "penstock.listeners": BrokerConfig(
            ",".join(f"{name}={address}" for name, address in sorted(node.other_listeners().items())),
            "list",
            "the addresses of this node for other protocols",
        ),
        "socket.request.max.bytes": BrokerConfig(str(options.frame_bytes_max), "int", "the maximum size of a request"),
    }


def _storage_configs(node: Node) -> dict[str, BrokerConfig]:
    """Those of data and its copies."""
    copies = "always 1: the storage group replicates the data"
    hours = int(TOPIC_CONFIG_KEYS["retention.ms"].default) // HOUR_MS
    return {
        "auto.leader.rebalance.enable": BrokerConfig("false", "boolean", "always false: partitions do not move"),
        "log.dirs": BrokerConfig(
            ",".join(str(path) for path in node.broker.data_directories()), "string", "the directories of the storage group"
        ),
        "log.retention.hours": BrokerConfig(str(hours), "int", "how long messages are kept, in hours"),
        "offsets.topic.replication.factor": BrokerConfig("1", "short", copies),
        "transaction.state.log.min.isr": BrokerConfig("1", "int", copies),
        "transaction.state.log.replication.factor": BrokerConfig("1", "short", copies),
    }


def _security_configs(node: Node, listener: str) -> dict[str, BrokerConfig]:
    """Settings of authentication and authorization."""
    security = node.broker.options.security
    mechanisms = "" if security is None else ",".join(MECHANISMS)
    admin = "" if security is None else f"User:{security.admin_user}"
    allows = security is None or security.allow_without_rule
    return {
        "allow.everyone.if.no.acl.found": BrokerConfig(
            str(allows).lower(), "boolean", "whether an operation that no ACL covers is allowed"
        ),
        "listeners": BrokerConfig(listener, "string", "the address of the listener"),
        "sasl.enabled.mechanisms": BrokerConfig(mechanisms, "list", "the SASL mechanisms that clients can use"),
        "super.users": BrokerConfig(admin, "string", "the users that are allowed everything"),
    }


def _transaction_configs(options: TransactionOptions) -> dict[str, BrokerConfig]:
    """Those of transactions."""
    return {
        "transaction.max.timeout.ms": BrokerConfig(
            str(int(options.timeout_max_s * 1000)), "int", "the largest timeout of a transaction"
        ),
        "transactional.id.expiration.ms": BrokerConfig(
            str(int(options.id_expiration_s * 1000)), "int", "how long an unused transactional id is kept"
        ),
    }


def _classic_group_configs(groups: GroupOptions) -> dict[str, BrokerConfig]:
    """Those of classic groups."""
    return {
        "group.initial.rebalance.delay.ms": BrokerConfig(
            str(groups.initial_rebalance_delay_ms),
            "int",
            "how long a new group waits for more members before its first rebalance",
        ),
        "group.max.session.timeout.ms": BrokerConfig(
            str(groups.session_timeout_ms_max), "int", "the largest session timeout that a member may request"
        ),
        "group.max.size": BrokerConfig(
            str(groups.members_max or (1 << 31) - 1), "int", "the maximum number of members of a group"
        ),
        "group.min.session.timeout.ms": BrokerConfig(
            str(groups.session_timeout_ms_min), "int", "the smallest session timeout that a member may request"
        ),
    }


def _consumer_group_configs(groups: ConsumerGroupOptions) -> dict[str, BrokerConfig]:
    """Those of groups whose partitions the broker assigns."""
    return {
        "group.consumer.assignors": BrokerConfig(
            ",".join(groups.assignors), "list", "the assignors of KIP-848 groups; the first is the default"
        ),
        "group.consumer.heartbeat.interval.ms": BrokerConfig(
            str(groups.heartbeat_interval_ms), "int", "the heartbeat interval of members of KIP-848 groups"
        ),
        "group.consumer.max.size": BrokerConfig(
            str(groups.members_max), "int", "the maximum number of members of a KIP-848 group"
        ),
        "group.consumer.session.timeout.ms": BrokerConfig(
            str(groups.session_timeout_ms), "int", "the session timeout of members of KIP-848 groups"
        ),
    }
