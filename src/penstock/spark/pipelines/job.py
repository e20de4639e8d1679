"""The interface between a kind of pipeline and its runner: a job has a position and advances batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One batch, committed: what it took and what it made."""

    rows_read: int
    rows_written: int
    dead_letters: int = 0
    bytes_read: int = 0


class Job(Protocol):
    """One kind of pipeline at work. The runner calls `start` once, then `step` as the trigger has it, then `close`; a step that
    raises changes nothing that is seen, and is tried again after `start` on a new job."""

    def plan(self) -> list[str]:
        """What it will do, in lines for a person; asked before anything runs."""
        ...

    def start(self, spark: SparkSession) -> None:
        """Read the progress stored in the target, and fence other runs of this pipeline."""
        ...

    def step(self) -> BatchResult | None:
        """Take one batch from the source to the target and commit it; None if there is nothing to take."""
        ...

    def lag_rows(self) -> int:
        """How many rows the source holds that are not committed to the target."""
        ...

    def close(self) -> None:
        """Close connections; what was committed stays."""
        ...


@runtime_checkable
class CheckableJob(Job, Protocol):
    """A job that can tell before anything runs whether it would: schemas, queries, the columns of its target."""

    def check(self, spark: SparkSession) -> None:
        """SpecError, with the line of the field, or another PenstockError, if it would not run; changes nothing."""
        ...
