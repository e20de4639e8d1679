"""Tasks of an audit: count and digest the records of a topic and the rows of a table, by buckets of offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.kafka.client import TopicPartition
from penstock.spark.range_read import read_range_with_dead
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.record_columns import TopicRead
from penstock.spark.tables.row_digest import Digests, column_digests
from penstock.spark.tables.schemas import conform
from penstock.spark.tables.table import TableReader
from penstock.spark.tables.task_writer import DataFile

OffsetBucket = tuple[TopicPartition, int]
"""A partition, and the number of a stretch of its offsets."""


@dataclass(frozen=True, slots=True)
class BucketDigest:
    """The number of rows of a bucket, and the sum of digests of each column."""

    rows: int
    digests: tuple[int, ...]

    def __add__(self, other: BucketDigest) -> BucketDigest:
        sums = tuple((left + right) & 0xFFFF_FFFF_FFFF_FFFF for left, right in zip(self.digests, other.digests, strict=True))
        return BucketDigest(self.rows + other.rows, sums)


@dataclass
class AuditCounts:
    """The result of a task: digests by bucket, and single rows of the requested buckets."""

    sums: dict[OffsetBucket, BucketDigest] = field(default_factory=dict)
    rows: dict[OffsetBucket, list[tuple[NDArray[np.int64], Digests]]] = field(default_factory=dict)
    dead: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """Offsets of records that cannot be decoded."""
    outside: dict[TopicPartition, int] = field(default_factory=dict)
    """Rows of a table that are not in what is compared."""


@dataclass(frozen=True)
class AuditScope:
    """The scope of a comparison: columns, offsets of each partition, and the size of buckets."""

    schema: pa.Schema
    bounds: Mapping[TopicPartition, tuple[int, int]]
    size: int
    wanted: frozenset[OffsetBucket] | None = None
    """Stretches whose rows are told one by one; None only sums."""

    def count(
        self, topic_partition: TopicPartition, offsets: NDArray[np.int64], rows: pa.RecordBatch, counts: AuditCounts
    ) -> None:
        """Add rows of one partition."""
        stretches = offsets // self.size
        if self.wanted is not None:
            here = np.array([number for where, number in self.wanted if where == topic_partition], np.int64)
            chosen = np.isin(stretches, here)
            if not chosen.any():
                return
            rows, offsets, stretches = rows.filter(pa.array(chosen)), offsets[chosen], stretches[chosen]
        digests = np.stack([column_digests(rows.column(name)) for name in self.schema.names], axis=1)
        order = np.argsort(stretches, kind="stable")
        numbers, starts = np.unique(stretches[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            key, picked = (topic_partition, number), order[start:end]
            if self.wanted is not None:
                counts.rows.setdefault(key, []).append((offsets[picked], digests[picked]))
                continue
            digest = BucketDigest(end - start, tuple(int(total) for total in digests[picked].sum(axis=0)))
            counts.sums[key] = counts.sums[key] + digest if key in counts.sums else digest


@dataclass(frozen=True)
class TopicTask:
    """Digests a range of a topic. It is pickled to tasks."""

    reads: Mapping[str, TopicRead]
    scope: AuditScope

    def __call__(self, number: int, wanted: OffsetRange) -> AuditCounts:
        counts = AuditCounts()
        read = self.reads.get(wanted.topic_partition.topic) or self.reads[""]
        for good, bad in read_range_with_dead(read.options, read.layout, wanted):
            if bad is not None:
                counts.dead.setdefault(wanted.topic_partition, []).extend(bad.column("offset").to_pylist())
            if good.num_rows:
                offsets = good.column("offset").to_numpy()
                self.scope.count(wanted.topic_partition, offsets, conform(read.rows(good), self.scope.schema), counts)
        return counts


@dataclass(frozen=True)
class TableTask:
    """Digests files of a table. It is pickled to tasks."""

    reader: TableReader
    scope: AuditScope
    topic: str | None
    """The only topic there is, where rows do not tell theirs."""

    def __call__(self, number: int, files: Sequence[DataFile]) -> AuditCounts:
        counts = AuditCounts()
        extra = ["_partition", "_offset", *(["_topic"] if self.topic is None else [])]
        columns = list(dict.fromkeys([*self.scope.schema.names, *extra]))
        for file in files:
            for batch in self.reader.read(file, columns):
                for topic_partition, rows in self._places(batch):
                    self._count(topic_partition, rows, counts)
        return counts

    def _places(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        topics: list[Any] = [self.topic] if self.topic is not None else pc.unique(batch.column("_topic")).to_pylist()
        for topic in topics:
            rows = batch if self.topic is not None else batch.filter(pc.equal(batch.column("_topic"), topic))
            for partition in pc.unique(rows.column("_partition")).to_pylist():
                yield TopicPartition(topic, partition), rows.filter(pc.equal(rows.column("_partition"), partition))

    def _count(self, topic_partition: TopicPartition, rows: pa.RecordBatch, counts: AuditCounts) -> None:
        offsets = rows.column("_offset").to_numpy()
        low, high = self.scope.bounds.get(topic_partition, (0, 0))
        inside = (offsets >= low) & (offsets < high)
        if not inside.all():
            counts.outside[topic_partition] = counts.outside.get(topic_partition, 0) + int((~inside).sum())
            rows, offsets = rows.filter(pa.array(inside)), offsets[inside]
        if rows.num_rows:
            self.scope.count(topic_partition, offsets, rows.select(self.scope.schema.names), counts)
