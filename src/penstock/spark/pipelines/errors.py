"""What can stop a pipeline: each says where, what, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.errors import ConfigError, FencedError, InvalidRequestError, PenstockError


class SpecFault(NamedTuple):
    """One thing that is wrong in a file: where it stands, which field it is, and what is wrong with it."""

    file: str
    line: int
    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.what}" if self.field else f"{self.file}:{self.line}: {self.what}"


class SpecError(ConfigError):
    """A pipeline's file is not as it must be; the message has a line for each thing that is wrong."""

    code = "pipeline_file"

    def __init__(self, faults: Sequence[SpecFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


class PipelineFencedError(FencedError):
    """Another copy of the same pipeline has taken over; this one stops and is not started again."""

    code = "pipeline_fenced"


class AlreadyRunningError(InvalidRequestError):
    """Another copy of the same pipeline is alive."""

    code = "pipeline_running"


class LostStateError(ConfigError):
    """The checkpoint of a pipeline with state is gone, or is another's, while its target holds what it made."""

    code = "pipeline_state_lost"


class ChangedInputError(ConfigError):
    """What a pipeline reads is not what it was when the pipeline began."""

    code = "pipeline_input_changed"


class BadRowError(PenstockError):
    """A row cannot be decoded, and the pipeline is to stop at such rows."""

    code = "pipeline_bad_row"


class StreamFailedError(PenstockError):
    """A streaming query of Spark has ended by an error."""

    code = "pipeline_stream"
    retriable = True


class SparkLostError(PenstockError):
    """The Spark of a pipeline is gone; only a new process has a new one."""

    code = "pipeline_spark_lost"


# What does not go away by trying again: the pipeline stops at once.
FINAL = (SpecError, FencedError, AlreadyRunningError, LostStateError, ChangedInputError, BadRowError, SparkLostError, ConfigError)
