"""Errors of queries: each says what happened and what to do."""

from __future__ import annotations

from penstock.core.errors import ConfigError, CorruptionError, PenstockError


class OptionError(ConfigError):
    """An option is unknown, malformed or contradicts another."""

    code = "spark_option"


class DataLossError(PenstockError):
    """Records were deleted before the query read them."""

    code = "data_loss"


class CheckpointError(ConfigError):
    """The checkpoint belongs to another query or topic."""

    code = "spark_checkpoint"


class RowError(PenstockError):
    """A row cannot be written."""

    code = "spark_row"


class AccessDeniedError(PenstockError):
    """The user lacks a right on a topic."""

    code = "spark_access_denied"


class FencedTaskError(PenstockError):
    """Another attempt of the same task has fenced this one; its rows are not visible."""

    code = "fenced_task"


class JavaMissingError(ConfigError):
    """No suitable Java was found for Spark."""

    code = "java_missing"


class MalformedValueError(CorruptionError):
    """A value does not match valueFormat."""

    code = "malformed_value"
