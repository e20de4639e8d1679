"""Kafka's internal topics, which clients expect to see.

Committed offsets and transactions are in tablets, not here: these topics exist, compacted and empty, for tools that list and
describe them. Only the broker may create, delete or write to them; it creates each when a client first looks for its coordinator.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import InvalidTopicNameError
from penstock.broker.topic_config import TopicConfig

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
INTERNAL_PARTITIONS = 1
INTERNAL_CONFIG: Final = TopicConfig({"cleanup.policy": "compact"})


def check_not_internal(name: str) -> None:
    """InvalidTopicNameError for a topic that is the broker's own."""
    if name in INTERNAL_TOPICS:
        raise InvalidTopicNameError(f"topic {name!r} is kept by the broker itself; use a topic of another name")
