"""Why a caller is turned away."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError


class NotSignedInError(InvalidRequestError):
    """The node asks who its clients are, and this one has not said it, or not truly."""

    code = "not_signed_in"


class NotAllowedError(InvalidRequestError):
    """No access rule allows what was asked for."""

    code = "not_allowed"
