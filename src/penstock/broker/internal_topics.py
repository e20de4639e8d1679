"""Topics that a broker keeps for itself, and clients expect to see.

Positions and transactions live in tablets of their own, not in these topics: they are there, compacted and empty, for tools that
list and describe them. Nobody makes, deletes or writes to them but the broker, and it makes each when its coordinator is first
asked for.
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
