"""Rows that cannot be decoded: read again by their ranges and sent as they were stored, with their origin and the error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.spark.malformed import describe_first
from penstock.spark.pipelines.errors import BadRowError
from penstock.spark.pipelines.row_sending import REPORT, TaskReport, unpack_reports
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.views import View
from penstock.spark.ranges import OffsetRange
from penstock.spark.task_transaction import task_transaction
from penstock.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADERS: Final = ("penstock.topic", "penstock.partition", "penstock.offset", "penstock.pipeline", "penstock.reason")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])


def letters(dead: pa.RecordBatch, pipeline: str) -> pa.RecordBatch:
    """Rows for the dead letter topic: the original value and key, and headers with the origin and the error."""
    count = dead.num_rows
    texts = [
        dead.column("topic"),
        dead.column("partition"),
        dead.column("offset"),
        pa.repeat(pipeline, count),
        dead.column("reason"),
    ]
    columns = [text.cast(pa.string()).cast(pa.binary()) for text in texts]
    # A row's headers stand together: those of row 0, then those of row 1.
    order = pa.array(np.arange(len(columns) * count).reshape(len(columns), count).T.ravel())
    values = pa.concat_arrays(columns).take(order)
    pairs = pa.StructArray.from_arrays([pa.array(list(HEADERS) * count, pa.string()), values], fields=list(_HEADER))
    starts = pa.array(np.arange(count + 1, dtype=np.int32) * len(columns))
    headers = pa.ListArray.from_arrays(starts, pairs)
    return pa.RecordBatch.from_arrays([dead.column("key"), dead.column("value"), headers], names=["key", "value", "headers"])


class DeadLetterTask:
    """A task that reads ranges again and sends what cannot be decoded of them."""

    def __init__(self, view: View, ranges: list[OffsetRange], options: WriteOptions, prefix: str, pipeline: str) -> None:
        self._read, self._layout = view.options, view.layout
        self._ranges = ranges
        self._options = options
        self._prefix = prefix
        self._pipeline = pipeline

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transaction = task_transaction(self._options, self._prefix)
        count, first = 0, ""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for dead in dead_of(self._read_range(self._ranges[number])):
                    first = first or describe_first(dead)
                    transaction.send(self._options.topic, letters(dead, self._pipeline))
                    count += dead.num_rows
        yield TaskReport(transaction.finish(), dead=count, first_dead=first).packed()

    def _read_range(self, offset_range: OffsetRange) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        from penstock.spark.range_read import read_range_with_dead

        return read_range_with_dead(self._read, self._layout, offset_range)


def dead_of(batches: Iterable[tuple[pa.RecordBatch, pa.RecordBatch | None]]) -> Iterator[pa.RecordBatch]:
    """Only the rows that could not be decoded."""
    return (dead for _, dead in batches if dead is not None)


def send_dead(
    spark: SparkSession,
    spec: PipelineSpec,
    views: Sequence[View],
    ranges: Iterable[OffsetRange],
    sending: tuple[WriteOptions, str],
) -> list[TaskReport]:
    """Send the dead letters of ranges to their topic, uncommitted. Raises BadRowError if bad rows stop the pipeline."""
    wanted = list(ranges)
    if spec.dead_letters.stops:
        raise first_bad_row(spec, views, wanted)
    options, prefix = sending
    reports: list[TaskReport] = []
    for at, view in enumerate(views):
        own = [offset_range for offset_range in wanted if view.holds(offset_range)]
        if own:
            task = DeadLetterTask(view, own, options, f"{prefix}dead-{at}/", spec.name)
            reports += unpack_reports(spark.range(0, len(own), 1, len(own)).mapInArrow(task, REPORT).collect())
    return reports


def first_bad_row(spec: PipelineSpec, views: Sequence[View], ranges: Iterable[OffsetRange]) -> BadRowError:
    """An error that names the first row that cannot be decoded."""
    from penstock.spark.range_read import read_range_with_dead

    for offset_range in ranges:
        view = next(view for view in views if view.holds(offset_range))
        for dead in dead_of(read_range_with_dead(view.options, view.layout, offset_range)):
            row = dead.slice(0, 1).to_pylist()[0]
            return BadRowError(
                f"the value at offset {row['offset']} of {offset_range.topic_partition} is {row['reason']}. Nothing of this "
                "batch is committed; set dead_letters to a topic to keep such rows there, or correct the schema"
            )
    return BadRowError(f"pipeline {spec.name!r} has read a value that cannot be decoded")
