"""Errors of tables: each says what happened and what to do."""

from __future__ import annotations

from penstock.core.errors import ConfigError, CorruptionError, UnavailableError


class TableSchemaError(ConfigError):
    """The table's columns or partitions differ from those that the pipeline writes."""

    code = "table_schema"


class TableOptionError(ConfigError):
    """The table options are invalid."""

    code = "table_option"


class TableLogError(CorruptionError):
    """An entry of a table's log is damaged."""

    code = "table_log"


class TableConflictError(UnavailableError):
    """A concurrent change of the table won; this commit is not in it."""

    code = "table_conflict"


class AuditDifferenceError(CorruptionError):
    """A topic and a table do not hold the same records; the report says which."""

    code = "audit_difference"
