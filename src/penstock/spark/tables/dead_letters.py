"""Writes records that could not be decoded to a topic or table of dead letters, as they were stored, with their origin and the
error. They are committed before their batch, together with their offsets: a batch that is repeated after a failure, even with
other bounds, adds only later ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kafka.client import BlockingClient, OpenTransaction, TopicPartition
from penstock.spark.malformed import DEAD_SCHEMA, describe_first
from penstock.spark.pipelines.dead_letters import letters
from penstock.spark.pipelines.errors import BadRowError
from penstock.spark.pipelines.fence import Fence, target_options
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_making import make_topic
from penstock.spark.pipelines.topic_source import positions_from_json, positions_to_json
from penstock.spark.tables.errors import TableOptionError
from penstock.spark.tables.progress import Progress, run_number
from penstock.spark.tables.table import Table, table_of
from penstock.spark.tables.table_target import FileChange, commit_fenced
from penstock.spark.tables.task_writer import DataFile, OpenFiles, TaskWriter
from penstock.spark.task_transaction import TaskTransaction, writing_client
from penstock.spark.write_options import WriteOptions

RECORD: Final = "dead"  # in the pipeline's record

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class DeadLetterReport:
    """The dead letters written by a task."""

    rows: int = 0
    first: str = ""
    transaction: OpenTransaction | None = None
    files: tuple[DataFile, ...] = ()


def first_dead(reports: Iterable[DeadLetterReport]) -> str:
    """The first dead letter of some tasks, for people."""
    return next((report.first for report in reports if report.rows), "")


class DeadLetterTarget(Protocol):
    """Where a task writes dead letters. It is pickled to tasks."""

    def begin(self, name: str, number: int) -> DeadLetterSink:
        """Open a sink for one task."""
        ...


class DeadLetterSink(Protocol):
    """Receives the dead letters of a task."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Add letters in DEAD_SCHEMA."""
        ...

    def finish(self) -> DeadLetterReport:
        """Complete the sink."""
        ...


@dataclass(frozen=True)
class StopAtDeadLetter:
    """Fails the pipeline at the first dead letter."""

    def begin(self, name: str, number: int) -> DeadLetterSink:
        return _DeadLetterCounter(lambda rows: None)


@dataclass
class _DeadLetterCounter:
    take: Any
    rows: int = 0
    first: str = ""

    def add(self, rows: pa.RecordBatch) -> None:
        if not self.rows:
            self.first = describe_first(rows)
        self.rows += rows.num_rows
        self.take(rows)

    def finish(self) -> DeadLetterReport:
        return DeadLetterReport(self.rows, self.first)


@dataclass(frozen=True)
class DeadLetterTopic:
    """Writes letters to a topic, in a transaction that the driver commits."""

    options: WriteOptions
    fence: tuple[str, str]
    """The pipeline's name, and how the ids of its transactions begin."""
    known: Offsets = field(default_factory=dict)

    def begin(self, name: str, number: int) -> DeadLetterSink:
        return _DeadLetterTopicSink(self, name, number)


class _DeadLetterTopicSink:
    def __init__(self, task: DeadLetterTopic, name: str, number: int) -> None:
        self._task = task
        options = task.options
        self._transaction = TaskTransaction(
            writing_client(options.client), options, f"{task.fence[1]}dead/{name}", first_partition=number
        )
        self._counted = _DeadLetterCounter(self._send)

    def add(self, rows: pa.RecordBatch) -> None:
        fresh = beyond(rows, self._task.known)
        if fresh.num_rows:
            self._counted.add(fresh)

    def finish(self) -> DeadLetterReport:
        return replace(self._counted.finish(), transaction=self._transaction.finish())

    def _send(self, rows: pa.RecordBatch) -> None:
        self._transaction.send(self._task.options.topic, letters(rows, self._task.fence[0]))


@dataclass(frozen=True)
class DeadLetterTable:
    """Writes letters to a table, in files that the driver commits."""

    writer: TaskWriter
    known: Offsets = field(default_factory=dict)

    def begin(self, name: str, number: int) -> DeadLetterSink:
        return _DeadLetterTableSink(self, self.writer.begin(f"dead-{name}"))


class _DeadLetterTableSink:
    def __init__(self, task: DeadLetterTable, files: OpenFiles) -> None:
        self._task = task
        self._files = files
        self._counted = _DeadLetterCounter(files.add)

    def add(self, rows: pa.RecordBatch) -> None:
        fresh = beyond(rows, self._task.known)
        if fresh.num_rows:
            self._counted.add(fresh)

    def finish(self) -> DeadLetterReport:
        return replace(self._counted.finish(), files=tuple(self._files.finish()))


class DeadLetters:
    """The driver's side: tracks the offsets of committed letters, and commits new ones."""

    def __init__(self, spec: PipelineSpec, fence: Fence) -> None:
        self._spec = spec
        self._fence = fence
        self._table: Table | None = None
        self._progress: Progress | None = None
        self._known: dict[TopicPartition, int] = {}
        self._form = format_digest(spec)

    def start(self, client: BlockingClient, ids: Mapping[str, str], record: Mapping[str, Any]) -> None:
        """Read the offsets of committed letters."""
        where = self._spec.dead_letters
        if where.table is not None:
            self._table = table_of(self._spec, where.table)
            self._table.prepare(DEAD_SCHEMA)
            self._table.refresh()
            self._progress = self._table.progress()
            if self._progress is not None and self._progress.query == self._form:
                self._take(self._progress.offsets, self._progress.topic_ids, ids)
        elif where.topic is not None:
            if not client.commits_together():
                raise TableOptionError(
                    f"dead letters go to topic {where.topic!r}, but the broker is not Penstock, and cannot commit them as one; "
                    "set dead_letters to a table, or to stop"
                )
            make_topic(client, where.topic)
            kept = record.get(RECORD, {})
            if kept.get("form") == self._form:
                self._take(positions_from_json(kept.get("offsets", {})), kept.get("ids", {}), ids)

    def task(self) -> DeadLetterTarget:
        """The dead letter target for tasks of the next batch."""
        where = self._spec.dead_letters
        if where.topic is not None:
            return DeadLetterTopic(
                target_options(self._spec, where.topic), (self._fence.name, self._fence.prefix), dict(self._known)
            )
        if self._table is not None:
            return DeadLetterTable(self._table.writer(), dict(self._known))
        return StopAtDeadLetter()

    def commit(self, done: Sequence[DeadLetterReport], after: Offsets, ids: Mapping[str, str]) -> int:
        """Commit the letters of a batch that ends at `after`. Returns their number."""
        rows = sum(report.rows for report in done)
        if not rows:
            return 0
        if self._spec.dead_letters.stops:
            first = next(report.first for report in done if report.rows)
            raise BadRowError(
                f"{rows} rows cannot be decoded, the first at {first}. Mend source.value, or give dead_letters a topic or table"
            )
        if self._table is not None:
            files = [file for report in done for file in report.files]
            batch = 1 if self._progress is None else self._progress.batch + 1
            progress = Progress(run_number(self._fence.run), batch, dict(after), dict(ids), self._form)
            commit_fenced(self._table, self._fence, FileChange(files), progress, self._progress)
            self._progress = progress
        else:
            transactions = [report.transaction for report in done if report.transaction is not None]
            kept = {"offsets": positions_to_json(after), "ids": dict(ids), "form": self._form}
            self._fence.commit(transactions, {RECORD: kept})
            self._fence.abort_left_behind()
        self._known = dict(after)
        return rows

    def _take(self, offsets: Offsets, known: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Keep only offsets of the current topics: a recreated topic has other records at the same offsets."""
        same = {
            topic_partition.topic
            for topic_partition in offsets
            if known.get(topic_partition.topic) == now.get(topic_partition.topic)
        }
        self._known = {topic_partition: offset for topic_partition, offset in offsets.items() if topic_partition.topic in same}


def format_digest(spec: PipelineSpec) -> str:
    """A digest of the value format: with another schema, other records are dead letters."""
    text = repr((spec.source.value, sorted(spec.source.values.items())))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def beyond(rows: pa.RecordBatch, known: Offsets) -> pa.RecordBatch:
    """The letters of one partition that are not committed yet."""
    if not rows.num_rows:
        return rows
    topic_partition = TopicPartition(rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py())
    first = known.get(topic_partition, 0)
    return rows if first == 0 else rows.filter(pc.greater_equal(rows.column("offset"), first))
