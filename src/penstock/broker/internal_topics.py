"""Kafka's internal topics, which clients expect to see.

Committed offsets and transactions are in tablets, not here: these topics exist, compacted and empty, for tools that list and
describe them. The schemas of the registry and the deployments of pipelines are in theirs, to be read. Only the broker may create,
delete or write to these topics; it creates each when it is first needed.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import InvalidTopicNameError
from penstock.broker.topic_config import TopicConfig

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SCHEMAS_TOPIC: Final = "_schemas"
DEPLOYMENTS_TOPIC: Final = "__penstock_deployments"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SCHEMAS_TOPIC, DEPLOYMENTS_TOPIC})
INTERNAL_PARTITIONS = 1
_CONFIG: Final = TopicConfig({"cleanup.policy": "compact"})
_LARGE_CONFIG: Final = TopicConfig({"cleanup.policy": "compact", "max.message.bytes": str(16 << 20)})


def internal_config(name: str) -> TopicConfig:
    """The configuration of an internal topic."""
    return _LARGE_CONFIG if name in (SCHEMAS_TOPIC, DEPLOYMENTS_TOPIC) else _CONFIG


def check_not_internal(name: str) -> None:
    """InvalidTopicNameError for a topic that is the broker's own."""
    if name in INTERNAL_TOPICS:
        raise InvalidTopicNameError(f"topic {name!r} is kept by the broker itself; use a topic of another name")
