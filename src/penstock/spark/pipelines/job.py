"""The interface between a kind of pipeline and its runner: a job has a position and advances batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A committed batch: rows read and written, dead letters with the first one, rows that Spark dropped because they came after
    the watermark, and rows whose value has none of the fields of the schema."""

    rows_read: int
    rows_written: int
    dead_letters: int = 0
    bytes_read: int = 0
    late_rows: int = 0
    empty_rows: int = 0
    first_dead: str = ""

    def __add__(self, other: BatchResult) -> BatchResult:
        return BatchResult(
            self.rows_read + other.rows_read,
            self.rows_written + other.rows_written,
            self.dead_letters + other.dead_letters,
            self.bytes_read + other.bytes_read,
            self.late_rows + other.late_rows,
            self.empty_rows + other.empty_rows,
            self.first_dead or other.first_dead,
        )


class Job(Protocol):
    """One run of a pipeline. The runner calls `start` once, then `step` as the trigger says, then `close`. A step that raises has
    no visible effect, and is retried after `start` of a new job."""

    def plan(self) -> list[str]:
        """A description of what it will do, for people; called before anything runs."""
        ...

    def start(self, spark: SparkSession) -> None:
        """Read the progress stored in the target, and fence other runs of this pipeline."""
        ...

    def step(self) -> BatchResult | None:
        """Process and commit one batch. Returns None if there is nothing to process."""
        ...

    def lag_rows(self) -> int:
        """The number of rows in the source that are not committed to the target."""
        ...

    def close(self) -> None:
        """Close connections; what was committed stays."""
        ...


@runtime_checkable
class CheckableJob(Job, Protocol):
    """A job that can be validated before it runs: schemas, queries, the columns of its target."""

    def check(self, spark: SparkSession) -> None:
        """Raise SpecError with the line of the field, or another PenstockError, if it cannot run. Changes nothing."""
        ...
