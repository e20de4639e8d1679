"""Errors that stop a pipeline: each says where, what happened, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.errors import ConfigError, FencedError, InvalidRequestError, PenstockError, UnavailableError


class SpecFault(NamedTuple):
    """One error in a file: its line, its field, and what is wrong."""

    file: str
    line: int
    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.what}" if self.field else f"{self.file}:{self.line}: {self.what}"


class SpecError(ConfigError):
    """A pipeline's file is invalid; the message has a line for each error."""

    code = "pipeline_file"

    def __init__(self, faults: Sequence[SpecFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


class PipelineFencedError(FencedError):
    """Another instance of the pipeline has taken over; this one stops and is not restarted."""

    code = "pipeline_fenced"


class AlreadyRunningError(InvalidRequestError):
    """Another instance of the pipeline is running."""

    code = "pipeline_running"


class LostStateError(ConfigError):
    """The checkpoint of a stateful pipeline is lost, or belongs to another query, while its target holds output."""

    code = "pipeline_state_lost"


class ChangedInputError(ConfigError):
    """The input of a pipeline has changed since it started: a recreated topic, a rewritten file."""

    code = "pipeline_input_changed"


class ChangedSubjectError(UnavailableError):
    """The subject of a schema registry has another schema than the columns were made of; the pipeline goes on with that one."""

    code = "pipeline_subject_changed"


class BadRowError(PenstockError):
    """A row cannot be decoded, and the pipeline is configured to stop at such rows."""

    code = "pipeline_bad_row"


class TooManyDeadLettersError(PenstockError):
    """More of the rows of a run are dead letters than the file allows."""

    code = "pipeline_dead_letters"


class StreamFailedError(PenstockError):
    """A streaming query of Spark has failed."""

    code = "pipeline_stream"
    retriable = True


class ExecutorError(ConfigError):
    """The executors lack what tasks of Penstock need."""

    code = "pipeline_executors"


class SparkLostError(PenstockError):
    """The connection to Spark is lost; only a new process can start another session."""

    code = "pipeline_spark_lost"


# Errors that a retry does not fix: the pipeline stops at once.
FINAL = (
    SpecError,
    FencedError,
    AlreadyRunningError,
    LostStateError,
    ChangedInputError,
    BadRowError,
    TooManyDeadLettersError,
    SparkLostError,
    ConfigError,
)
