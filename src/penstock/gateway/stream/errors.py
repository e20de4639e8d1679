"""Why a caller is turned away, beyond not having said who it is."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError


class NotAllowedError(InvalidRequestError):
    """No access rule allows what was asked for."""

    code = "not_allowed"
