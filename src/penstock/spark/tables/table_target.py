"""A table as the target of a pipeline: the table's last commit holds the progress, and the pipeline's record in the broker holds
the current run."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from penstock.kafka.client import BlockingClient, TopicPartition
from penstock.spark.pipelines.fence import Fence, target_options
from penstock.spark.pipelines.spec import PipelineSpec, TableSpec
from penstock.spark.pipelines.topic_making import keep_until_read
from penstock.spark.tables.compaction import compact_small_files
from penstock.spark.tables.errors import TableConflictError
from penstock.spark.tables.progress import Progress, run_number
from penstock.spark.tables.table import Table, TableFencedError, table_of
from penstock.spark.tables.task_writer import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VACUUM_EVERY_S: Final = 3600.0

_log = logging.getLogger(__name__)


class FileChange(NamedTuple):
    """The files that a commit adds and removes, whether the rows stay the same, and the files that a merge has looked at."""

    added: Sequence[DataFile]
    removed: Sequence[DataFile] = ()
    rewrites: bool = False
    merged: Collection[str] | None = None


def commit_fenced(table: Table, fence: Fence, files: FileChange, progress: Progress, expected: Progress | None) -> None:
    """Commit if the pipeline's record names this run. Raises FencedError if it names another, TableConflictError if the table is
    ahead nevertheless."""
    fence.check()
    refused: TableFencedError | None = None
    try:
        table.commit(files.added, progress, expected, files.removed, rewrites=files.rewrites, merged=files.merged)
    except TableFencedError as error:
        refused = error
    if refused is None:
        return
    fence.check()
    if not fence.content:
        raise refused
    # The record is ours: this is the last commit of the run that we fenced, which was in flight when we started.
    raise TableConflictError(f"{table} was written by the run before this one as it ended; looking again")


class TableTarget:
    """The table and the record, for one run. Of several tables each has a target of its own, and all share the record."""

    def __init__(self, spec: PipelineSpec, table: TableSpec | None = None, fence: Fence | None = None) -> None:
        table = table or spec.target.table
        assert table is not None, "the target is a table"
        self.spec = spec
        self.table: Table = table_of(spec, table)
        self._is_shared = fence is not None
        self.client = BlockingClient(target_options(spec).client) if fence is None else fence.client
        self.fence = Fence(spec, self.client) if fence is None else fence
        self.progress: Progress | None = None
        self._compacted_at = self._vacuumed_at = float("-inf")

    @property
    def next_batch(self) -> int:
        """The number of the next commit."""
        return 1 if self.progress is None else self.progress.batch + 1

    def open(self, schema: pa.Schema) -> Mapping[str, Any]:
        """Prepare the table, fence other runs, and read the progress. Returns the previous record."""
        self.table.prepare(schema)
        before = self.fence.take()
        self.table.refresh()
        self.progress = self.table.progress()
        return before

    def join(self, schema: pa.Schema) -> None:
        """Prepare the table and read the progress, with the record taken before."""
        self.table.prepare(schema)
        self.table.refresh()
        self.progress = self.table.progress()

    def commit(
        self,
        files: FileChange,
        offsets: Mapping[TopicPartition, int],
        ids: Mapping[str, str],
        *,
        query: str = "",
    ) -> None:
        """Commit files together with the end offsets."""
        progress = Progress(run_number(self.fence.run), self.next_batch, dict(offsets), dict(ids), query)
        commit_fenced(self.table, self.fence, files, progress, self.progress)
        self.progress = progress

    def follow(self, topics: Sequence[str]) -> None:
        """Register the pipeline as a vital consumer, if it is one."""
        if self.spec.vital:
            keep_until_read(self.client, topics, self.spec.consumer)

    def note_positions(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the consumer's offsets to the broker."""
        self.client.commit(self.spec.consumer, offsets)

    def maintain(self, spark: SparkSession, *, compacts: bool = True) -> None:
        """Compact small files and vacuum, when due."""
        spec, now = self.table.spec, time.monotonic()
        if self.progress is None:
            return
        if compacts and spec.compact_every_s is not None and now - self._compacted_at >= spec.compact_every_s:
            self._compacted_at = now
            rewritten, old = compact_small_files(spark, self.table)
            if old:
                at = self.progress
                self.commit(FileChange(rewritten, old, rewrites=True), at.offsets, at.topic_ids, query=at.query)
                _log.info("%s: %d small files are now %d", self.table, len(old), len(rewritten))
        if spec.vacuum_after_s is not None and now - self._vacuumed_at >= VACUUM_EVERY_S:
            self._vacuumed_at = now
            count = self.table.vacuum(spec.vacuum_after_s)
            _log.info("%s: %d old files are removed", self.table, count)

    def close(self) -> None:
        """Close the connections."""
        if not self._is_shared:
            self.client.close()
        self.table.close()
