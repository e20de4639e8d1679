"""The kind compact: a changelog topic to a table of the last value of each key, that follows it. A record without a value deletes
its key. Where the topic is read up to is in the commit that replaces the files, so no change is applied twice or left out."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.pipelines.job import BatchDone, Job
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_source import TopicSource
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.changelog_task import (
    BUCKET,
    DELETED,
    NAME,
    ORDER,
    MergeBuckets,
    ReadChanges,
)
from penstock.spark.tables.dead_letters import DeadLetters
from penstock.spark.tables.errors import TableOptionError, TableSchemaError
from penstock.spark.tables.export import begin
from penstock.spark.tables.export_task import Exported, ExportTask
from penstock.spark.tables.files import LocalStore
from penstock.spark.tables.parquet import Parquet
from penstock.spark.tables.record_columns import TopicRead, table_schema, topic_reads
from penstock.spark.tables.table_target import TableTarget
from penstock.spark.tables.task_writer import DataFile
from penstock.spark.tables.tasks import run_tasks, tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS: Final = 16
_READ: Final = ("topic", "partition", "offset", "timestamp", "key")


def compact_job(spec: PipelineSpec) -> Job:
    """The job of a compaction."""
    return CompactJob(spec)


class CompactJob:
    """One run of a compaction."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._work: _Work | None = None

    def plan(self) -> list[str]:
        """As `Job` says."""
        return [*plan_lines(self.spec), "  keeps   the last value of each key; a record without a value deletes its key"]

    def check(self, spark: SparkSession) -> None:
        """Whether the table takes the rows and the topics are those of before; nothing is changed."""
        table = self.spec.target.table
        assert table is not None, "the target is a table"
        if table.partition_by:
            raise self.spec.fault("target.table.partition_by", "a table of last values is cut by its keys; leave it out")
        with closing(TableTarget(self.spec)) as target, closing(TopicSource(self.spec)) as source:
            try:
                target.table.check(table_schema(_reads(self.spec)))
            except TableSchemaError as error:
                raise self.spec.fault("target.table", str(error)) from error
            begin(source, target.table.progress())

    def start(self, spark: SparkSession) -> None:
        """As `Job` says."""
        self._work = _Work(self.spec, spark)
        self._work.start()

    def step(self) -> BatchDone | None:
        """As `Job` says."""
        assert self._work is not None, "it was started"
        return self._work.step()

    def lag_rows(self) -> int:
        """As `Job` says."""
        return 0 if self._work is None else self._work.source.lag_rows()

    def close(self) -> None:
        """As `Job` says."""
        if self._work is not None:
            self._work.source.close()
            self._work.target.close()


def _reads(spec: PipelineSpec) -> dict[str, TopicRead]:
    table = spec.target.table
    assert table is not None, "the target is a table"
    metadata = tuple(dict.fromkeys(("key", *table.metadata)))
    return topic_reads(spec, spec.source.topics or ("",), metadata, also=_READ)


class _Work:
    """What is open while a compaction runs."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._spark = spark
        self._reads = _reads(spec)
        self.source = TopicSource(spec)
        self.target = TableTarget(spec)
        self._dead = DeadLetters(spec, self.target.fence)

    def start(self) -> None:
        """Take over, and stand where the table says."""
        before = self.target.open(table_schema(self._reads))
        begin(self.source, self.target.progress)
        self._dead.start(self.target.cluster, self.source.ids, before)
        self.target.follow(sorted({place.topic for place in self.source.positions}))

    def step(self) -> BatchDone | None:
        """One batch: what cannot be used, the files that take the place of others, the commit."""
        target, source = self.target, self.source
        ranges = source.next_ranges(self._spec.rows_max, tasks_at_once(self._spark))
        if not ranges:
            target.maintain(self._spark, compacts=False)
            return None
        found = self._look(ranges)
        added, removed = self._merge(ranges)
        after = source.after(ranges)
        letters = self._dead.commit([one.dead for one in found], after, source.ids)
        target.commit(added, after, source.ids, removed=removed)
        source.advance(ranges)
        target.note_positions(source.positions)
        target.maintain(self._spark, compacts=False)
        rows = sum(one.rows for one in added)
        return BatchDone(sum(one.rows_read for one in found), rows, letters, sum(one.bytes_read for one in found))

    def _look(self, ranges: Sequence[OffsetRange]) -> list[Exported]:
        """Records that cannot be decoded or have no key. A shuffle may read its input twice, so they are looked for apart."""
        task = ExportTask(self._reads, None, self._dead.task(), f"{self.target.next_batch:08d}", needs_key=True)
        return run_tasks(self._spark, task, ranges)

    def _merge(self, ranges: Sequence[OffsetRange]) -> tuple[list[DataFile], list[DataFile]]:
        """The files of the buckets that change, and those that they take the place of."""
        table = self.target.table
        files, buckets = self._buckets()
        schema = table.schema()
        assert schema is not None, "the table is prepared"
        changes = pa.schema(
            [
                *schema,
                pa.field(BUCKET, pa.int32()),
                pa.field(DELETED, pa.bool_()),
                *(pa.field(name, pa.int32() if name == ORDER[0] else pa.int64()) for name in ORDER),
            ]
        )
        read = ReadChanges(self._reads, tuple(ranges), schema, buckets)
        # A bucket is one file, however large.
        writer = replace(table.writer(), file_bytes=1 << 62)
        # In an object store a copy that is under way for long could put an older file over a newer one.
        keeps_paths = isinstance(table, Parquet) and isinstance(table.store, LocalStore)
        merge = MergeBuckets(table.reader(), writer, files, buckets, keeps_paths)
        rows = self._spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(read, from_arrow_schema(changes))
        found = rows.repartition(min(buckets, 2 * tasks_at_once(self._spark)), BUCKET).mapInArrow(merge, "files BINARY").collect()
        added: list[DataFile] = []
        removed: list[DataFile] = []
        for row in found:
            for bucket, made in pickle.loads(bytes(row["files"])).items():
                added += made
                removed += files.get(bucket, [])
        return added, removed

    def _buckets(self) -> tuple[dict[int, list[DataFile]], int]:
        """The files of each bucket, and how many buckets there are."""
        table = self.target.table
        table.refresh()
        found: dict[int, list[DataFile]] = {}
        buckets = BUCKETS
        for file in table.data_files():
            name = NAME.match(file.path.rsplit("/", 1)[-1])
            if name is None:
                raise TableOptionError(
                    f"{table} has a file {file.path} that this pipeline has not made; a table of last values is its alone"
                )
            buckets = int(name[2])
            found.setdefault(int(name[1]), []).append(file)
        return found, buckets
