"""What can go wrong with streams, beyond what topics have."""

from __future__ import annotations

from penstock.core.errors import CorruptionError, InvalidRequestError


class InvalidSubjectError(InvalidRequestError):
    """A name that subjects cannot have, or a topic that cannot be one."""

    code = "invalid_subject"


class UnknownMessageError(InvalidRequestError):
    """There is no message of this sequence, or no payload of this name: it never was, or its time is over."""

    code = "unknown_message"


class InvalidHeadersError(InvalidRequestError):
    """Headers that a message cannot have."""

    code = "invalid_headers"


class InvalidPositionError(InvalidRequestError):
    """A position that no message has reached yet; a consumer there would miss messages."""

    code = "invalid_position"


class PayloadCorruptError(CorruptionError):
    """What was stored or sent of a payload does not match its checksum."""

    code = "payload_corrupt"
