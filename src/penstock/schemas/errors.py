"""Why a schema is refused."""

from __future__ import annotations

from penstock.core.errors import CorruptionError, InvalidRequestError


class InvalidSchemaError(InvalidRequestError):
    """The text is not a valid schema of its kind, or it is larger or deeper than a schema may be."""

    code = "invalid_schema"


class MissingLibraryError(InvalidRequestError):
    """The library that reads schemas of this kind is not installed."""

    code = "schema_kind_not_installed"


class UnreadableValueError(CorruptionError):
    """A value does not match its schema."""

    code = "unreadable_value"
