"""Penstock's errors as Kafka's codes: the one place where they meet."""

from __future__ import annotations

from typing import Final

from penstock.broker import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicNameError,
    PartitionUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.core.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    OutOfSpaceError,
    PenstockError,
    UnavailableError,
)
from penstock.gateway.kafka.protocol import errors
from penstock.queue import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    OffsetOutOfRangeError,
    SequenceError,
    StaleEpochError,
    UnknownPartitionError,
)

# An error that is not named itself has the code of the nearest kind above it.
CODES: Final[dict[type[PenstockError], int]] = {
    BatchTooLargeError: errors.MESSAGE_TOO_LARGE,
    CorruptBatchError: errors.CORRUPT_MESSAGE,
    InvalidBatchError: errors.INVALID_RECORD,
    OffsetOutOfRangeError: errors.OFFSET_OUT_OF_RANGE,
    SequenceError: errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
    StaleEpochError: errors.INVALID_PRODUCER_EPOCH,
    UnknownPartitionError: errors.UNKNOWN_TOPIC_OR_PARTITION,
    UnknownTopicError: errors.UNKNOWN_TOPIC_OR_PARTITION,
    TopicExistsError: errors.TOPIC_ALREADY_EXISTS,
    InvalidTopicNameError: errors.INVALID_TOPIC_EXCEPTION,
    InvalidPartitionsError: errors.INVALID_PARTITIONS,
    InvalidConfigError: errors.INVALID_CONFIG,
    # The tablet runs elsewhere by now, or again in a moment: clients look up the leader anew and come back.
    PartitionUnavailableError: errors.NOT_LEADER_OR_FOLLOWER,
    FencedError: errors.NOT_LEADER_OR_FOLLOWER,
    ClosedError: errors.NOT_LEADER_OR_FOLLOWER,
    # The storage cannot take or give it now; clients try again.
    UnavailableError: errors.KAFKA_STORAGE_ERROR,
    OutOfSpaceError: errors.KAFKA_STORAGE_ERROR,
    CorruptionError: errors.KAFKA_STORAGE_ERROR,
    ConfigError: errors.INVALID_CONFIG,
    InvalidRequestError: errors.INVALID_REQUEST,
    PenstockError: errors.UNKNOWN_SERVER_ERROR,
}


def code_of(error: PenstockError) -> int:
    """Kafka's code for an error."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
