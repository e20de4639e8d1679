"""Errors of the broker as statuses of gRPC and of HTTP."""

from __future__ import annotations

from typing import Final, NamedTuple

import grpc

from penstock.broker import (
    InvalidTopicNameError,
    LimitReachedError,
    PartitionDamagedError,
    QuotaExceededError,
    TooManyAttemptsError,
    UnknownTopicError,
)
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
from penstock.gateway.stream.errors import NotAllowedError
from penstock.queue import BatchTooLargeError, PartitionFullError, WriteQueueFullError


class Answer(NamedTuple):
    """The status of an error in both protocols."""

    grpc: grpc.StatusCode
    http: int


UNAVAILABLE: Final = Answer(grpc.StatusCode.UNAVAILABLE, 503)
INTERNAL: Final = Answer(grpc.StatusCode.INTERNAL, 500)

# The first that fits, so the narrower come first.
_ANSWERS: Final[tuple[tuple[type[PenstockError], Answer], ...]] = (
    (NotSignedInError, Answer(grpc.StatusCode.UNAUTHENTICATED, 401)),
    (TooManyAttemptsError, Answer(grpc.StatusCode.RESOURCE_EXHAUSTED, 429)),
    (NotAllowedError, Answer(grpc.StatusCode.PERMISSION_DENIED, 403)),
    (ForeignRequestError, Answer(grpc.StatusCode.PERMISSION_DENIED, 403)),
    (UnknownTopicError, Answer(grpc.StatusCode.NOT_FOUND, 404)),
    (UnknownMessageError, Answer(grpc.StatusCode.NOT_FOUND, 404)),
    (InvalidPositionError, Answer(grpc.StatusCode.OUT_OF_RANGE, 416)),
    (InvalidSubjectError, Answer(grpc.StatusCode.INVALID_ARGUMENT, 400)),
    (InvalidTopicNameError, Answer(grpc.StatusCode.INVALID_ARGUMENT, 400)),
    (BatchTooLargeError, Answer(grpc.StatusCode.INVALID_ARGUMENT, 413)),
    (PartitionFullError, Answer(grpc.StatusCode.RESOURCE_EXHAUSTED, 507)),
    (WriteQueueFullError, Answer(grpc.StatusCode.RESOURCE_EXHAUSTED, 503)),
    (OutOfSpaceError, Answer(grpc.StatusCode.RESOURCE_EXHAUSTED, 507)),
    (SlowBodyError, Answer(grpc.StatusCode.DEADLINE_EXCEEDED, 408)),
    (LimitReachedError, Answer(grpc.StatusCode.RESOURCE_EXHAUSTED, 507)),
    (InvalidRequestError, Answer(grpc.StatusCode.INVALID_ARGUMENT, 400)),
    (PayloadCorruptError, Answer(grpc.StatusCode.DATA_LOSS, 422)),
    (CorruptionError, Answer(grpc.StatusCode.DATA_LOSS, 500)),
    (PartitionDamagedError, Answer(grpc.StatusCode.DATA_LOSS, 500)),
    (QuotaExceededError, Answer(grpc.StatusCode.RESOURCE_EXHAUSTED, 429)),
    (UnavailableError, UNAVAILABLE),
    (FencedError, UNAVAILABLE),
    (ClosedError, UNAVAILABLE),
)


def answer_to(error: PenstockError) -> Answer:
    """The statuses of an error."""
    return next((answer for kind, answer in _ANSWERS if isinstance(error, kind)), INTERNAL)
