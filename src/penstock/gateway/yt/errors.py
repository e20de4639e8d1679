"""Errors in YT's form: a code, a message, attributes and inner errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.broker import (
    InvalidConfigError,
    PartitionDamagedError,
    PartitionUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.broker.buffered_transactions import NoSuchTransactionError, UnsettledPositionsError
from penstock.broker.namespace import NodeExistsError, NoSuchNodeError, WrongNodeError
from penstock.core.errors import InvalidRequestError, OutOfSpaceError, PenstockError, UnavailableError
from penstock.queue import BatchTooLargeError, OffsetOutOfRangeError

GENERIC = 1
INVALID_FORMAT = 110
SCHEMA_VIOLATION = 307
NO_SUCH_NODE = 500
NODE_EXISTS = 501
AUTHENTICATION = 900
NOT_AUTHORIZED = 901
LOCK_CONFLICT = 1700
NO_SUCH_TABLET = 1701
NOT_MOUNTED = 1702
OFFSET_CONFLICT = 3100
INVALID_EPOCH = 3101
ZOMBIE_EPOCH = 3102
INVALID_SEQUENCE_NUMBERS = 3103
NO_SUCH_TRANSACTION = 11000
UNAVAILABLE = 105
REQUEST_TOO_LARGE = 1
HEADER_SIZE_MAX = 8000


class YtError(InvalidRequestError):
    """An error that is sent to the client unchanged."""

    code = "yt"

    def __init__(
        self,
        number: int,
        message: str,
        attributes: Mapping[str, Any] | None = None,
        inner: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.number = number
        self.attributes = dict(attributes or {})
        self.inner = list(inner)

    def to_yson(self) -> dict[str, Any]:
        """The error as it is sent."""
        return {"code": self.number, "message": str(self), "attributes": self.attributes, "inner_errors": self.inner}


_NUMBERS: tuple[tuple[type[PenstockError], int], ...] = (
    (NoSuchNodeError, NO_SUCH_NODE),
    (NodeExistsError, NODE_EXISTS),
    (TopicExistsError, NODE_EXISTS),
    (WrongNodeError, GENERIC),
    (NoSuchTransactionError, NO_SUCH_TRANSACTION),
    (UnsettledPositionsError, LOCK_CONFLICT),
    (UnknownTopicError, NO_SUCH_TABLET),
    (PartitionDamagedError, GENERIC),
    (PartitionUnavailableError, NOT_MOUNTED),
    (OffsetOutOfRangeError, GENERIC),
    (BatchTooLargeError, GENERIC),
    (InvalidConfigError, GENERIC),
    (OutOfSpaceError, GENERIC),
    # Clients back off and retry when a service is unavailable.
    (UnavailableError, UNAVAILABLE),
)


def as_yt_error(error: PenstockError) -> YtError:
    """Convert an error to one that YT's clients know."""
    if isinstance(error, YtError):
        return error
    number = next((number for kind, number in _NUMBERS if isinstance(error, kind)), GENERIC)
    return YtError(number, str(error), {"penstock_code": error.code})


def error_headers(error: YtError) -> dict[str, str]:
    """The headers in which clients look for an error; a message too long for them is cut."""
    text = json.dumps(error.to_yson())
    if len(text) > HEADER_SIZE_MAX:
        text = json.dumps(
            {"code": error.number, "message": str(error)[: HEADER_SIZE_MAX // 8], "attributes": {}, "inner_errors": []}
        )
    return {
        "X-YT-Error": text,
        "X-YT-Response-Code": str(error.number),
        "X-YT-Response-Message": json.dumps(str(error)[: HEADER_SIZE_MAX // 8]),
    }
