"""Maps errors to statuses of YDB. A status that its clients retry stands for a retriable error here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from penstock.broker import (
    InvalidConfigError,
    InvalidTopicNameError,
    LimitReachedError,
    PartitionDamagedError,
    PartitionElsewhereError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.broker.buffered_transactions import NoSuchTransactionError, UnsettledPositionsError
from penstock.broker.quotas import QuotaExceededError
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
from penstock.gateway.ydb.protos import IssueMessage, Status
from penstock.queue import UnknownPartitionError, WriteQueueFullError

SEVERITY_ERROR = 1


class StatusError(InvalidRequestError):
    """An error with its own status."""

    code = "ydb_status"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad_request(message: str) -> StatusError:
    """The call is invalid, and the client should not retry it."""
    return StatusError(Status.BAD_REQUEST, message)


def unsupported(message: str) -> StatusError:
    """A feature of YDB that Penstock does not have."""
    return StatusError(Status.UNSUPPORTED, message)


def session_expired(message: str) -> StatusError:
    """The stream's session has expired; the client opens another."""
    return StatusError(Status.SESSION_EXPIRED, message)


def decode_message(decode: Callable[[bytes], Any], body: bytes) -> Any:
    """Decode a message of a client. StatusError if that fails."""
    try:
        return decode(body)
    except DecodeError as error:
        raise bad_request(f"a message of the client cannot be decoded: {error}") from error


# The first match counts, so subclasses come before their base.
_STATUSES: tuple[tuple[type[PenstockError], int], ...] = (
    (NoSuchTransactionError, Status.NOT_FOUND),
    (UnsettledPositionsError, Status.ABORTED),
    (UnknownTopicError, Status.SCHEME_ERROR),
    (UnknownPartitionError, Status.SCHEME_ERROR),
    (InvalidTopicNameError, Status.SCHEME_ERROR),
    (TopicExistsError, Status.ALREADY_EXISTS),
    (InvalidConfigError, Status.BAD_REQUEST),
    (WriteQueueFullError, Status.OVERLOADED),
    (QuotaExceededError, Status.OVERLOADED),
    (OutOfSpaceError, Status.OVERLOADED),
    (LimitReachedError, Status.PRECONDITION_FAILED),
    (InvalidRequestError, Status.BAD_REQUEST),
    (FencedError, Status.SESSION_EXPIRED),
    (PartitionDamagedError, Status.GENERIC_ERROR),
    (ClosedError, Status.UNAVAILABLE),
    (UnavailableError, Status.UNAVAILABLE),
    (CorruptionError, Status.GENERIC_ERROR),
    (ConfigError, Status.PRECONDITION_FAILED),
)


def status_of(error: PenstockError) -> int:
    """The status of an error."""
    if isinstance(error, StatusError):
        return error.status
    if isinstance(error, PartitionElsewhereError) and error.node_id is not None:
        return int(Status.PRECONDITION_FAILED)  # clients ask again and again for what is unavailable, and never say why
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.INTERNAL_ERROR)


def issues_of(error: PenstockError) -> list[Any]:
    """The message of an error, in the form that clients show."""
    text = str(error) if isinstance(error, StatusError) else f"{error} ({error.code})"
    return [IssueMessage(message=text, severity=SEVERITY_ERROR)]
