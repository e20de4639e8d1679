"""Penstock's errors as Kafka's codes: the one place where they meet."""

from __future__ import annotations

from typing import Final

from penstock.broker import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicNameError,
    LimitReachedError,
    PartitionDamagedError,
    PartitionUnavailableError,
    RepeatedCredentialError,
    TopicExistsError,
    UnacceptableCredentialError,
    UnknownMechanismError,
    UnknownTopicError,
    UnknownUserError,
)
from penstock.broker.errors import InvalidTimestampError, LeaseLimitError, LeaseSpentError, UnknownLeaseError
from penstock.broker.groups import (
    CoordinatorUnavailableError,
    FencedInstanceError,
    FencedMemberError,
    GroupFullError,
    InconsistentProtocolError,
    InvalidGroupNameError,
    InvalidPatternError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceError,
    SessionTimeoutError,
    StaleGenerationError,
    StaleMemberError,
    SubscribedTopicError,
    UnknownGroupError,
    UnknownMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from penstock.broker.quotas import QuotaExceededError
from penstock.broker.transactions import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NotInTransactionError,
    ProducerFencedError,
    RecordConflictError,
    UnknownProducerError,
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
from penstock.kafka.protocol import errors
from penstock.queue import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    OffsetOutOfRangeError,
    OpenTransactionError,
    SequenceError,
    StaleEpochError,
    UnknownPartitionError,
    UnsupportedCodecError,
    WriteQueueFullError,
)

# An error that is not named itself has the code of the nearest kind above it.
CODES: Final[dict[type[PenstockError], int]] = {
    BatchTooLargeError: errors.MESSAGE_TOO_LARGE,
    CorruptBatchError: errors.CORRUPT_MESSAGE,
    UnsupportedCodecError: errors.UNSUPPORTED_COMPRESSION_TYPE,
    InvalidBatchError: errors.INVALID_RECORD,
    OffsetOutOfRangeError: errors.OFFSET_OUT_OF_RANGE,
    SequenceError: errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
    StaleEpochError: errors.INVALID_PRODUCER_EPOCH,
    OpenTransactionError: errors.INVALID_TXN_STATE,
    UnknownPartitionError: errors.UNKNOWN_TOPIC_OR_PARTITION,
    UnknownTopicError: errors.UNKNOWN_TOPIC_OR_PARTITION,
    TopicExistsError: errors.TOPIC_ALREADY_EXISTS,
    InvalidTimestampError: errors.INVALID_TIMESTAMP,
    InvalidTopicNameError: errors.INVALID_TOPIC_EXCEPTION,
    InvalidPartitionsError: errors.INVALID_PARTITIONS,
    InvalidConfigError: errors.INVALID_CONFIG,
    FencedMemberError: errors.FENCED_MEMBER_EPOCH,
    StaleMemberError: errors.STALE_MEMBER_EPOCH,
    UnreleasedInstanceError: errors.UNRELEASED_INSTANCE_ID,
    UnsupportedAssignorError: errors.UNSUPPORTED_ASSIGNOR,
    InvalidPatternError: errors.INVALID_REGULAR_EXPRESSION,
    QuotaExceededError: errors.THROTTLING_QUOTA_EXCEEDED,
    UnacceptableCredentialError: errors.UNACCEPTABLE_CREDENTIAL,
    UnknownUserError: errors.RESOURCE_NOT_FOUND,
    UnknownMechanismError: errors.UNSUPPORTED_SASL_MECHANISM,
    RepeatedCredentialError: errors.DUPLICATE_RESOURCE,
    CoordinatorUnavailableError: errors.COORDINATOR_NOT_AVAILABLE,
    FencedInstanceError: errors.FENCED_INSTANCE_ID,
    GroupFullError: errors.GROUP_MAX_SIZE_REACHED,
    InconsistentProtocolError: errors.INCONSISTENT_GROUP_PROTOCOL,
    InvalidGroupNameError: errors.INVALID_GROUP_ID,
    MemberIdRequiredError: errors.MEMBER_ID_REQUIRED,
    NonEmptyGroupError: errors.NON_EMPTY_GROUP,
    NotCoordinatorError: errors.NOT_COORDINATOR,
    RebalanceError: errors.REBALANCE_IN_PROGRESS,
    SessionTimeoutError: errors.INVALID_SESSION_TIMEOUT,
    StaleGenerationError: errors.ILLEGAL_GENERATION,
    SubscribedTopicError: errors.GROUP_SUBSCRIBED_TO_TOPIC,
    UnknownGroupError: errors.GROUP_ID_NOT_FOUND,
    UnknownMemberError: errors.UNKNOWN_MEMBER_ID,
    ProducerFencedError: errors.PRODUCER_FENCED,
    UnknownProducerError: errors.INVALID_PRODUCER_ID_MAPPING,
    ConcurrentTransactionsError: errors.CONCURRENT_TRANSACTIONS,
    NotInTransactionError: errors.TRANSACTION_ABORTABLE,
    InvalidTransactionStateError: errors.INVALID_TXN_STATE,
    InvalidTransactionTimeoutError: errors.INVALID_TRANSACTION_TIMEOUT,
    RecordConflictError: errors.INVALID_UPDATE_VERSION,
    UnknownLeaseError: errors.RESOURCE_NOT_FOUND,
    LimitReachedError: errors.POLICY_VIOLATION,
    LeaseLimitError: errors.POLICY_VIOLATION,
    LeaseSpentError: errors.POLICY_VIOLATION,
    # The tablet runs elsewhere, or restarts: clients refresh their metadata and retry.
    PartitionUnavailableError: errors.NOT_LEADER_OR_FOLLOWER,
    PartitionDamagedError: errors.KAFKA_STORAGE_ERROR,
    FencedError: errors.NOT_LEADER_OR_FOLLOWER,
    ClosedError: errors.NOT_LEADER_OR_FOLLOWER,
    # Refused before anything was written: clients send the batch again after a pause, without looking up the leader.
    WriteQueueFullError: errors.NOT_ENOUGH_REPLICAS,
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


# What these mean where a partition is spoken of, they do not mean to a client that speaks to a coordinator.
_ABOUT_STORAGE: Final = frozenset({errors.NOT_LEADER_OR_FOLLOWER, errors.KAFKA_STORAGE_ERROR})


def coordinator_code(error: PenstockError) -> int:
    """Kafka's code for an error of a coordinator: if its tablet cannot serve now, the client asks again."""
    code = code_of(error)
    return errors.COORDINATOR_NOT_AVAILABLE if code in _ABOUT_STORAGE else code
