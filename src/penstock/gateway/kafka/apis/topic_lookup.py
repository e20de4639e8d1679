"""Topics and partitions as requests name them: by name, or by id in newer versions."""

from __future__ import annotations

from uuid import UUID

from penstock.broker import Topic, UnknownTopicError
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.error_codes import code_of
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import ZERO_UUID, errors
from penstock.queue import Partition


class UnknownTopicIdError(UnknownTopicError):
    """There is no topic with this id."""

    code = "unknown_topic_id"


def find_topic(node: Node, topic: str | bytes) -> Topic:
    """A topic by its name or its id. UnknownTopicError or UnknownTopicIdError if there is none."""
    if isinstance(topic, str):
        return node.broker.catalog.topic(topic)
    try:
        return node.broker.catalog.topic_by_id(UUID(bytes=topic))
    except UnknownTopicError as error:
        raise UnknownTopicIdError(str(error)) from error


def topic_code(error: PenstockError) -> int:
    """Kafka's code for an error about a topic that may have been named by id."""
    return errors.UNKNOWN_TOPIC_ID if isinstance(error, UnknownTopicIdError) else code_of(error)


def has_id(topic_id: bytes) -> bool:
    """Whether a topic is named by its id."""
    return topic_id != ZERO_UUID


def epoch_error(partition: Partition, leader_epoch: int) -> int:
    """The error for a client that believes the leader to be in this epoch; -1 if it believes nothing."""
    if leader_epoch < 0 or leader_epoch == partition.epoch:
        return errors.NONE
    return errors.FENCED_LEADER_EPOCH if leader_epoch < partition.epoch else errors.UNKNOWN_LEADER_EPOCH
