"""What a query on a topic can be told: each says what happened and what to do about it."""

from __future__ import annotations

from penstock.core.errors import ConfigError, CorruptionError, PenstockError


class OptionError(ConfigError):
    """An option of the source is unknown, malformed or does not fit the others."""

    code = "spark_option"


class DataLossError(PenstockError):
    """Records that the query has still to read are gone."""

    code = "data_loss"


class CheckpointError(ConfigError):
    """A checkpoint does not belong to what the query reads."""

    code = "spark_checkpoint"


class RowError(PenstockError):
    """A row cannot be written as it is."""

    code = "spark_row"


class FencedTaskError(PenstockError):
    """Another attempt at the same work has taken the place of this one; what this one wrote is not seen."""

    code = "fenced_task"


class JavaMissingError(ConfigError):
    """Spark runs on Java, and there is none that it can use."""

    code = "java_missing"


class MalformedValueError(CorruptionError):
    """A value is not what valueFormat says."""

    code = "malformed_value"
