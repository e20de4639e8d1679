"""The kind compact: maintains a table with the last value of each key of a changelog topic. A tombstone deletes its key. The end
offsets are in the commit that replaces the files, so no change is applied twice or skipped."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.pipelines.job import Job
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.changelog_task import (
    BUCKET,
    DELETED,
    NAME,
    ORDER,
    MergeBucketsTask,
    ReadChangesTask,
)
from penstock.spark.tables.errors import TableOptionError
from penstock.spark.tables.export_task import ExportTask, WithoutKey
from penstock.spark.tables.files import LocalStore
from penstock.spark.tables.parquet import Parquet
from penstock.spark.tables.record_columns import TopicRead, table_schema, topic_reads
from penstock.spark.tables.table_job import TableJob, WrittenFiles
from penstock.spark.tables.table_target import FileChange
from penstock.spark.tables.task_writer import DataFile
from penstock.spark.tables.tasks import run_tasks, tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS: Final = 16
_READ: Final = ("topic", "partition", "offset", "timestamp", "key")


def compact_job(spec: PipelineSpec) -> Job:
    """The job of a compaction."""
    return CompactJob(spec)


def _reads(spec: PipelineSpec) -> dict[str, TopicRead]:
    table = spec.target.table
    assert table is not None, "the target is a table"
    metadata = tuple(dict.fromkeys(("key", *table.metadata)))
    return topic_reads(spec, spec.source.topics or ("",), metadata, also=_READ)


class CompactJob(TableJob):
    """One run of a compaction."""

    compacts_small_files = False  # a bucket is one file, however large

    def __init__(self, spec: PipelineSpec) -> None:
        super().__init__(spec)
        self._reads: dict[str, TopicRead] = {}

    @property
    def decodes(self) -> bool:
        """Always true: a record without a key is a dead letter."""
        return True

    def plan(self) -> list[str]:
        """See `Job`."""
        return [*plan_lines(self.spec), "  keeps   the last value of each key; a record without a value deletes its key"]

    def check(self, spark: SparkSession) -> None:
        """See `TableJob`."""
        table = self.spec.target.table
        assert table is not None, "the target is a table"
        if table.partition_by:
            raise self.spec.fault("target.table.partition_by", "a table of last values is cut by its keys; leave it out")
        super().check(spark)

    def prepare(self, spark: SparkSession) -> pa.Schema:
        """See `TableJob`."""
        self._reads = _reads(self.spec)
        return table_schema(self._reads)

    def write(self, spark: SparkSession, ranges: Sequence[OffsetRange], name: str) -> WrittenFiles:
        """See `TableJob`. A shuffle may read its input twice, so dead letters are collected separately."""
        task = ExportTask(self._reads, None, self.dead_letters.task(), name, refuses=(WithoutKey(),))
        reports = run_tasks(spark, task, ranges)
        added, removed = self._merge(spark, ranges)
        return WrittenFiles(reports, FileChange(added, removed), sum(file.rows for file in added))

    def _merge(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> tuple[list[DataFile], list[DataFile]]:
        """The new files of the changed buckets, and the files they replace."""
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
        read = ReadChangesTask(self._reads, tuple(ranges), schema, buckets)
        # A bucket is one file, however large.
        writer = replace(table.writer(), file_bytes=1 << 62)
        # In an object store a slow copy could overwrite a newer file with an older one.
        keeps_paths = isinstance(table, Parquet) and isinstance(table.store, LocalStore)
        merge = MergeBucketsTask(table.reader(), writer, files, buckets, keeps_paths)
        rows = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(read, from_arrow_schema(changes))
        results = rows.repartition(min(buckets, 2 * tasks_at_once(spark)), BUCKET).mapInArrow(merge, "files BINARY").collect()
        added: list[DataFile] = []
        removed: list[DataFile] = []
        for row in results:
            for bucket, bucket_files in pickle.loads(bytes(row["files"])).items():
                added += bucket_files
                removed += files.get(bucket, [])
        return added, removed

    def _buckets(self) -> tuple[dict[int, list[DataFile]], int]:
        """The files of each bucket, and how many buckets there are."""
        table = self.target.table
        table.refresh()
        by_bucket: dict[int, list[DataFile]] = {}
        buckets = BUCKETS
        for file in table.data_files():
            name = NAME.match(file.path.rsplit("/", 1)[-1])
            if name is None:
                raise TableOptionError(
                    f"{table} has a file {file.path} that this pipeline has not made; a table of last values is its alone"
                )
            buckets = int(name[2])
            by_bucket.setdefault(int(name[1]), []).append(file)
        return by_bucket, buckets
