"""The task of an export: stored batches to Arrow to Parquet, without Java rows in between."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.spark.malformed import DEAD_SCHEMA
from penstock.spark.range_read import read_range_with_dead
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.dead_letters import DeadLetterReport, DeadLetterSink, DeadLetterTarget
from penstock.spark.tables.record_columns import VALUE, TopicRead
from penstock.spark.tables.task_writer import DataFile, TaskWriter
from penstock.spark.value_format import count_empty


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of a task."""

    files: tuple[DataFile, ...]
    rows_read: int
    rows_written: int
    bytes_read: int
    dead: DeadLetterReport
    empty_rows: int = 0


class RefusedRecords(Protocol):
    """Chooses decoded records that the target cannot take. It is pickled to tasks."""

    reason: str

    def among(self, read: TopicRead, records: pa.RecordBatch) -> pa.Array:
        """Which of the records are refused."""
        ...


class WithoutKey:
    """Records without a key."""

    reason = "it has no key, by which a table of last values is kept"

    def among(self, read: TopicRead, records: pa.RecordBatch) -> pa.Array:
        """See `RefusedRecords`."""
        return records.column("key").is_null()


@dataclass(frozen=True)
class ExportTask:
    """Reads a range and writes its rows and dead letters. It is pickled to tasks."""

    reads: Mapping[str, TopicRead]
    writer: TaskWriter | None
    """None only looks for what cannot be decoded."""
    dead: DeadLetterTarget
    name: str
    refuses: tuple[RefusedRecords, ...] = ()
    """Decoded records that are dead letters nevertheless."""

    def __call__(self, number: int, wanted: OffsetRange) -> ExportReport:
        context = TaskContext.get()
        name = f"{self.name}-{number:05d}-{0 if context is None else context.attemptNumber()}"
        sink = self.dead.begin(name, number)
        rows = _Rows(self.reads.get(wanted.topic_partition.topic) or self.reads[""], wanted, sink, self.refuses)
        if self.writer is None:
            for _ in rows:
                pass
            files = []
        else:
            files = self.writer.write(rows, name)
        dead = sink.finish()
        return ExportReport(tuple(files), rows.read, sum(file.rows for file in files), rows.size, dead, rows.empty)


class _Rows:
    """The rows of a range, counted as they are read."""

    def __init__(self, read: TopicRead, wanted: OffsetRange, dead: DeadLetterSink, refuses: Sequence[RefusedRecords]) -> None:
        self._read = read
        self._wanted = wanted
        self._dead = dead
        self._refuses = refuses
        self.read = 0
        self.size = 0
        self.empty = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for good, bad in read_range_with_dead(self._read.options, self._read.layout, self._wanted):
            self.read += good.num_rows
            self.size += good.nbytes
            self.empty += count_empty(good.column(VALUE))
            if bad is not None:
                self.read += bad.num_rows
                self.size += bad.nbytes
                self._dead.add(bad)
            left = good
            for refuses in self._refuses:
                is_refused = refuses.among(self._read, left)
                refused, left = left.filter(is_refused), left.filter(pc.invert(is_refused))
                if refused.num_rows:
                    self._dead.add(self._refused(refused, refuses.reason))
            if good.num_rows:
                yield self._read.rows(good)

    def _refused(self, records: pa.RecordBatch, reason: str) -> pa.RecordBatch:
        """Records as dead letters, with their values as text, because they are decoded already."""
        count = records.num_rows
        value = records.column(VALUE)
        if self._read.layout.value_type is not None:
            value = pa.array(
                [None if record is None else json.dumps(record, default=str).encode() for record in value.to_pylist()],
                pa.binary(),
            )
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(self._wanted.topic_partition.topic, pa.string()), count),
                pa.repeat(pa.scalar(self._wanted.topic_partition.partition, pa.int32()), count),
                records.column("offset"),
                records.column("timestamp"),
                records.column("key"),
                value,
                pa.repeat(reason, count),
            ],
            schema=DEAD_SCHEMA,
        )
