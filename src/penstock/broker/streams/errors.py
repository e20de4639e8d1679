"""Errors of streams."""

from __future__ import annotations

from penstock.core.errors import CorruptionError, InvalidRequestError


class InvalidSubjectError(InvalidRequestError):
    """The subject name is invalid, or the topic cannot be a subject."""

    code = "invalid_subject"


class UnknownMessageError(InvalidRequestError):
    """The message or payload does not exist or has expired."""

    code = "unknown_message"


class InvalidHeadersError(InvalidRequestError):
    """The headers are not allowed."""

    code = "invalid_headers"


class InvalidPositionError(InvalidRequestError):
    """The position is beyond the last message; a consumer there would miss messages."""

    code = "invalid_position"


class PayloadCorruptError(CorruptionError):
    """A payload does not match its checksum."""

    code = "payload_corrupt"
