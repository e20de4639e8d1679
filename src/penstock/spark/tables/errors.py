"""What a table can answer: each error says what happened and what to do about it."""

from __future__ import annotations

from penstock.core.errors import ConfigError, CorruptionError, UnavailableError


class TableSchemaError(ConfigError):
    """A table's columns or partitions are not those that the pipeline writes."""

    code = "table_schema"


class TableOptionError(ConfigError):
    """A table cannot be had as it is described."""

    code = "table_option"


class TableLogError(CorruptionError):
    """An entry of a table's log is not what was written."""

    code = "table_log"


class TableConflictError(UnavailableError):
    """Somebody else has changed the table at the same moment; what was to be committed is not in it."""

    code = "table_conflict"


class AuditDifferenceError(CorruptionError):
    """A topic and a table do not hold the same records; the report says which."""

    code = "audit_difference"
