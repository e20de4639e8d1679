"""Targets of a streaming query: a topic or a table. Each commit holds a batch with the id of its query and its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.kafka.client import TopicPartition
from penstock.spark.pipelines.dead_letters import send_dead
from penstock.spark.pipelines.job import BatchResult
from penstock.spark.pipelines.row_sending import dead_letter_counts
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_rows import topic_rows
from penstock.spark.pipelines.topic_source import positions_from_json, positions_to_json
from penstock.spark.pipelines.topic_target import TopicTarget
from penstock.spark.pipelines.views import View
from penstock.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.tables.merge import TableMerge


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The last commit of a target: the end offsets, the query, and the number of the batch. `generation` counts resets of the
    state."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    batch: int = -1
    generation: int = 0

    def has(self, query: str, batch: int) -> bool:
        """Whether a batch is in the target already."""
        return self.query == query and batch <= self.batch


class StreamBatch(NamedTuple):
    """One batch of a query: its rows, the ranges it has read and, once the rows are computed, the ranges with bad values."""

    rows: DataFrame
    ranges: list[OffsetRange]
    find_bad: Callable[[], set[TopicPartition]]
    after: CommittedBatch

    def bad_ranges(self) -> list[OffsetRange]:
        """The ranges to search for values that could not be decoded."""
        bad = self.find_bad()
        return [offset_range for offset_range in self.ranges if offset_range.topic_partition in bad]


class StreamTarget(Protocol):
    """The target of a streaming query."""

    def open(self, result: DataFrame, *, has_dead_letters: bool) -> CommittedBatch:
        """Prepare the target for rows of this schema, fence other runs, and return the last committed batch."""
        ...

    def begin(self, ids: Mapping[str, str]) -> None:
        """Called with the topics of the source, before the first batch."""
        ...

    def commit(self, spark: SparkSession, batch: StreamBatch) -> BatchResult:
        """Write a batch and its progress atomically."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def stream_target(spec: PipelineSpec, views: list[View], result_field: str) -> StreamTarget:
    """The target of a pipeline."""
    if spec.target.topic is not None:
        return TopicStreamTarget(spec, views, result_field)
    return TableStreamTarget(spec, views)


class TopicStreamTarget:
    """Commits rows, dead letters and progress to the broker atomically."""

    def __init__(self, spec: PipelineSpec, views: list[View], result_field: str) -> None:
        self._spec = spec
        self._views = views
        self._field = result_field
        self._target = TopicTarget(spec)

    def open(self, result: DataFrame, *, has_dead_letters: bool) -> CommittedBatch:
        """See `StreamTarget`."""
        topic_rows(self._spec, result, self._field)
        record = self._target.open(has_dead_letters=has_dead_letters)
        return CommittedBatch(
            positions_from_json(record.get("offsets", {})),
            record.get("ids", {}),
            record.get("query"),
            int(record.get("query_batch", -1)),
            int(record.get("generation", 0)),
        )

    def begin(self, ids: Mapping[str, str]) -> None:
        """See `StreamTarget`; nothing to do, because dead letters are in the same commit."""

    def commit(self, spark: SparkSession, batch: StreamBatch) -> BatchResult:
        """See `StreamTarget`."""
        reports = self._target.send(topic_rows(self._spec, batch.rows, self._field))
        dead = batch.bad_ranges()
        if dead:
            reports += send_dead(spark, self._spec, self._views, dead, self._target.dead_sending())
        after = batch.after
        changes: dict[str, Any] = {
            "offsets": positions_to_json(after.offsets),
            "ids": dict(after.ids),
            "query": after.query,
            "query_batch": after.batch,
            "generation": after.generation,
        }
        self._target.commit(reports, changes)
        return BatchResult(_read(batch), sum(report.rows for report in reports), **dead_letter_counts(reports))

    def close(self) -> None:
        """See `StreamTarget`."""
        self._target.close()


class TableStreamTarget:
    """Commits files and progress to the table atomically; dead letters are committed before, and recognised when repeated."""

    def __init__(self, spec: PipelineSpec, views: list[View]) -> None:
        from penstock.spark.tables.dead_letters import DeadLetters
        from penstock.spark.tables.table_target import TableTarget

        self._spec = spec
        self._views = views
        self._target = TableTarget(spec)
        self._dead = DeadLetters(spec, self._target.fence)
        self._merge: TableMerge | None = None
        self._record: Mapping[str, Any] | None = None  # as it was found; None where nothing is decoded

    def open(self, result: DataFrame, *, has_dead_letters: bool) -> CommittedBatch:
        """See `StreamTarget`."""
        from penstock.spark.tables.transformed import frame_schema

        schema = frame_schema(result)
        table = self._spec.target.table
        assert table is not None
        if table.merge is not None:
            from penstock.spark.tables.merge import TableMerge

            self._merge = TableMerge(self._spec, table.merge, schema)
            schema = self._merge.schema
        record = self._target.open(schema)
        self._record = record if has_dead_letters else None
        progress = self._target.progress
        if progress is None:
            return CommittedBatch()
        query, batch, generation = progress.query.split("/") if progress.query else ("", "-1", "0")
        return CommittedBatch(progress.offsets, progress.topic_ids, query or None, int(batch), int(generation))

    def begin(self, ids: Mapping[str, str]) -> None:
        """See `StreamTarget`. Uses the topic ids of the source: the table does not know topics without rows, whose dead letters
        may be committed already."""
        if self._record is not None:
            self._dead.start(self._target.client, ids, self._record)

    def commit(self, spark: SparkSession, batch: StreamBatch) -> BatchResult:
        """See `StreamTarget`."""
        from penstock.spark.tables.dead_letters import first_dead
        from penstock.spark.tables.export_task import ExportTask
        from penstock.spark.tables.record_columns import topic_reads
        from penstock.spark.tables.table_target import FileChange
        from penstock.spark.tables.tasks import run_tasks
        from penstock.spark.tables.transformed import write_frame

        name = f"{self._target.next_batch:08d}"
        if self._merge is not None:
            files, rows = self._merge.merge_frame(spark, self._target.table, batch.rows, name)
        else:
            written = write_frame(batch.rows, self._target.table.writer(), name)
            files, rows = FileChange(written), sum(file.rows for file in written)
        letters, first = 0, ""
        after = batch.after
        dead = batch.bad_ranges()
        if dead:
            table = self._spec.target.table
            assert table is not None
            reads = topic_reads(self._spec, self._spec.source.topics or ("",), table.metadata)
            done = run_tasks(spark, ExportTask(reads, None, self._dead.task(), name), dead)
            first = first_dead(report.dead for report in done)
            letters = self._dead.commit([report.dead for report in done], after.offsets, after.ids)
        query = f"{after.query}/{after.batch}/{after.generation}"
        self._target.commit(files, after.offsets, after.ids, query=query)
        self._target.maintain(spark)
        return BatchResult(_read(batch), rows, letters, first_dead=first)

    def close(self) -> None:
        """See `StreamTarget`."""
        self._target.close()


def _read(batch: StreamBatch) -> int:
    return sum(offset_range.size for offset_range in batch.ranges)
