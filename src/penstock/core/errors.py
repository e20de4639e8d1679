"""Every error that leaves a layer of Penstock: one root, a few kinds, each telling the caller what to do.

A kind is a promise about the next step, not about the cause: retry it, fix the call, mend the data, close up. The cause is in
the message, with the values that matter, and in `code`, which is stable and meant for programs.
"""

from __future__ import annotations

from typing import ClassVar, Final

MESSAGE_CHARACTERS_MAX: Final = 2000
MESSAGE_BEGIN: Final = 1200
MESSAGE_END: Final = 600


class PenstockError(Exception):
    """Root of all errors raised on purpose. `code` is stable; `retriable` says whether the same call may succeed later."""

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False

    def __str__(self) -> str:
        """The message, shortened in its middle if it repeats more of what was sent than a reader wants back."""
        text = super().__str__()
        if len(text) <= MESSAGE_CHARACTERS_MAX:
            return text
        return f"{text[:MESSAGE_BEGIN]} … ({len(text)} characters) … {text[-MESSAGE_END:]}"


class InvalidRequestError(PenstockError):
    """The call itself is wrong; repeating it unchanged gives the same answer."""

    code = "invalid_request"


class UnavailableError(PenstockError):
    """The service cannot answer now (starting, out of quorum, overloaded); the same call may succeed later."""

    code = "unavailable"
    retriable = True


class OutOfSpaceError(PenstockError):
    """There is no room to write; reads and deletions still work, and writes will once space is free."""

    code = "out_of_space"
    retriable = True


class FencedError(PenstockError):
    """A newer owner has taken over; the caller must stop."""

    code = "fenced"


class CorruptionError(PenstockError):
    """Stored bytes do not match their checksum or format; they are never returned as data."""

    code = "corruption"


class ConfigError(PenstockError):
    """A configuration or data directory does not fit what it is asked to be; the message says what to change."""

    code = "config"


class DataMissingError(ConfigError):
    """Files that held acknowledged data are missing or cut, and there is no other copy; they may be restored."""

    code = "data_missing"


class ClosedError(PenstockError):
    """The object was closed, by its owner or by a failure it does not outlive."""

    code = "closed"
