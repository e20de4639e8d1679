"""Maps errors to statuses of gRPC and of HTTP."""

from __future__ import annotations

from typing import Final, NamedTuple

import grpc

from penstock.broker import (
    InvalidTopicNameError,
    LimitReachedError,
    PartitionDamagedError,
    TooManyAttemptsError,
    UnknownTopicError,
)
from penstock.broker.quotas import QuotaExceededError
from penstock.broker.streams import InvalidPositionError, InvalidSubjectError, PayloadCorruptError, UnknownMessageError
from penstock.core.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    OutOfSpaceError,
    PenstockError,
    UnavailableError,
)
from penstock.gateway.basic_sign_in import NotSignedInError
from penstock.gateway.http_bodies import SlowBodyError
from penstock.gateway.http_guard import ForeignRequestError
from penstock.gateway.stream.caller import NotAllowedError
from penstock.queue import BatchTooLargeError, PartitionFullError, WriteQueueFullError


class StatusPair(NamedTuple):
    """The status of an error in both protocols."""

    grpc: grpc.StatusCode
    http: int


UNAVAILABLE: Final = StatusPair(grpc.StatusCode.UNAVAILABLE, 503)
INTERNAL: Final = StatusPair(grpc.StatusCode.INTERNAL, 500)

# The first match counts, so subclasses come before their base.
_STATUSES: Final[tuple[tuple[type[PenstockError], StatusPair], ...]] = (
    (NotSignedInError, StatusPair(grpc.StatusCode.UNAUTHENTICATED, 401)),
    (TooManyAttemptsError, StatusPair(grpc.StatusCode.RESOURCE_EXHAUSTED, 429)),
    (NotAllowedError, StatusPair(grpc.StatusCode.PERMISSION_DENIED, 403)),
    (ForeignRequestError, StatusPair(grpc.StatusCode.PERMISSION_DENIED, 403)),
    (UnknownTopicError, StatusPair(grpc.StatusCode.NOT_FOUND, 404)),
    (UnknownMessageError, StatusPair(grpc.StatusCode.NOT_FOUND, 404)),
    (InvalidPositionError, StatusPair(grpc.StatusCode.OUT_OF_RANGE, 416)),
    (InvalidSubjectError, StatusPair(grpc.StatusCode.INVALID_ARGUMENT, 400)),
    (InvalidTopicNameError, StatusPair(grpc.StatusCode.INVALID_ARGUMENT, 400)),
    (BatchTooLargeError, StatusPair(grpc.StatusCode.INVALID_ARGUMENT, 413)),
    (PartitionFullError, StatusPair(grpc.StatusCode.RESOURCE_EXHAUSTED, 507)),
    (WriteQueueFullError, StatusPair(grpc.StatusCode.RESOURCE_EXHAUSTED, 503)),
    (OutOfSpaceError, StatusPair(grpc.StatusCode.RESOURCE_EXHAUSTED, 507)),
    (SlowBodyError, StatusPair(grpc.StatusCode.DEADLINE_EXCEEDED, 408)),
    (LimitReachedError, StatusPair(grpc.StatusCode.RESOURCE_EXHAUSTED, 507)),
    (InvalidRequestError, StatusPair(grpc.StatusCode.INVALID_ARGUMENT, 400)),
    (PayloadCorruptError, StatusPair(grpc.StatusCode.DATA_LOSS, 422)),
    (CorruptionError, StatusPair(grpc.StatusCode.DATA_LOSS, 500)),
    (PartitionDamagedError, StatusPair(grpc.StatusCode.DATA_LOSS, 500)),
    (QuotaExceededError, StatusPair(grpc.StatusCode.RESOURCE_EXHAUSTED, 429)),
    (UnavailableError, UNAVAILABLE),
    (FencedError, UNAVAILABLE),
    (ClosedError, UNAVAILABLE),
)


def statuses_of(error: PenstockError) -> StatusPair:
    """The statuses of an error."""
    return next((statuses for kind, statuses in _STATUSES if isinstance(error, kind)), INTERNAL)
