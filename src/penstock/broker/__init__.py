"""The broker: topics, consumers and their positions, one for all gateways (seeds 000, 002, 003)."""

from penstock.broker.broker import Broker, BrokerOptions, Produced, Route
from penstock.broker.consumers import Position, Queue
from penstock.broker.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicNameError,
    PartitionUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.broker.topic import Topic
from penstock.broker.topic_config import KEYS as TOPIC_CONFIG_KEYS
from penstock.broker.topic_config import TopicConfig

__all__ = [
    "TOPIC_CONFIG_KEYS",
    "Broker",
    "BrokerOptions",
    "InvalidConfigError",
    "InvalidPartitionsError",
    "InvalidTopicNameError",
    "PartitionUnavailableError",
    "Position",
    "Produced",
    "Queue",
    "Route",
    "Topic",
    "TopicConfig",
    "TopicExistsError",
    "UnknownTopicError",
]
