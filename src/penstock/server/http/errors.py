"""Errors as responses: the HTTP status of each kind of error, and the one JSON form that all of them have."""

from __future__ import annotations

import http
from typing import Final

import msgspec
from aiohttp import web

from penstock.broker import (
    TooManyAttemptsError,
    TooManyTokensError,
    TopicExistsError,
    UnknownTokenError,
    UnknownTopicError,
    UnknownUserError,
)
from penstock.broker.groups import NonEmptyGroupError, SubscribedTopicError, UnknownGroupError, UnknownMemberError
from penstock.broker.namespace import NoSuchNodeError
from penstock.broker.streams import UnknownMessageError
from penstock.core.errors import (
    ClosedError,
    FencedError,
    InvalidRequestError,
    OutOfSpaceError,
    PenstockError,
    UnavailableError,
)
from penstock.gateway.basic_sign_in import NotSignedInError
from penstock.gateway.http_bodies import BodyTooLargeError, SlowBodyError
from penstock.gateway.http_guard import ForeignRequestError, WrongContentTypeError
from penstock.queue import BatchTooLargeError, UnknownPartitionError
from penstock.server.pipelines import NoDriverError, UnknownDeploymentError

REALM: Final = 'Basic realm="Penstock", charset="UTF-8"'


class MalformedRequestError(InvalidRequestError):
    """The request does not match the OpenAPI document: a parameter or field is missing, unknown or of the wrong type."""

    code = "malformed_request"


class NotAllowedError(InvalidRequestError):
    """No access rule allows the operation."""

    code = "not_allowed"


class NotFoundError(InvalidRequestError):
    """The named object does not exist."""

    code = "not_found"


class NotSupportedHereError(InvalidRequestError):
    """The feature is turned off in this node."""

    code = "not_supported_here"


# An error that is not listed has the status of its nearest base class.
STATUSES: Final[dict[type[PenstockError], int]] = {
    MalformedRequestError: 400,
    NotSignedInError: 401,
    TooManyAttemptsError: 429,
    NotAllowedError: 403,
    ForeignRequestError: 403,
    NotFoundError: 404,
    UnknownTopicError: 404,
    UnknownPartitionError: 404,
    UnknownUserError: 404,
    UnknownTokenError: 404,
    TooManyTokensError: 409,
    UnknownGroupError: 404,
    UnknownMemberError: 404,
    UnknownMessageError: 404,
    NoSuchNodeError: 404,
    TopicExistsError: 409,
    NonEmptyGroupError: 409,
    SubscribedTopicError: 409,
    NotSupportedHereError: 409,
    NoDriverError: 409,
    UnknownDeploymentError: 404,
    SlowBodyError: 408,
    BodyTooLargeError: 413,
    BatchTooLargeError: 413,
    WrongContentTypeError: 415,
    InvalidRequestError: 422,
    UnavailableError: 503,
    OutOfSpaceError: 503,
    FencedError: 503,
    ClosedError: 503,
}


class ErrorText(msgspec.Struct, frozen=True):
    """An error: a code for programs, and a message that says what to do."""

    code: str
    message: str


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: ErrorText


def status_of(error: PenstockError) -> int:
    """The HTTP status of an error."""
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)


def error_response(status: int, code: str, message: str) -> web.Response:
    """An error response."""
    body = msgspec.json.encode(ErrorAnswer(ErrorText(code.upper(), _speakable(message))))
    answer = web.Response(body=body, status=status, content_type="application/json")
    if status == http.HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = REALM
    return answer


def error_response_of(error: PenstockError) -> web.Response:
    """The error response of an exception."""
    return error_response(status_of(error), error.code, str(error))


def _speakable(message: str) -> str:
    """Make a message printable: it may quote client data that is not text."""
    return message.encode(errors="replace").decode()
