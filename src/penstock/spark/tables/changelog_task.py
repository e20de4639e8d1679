"""Tasks of a changelog: find the last record of each key, and rewrite the files of a table that has each key once.

The table is divided into buckets by the hash of the key; a bucket is one file. Records of a batch go to the task of their bucket,
which reads the current file, merges the new records, and writes the file that replaces it.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.arrow_encode import BinaryColumn, choose_partitions
from penstock.spark.range_read import read_range_with_dead
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.record_columns import VALUE, TopicRead
from penstock.spark.tables.table import TableReader
from penstock.spark.tables.task_writer import DataFile, TaskWriter

KEY: Final = "_key"
BUCKET: Final = "_bucket"
DELETED: Final = "_deleted"
ORDER: Final = ("_seen_partition", "_seen_offset", "_seen_time")
NAME: Final = re.compile(r"bucket-(\d{5})-of-(\d{5})")


def bucket_name(bucket: int, buckets: int) -> str:
    """The prefix of a bucket's file name."""
    return f"bucket-{bucket:05d}-of-{buckets:05d}"


@dataclass(frozen=True)
class ReadChangesTask:
    """Reads ranges into rows with their bucket, delete flag and offset. It is pickled to tasks."""

    reads: Mapping[str, TopicRead]
    ranges: Sequence[OffsetRange]
    schema: pa.Schema
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.ranges[number])

    def _read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        read = self.reads.get(wanted.topic_partition.topic) or self.reads[""]
        for records, _ in read_range_with_dead(read.options, read.layout, wanted):
            keyed = records.filter(records.column("key").is_valid())
            last = last_rows(pa.Table.from_batches([keyed]), ["key"])
            for batch in last.to_batches():
                yield self._changes(read, batch)

    def _changes(self, read: TopicRead, records: pa.RecordBatch) -> pa.RecordBatch:
        rows = read.rows(records)
        added = {
            BUCKET: pa.array(buckets_of(records.column("key"), self.buckets)),
            DELETED: records.column(VALUE).is_null(),
            ORDER[0]: records.column("partition"),
            ORDER[1]: records.column("offset"),
            ORDER[2]: records.column("timestamp").cast(pa.int64()),
        }
        columns = [
            rows.column(field.name) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays([*columns, *added.values()], names=[*self.schema.names, *added])


@dataclass(frozen=True)
class MergeBucketsTask:
    """Writes the files of buckets from their changes. It is pickled to tasks."""

    reader: TableReader
    writer: TaskWriter
    files: Mapping[int, Sequence[DataFile]]
    buckets: int
    keeps_paths: bool
    """Whether a bucket's file always has the same path, so that readers of directories see the old one or the new one."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(batches)
        changes = pa.Table.from_batches(given) if given else None
        files: dict[int, list[DataFile]] = {}
        if changes is not None and changes.num_rows:
            for bucket in pc.unique(changes[BUCKET]).to_pylist():
                files[bucket] = self._merge(bucket, changes.filter(pc.equal(changes[BUCKET], bucket)))
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(files)], pa.binary())], names=["files"])

    def _merge(self, bucket: int, changes: pa.Table) -> list[DataFile]:
        # Within a partition the later offset wins; across partitions the later timestamp.
        ordered = changes.sort_by([(ORDER[0], "ascending"), (ORDER[1], "ascending")])
        newest = last_rows(last_rows(ordered, [KEY, ORDER[0]]).sort_by(ORDER[2]), [KEY])
        schema = self.reader.schema
        old = [batch for file in self.files.get(bucket, ()) for batch in self.reader.read(file)]
        kept = pa.Table.from_batches(old, schema=schema)
        kept = kept.filter(pc.invert(pc.is_in(kept[KEY], value_set=newest[KEY].combine_chunks())))
        added = newest.filter(pc.invert(newest[DELETED])).select(schema.names).cast(schema)
        rows = pa.concat_tables([kept, added]).sort_by(KEY)
        name = bucket_name(bucket, self.buckets)
        if self.keeps_paths:
            # Also without rows: a commit that is published late must never find another file at its path.
            return self.writer.write(
                rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)], name, path=f"{name}.parquet"
            )
        return self.writer.write(rows.to_batches(), name) if rows.num_rows else []


def last_rows(rows: pa.Table, by: list[str]) -> pa.Table:
    """The last row of each key, in the order of the rows."""
    numbered = rows.select(by).append_column("_row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(by, use_threads=False).aggregate([("_row", "max")])["_row_max"].combine_chunks()
    return rows.take(last.take(pc.sort_indices(last)))


def buckets_of(keys: pa.Array, buckets: int) -> Any:
    """The bucket of each key."""
    chosen = np.empty(len(keys), np.int32)
    _, offsets, data = keys.buffers()
    column = BinaryColumn(
        np.frombuffer(offsets, np.int32), memoryview(b"") if data is None else memoryview(data).cast("B"), b"", keys.offset
    )
    choose_partitions(column, buckets, 0, chosen)
    return chosen
