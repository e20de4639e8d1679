"""Topics as views for SQL and functions: decoded values as columns, with key, timestamp, topic, partition and offset."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.spark.columns import TYPES, Layout, layout
from penstock.spark.errors import OptionError
from penstock.spark.options import ReadOptions
from penstock.spark.pipelines.spec import PipelineSpec, ValueSpec
from penstock.spark.pipelines.topic_source import source_options
from penstock.spark.ranges import OffsetRange
from penstock.spark.value_format import count_empty
from penstock.spark.value_formats import value_format, value_type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ALL_TOPICS: Final = "source"  # the view of a pattern's topics, or of the only topic
META: Final = ("key", "timestamp", "topic", "partition", "offset")

Counts = dict[Any, tuple[int, int, int]]
"""Rows, dead letters and empty rows of each range."""


@dataclass(frozen=True)
class View:
    """One view: which topics are in it (None is all), how they are read, and the columns it has."""

    name: str
    topics: tuple[str, ...] | None
    field: str  # of the pipeline's file, for errors
    options: ReadOptions
    layout: Layout
    columns: StructType
    is_decoded: bool

    def meta_names(self) -> list[str]:
        """The names that the columns beside the value have in the view, in the order in which they are read."""
        read = [name for name in self.layout.schema.names if name != "value"]
        taken = {field.name for field in self.layout.value_type} if self.layout.value_type is not None else set()
        return [f"_{name}" if name in taken else name for name in read]

    def holds(self, offset_range: OffsetRange) -> bool:
        """Whether a range belongs to this view."""
        return self.topics is None or offset_range.topic_partition.topic in self.topics

    def pruned(self, used: set[str]) -> View:
        """The view with only some columns. Values are still decoded in full: whether one is bad must not depend on the query."""
        from pyspark.sql.types import StructType

        kept = [field for field in self.columns.fields if field.name in used] or self.columns.fields[-1:]
        names = {field.name for field in kept}
        read = [name for name in self.layout.schema.names if name != "value"]
        wanted = [name for name, own in zip(read, self.meta_names(), strict=True) if own in names]
        if self.is_decoded or "value" in names:
            wanted = ["value", *wanted]
        schema = pa.schema([self.layout.schema.field(name) for name in wanted])
        return replace(self, layout=Layout(schema), columns=StructType(kept))

    def frame(self, spark: SparkSession, ranges: Iterable[OffsetRange], counts: Any = None) -> DataFrame:
        """The decodable rows of ranges. Counts of each range are added to the accumulator `counts`."""
        own = [offset_range for offset_range in ranges if self.holds(offset_range)]
        return self.numbers(spark, own).mapInArrow(self.reading(own, counts), self.columns)

    def numbers(self, spark: SparkSession, ranges: list[OffsetRange]) -> DataFrame:
        """The numbers of ranges, each for a task of its own."""
        return spark.range(0, len(ranges), 1, max(len(ranges), 1))

    def reading(self, ranges: list[OffsetRange], counts: Any = None) -> ReadRangesTask:
        """The task that reads ranges by their numbers."""
        return ReadRangesTask(self, ranges, counts)

    def stand_in(self, spark: SparkSession) -> DataFrame:
        """A stream with the same columns and no rows, to let Spark plan a query."""
        from pyspark.sql.functions import lit

        stream = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        return stream.select([lit(None).cast(field.dataType).alias(field.name) for field in self.columns.fields])


class ReadRangesTask:
    """A task that reads the ranges with the given numbers, and expands decoded values to columns."""

    def __init__(self, view: View, ranges: list[OffsetRange], counts: Any) -> None:
        self._options, self._layout, self._is_decoded = view.options, view.layout, view.is_decoded
        self._names = view.columns.names
        kind = view.layout.value_type
        self._spread = [*([field.name for field in kind] if kind is not None else []), *view.meta_names()]
        self._ranges = ranges
        self._counts = counts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.spark.range_read import read_range_with_dead

        for batch in batches:
            for number in batch.column(0).to_pylist():
                offset_range = self._ranges[number]
                rows = dead = empty = 0
                for good, bad in read_range_with_dead(self._options, self._layout, offset_range):
                    rows += good.num_rows
                    dead += 0 if bad is None else bad.num_rows
                    empty += count_empty(good.column(0)) if self._is_decoded else 0
                    yield spread(good, self._spread).select(self._names) if self._is_decoded else good
                if self._counts is not None:
                    place = (offset_range.topic_partition, offset_range.start, offset_range.stop)
                    self._counts.add({place: (rows, dead, empty)})


def spread(rows: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Replace the first column, a struct, by its fields."""
    return pa.RecordBatch.from_arrays([*rows.column(0).flatten(), *rows.columns[1:]], names=names)


def make_views(spec: PipelineSpec) -> list[View]:
    """The views of a pipeline's topics; SpecError if a schema cannot be read. Needs a session."""
    source = spec.source
    if source.pattern is not None or len(source.topics) == 1:
        value = source.value if source.pattern is not None else source.value_of(source.topics[0])
        field = "source.value" if source.pattern is not None or not source.values else f"source.values.{source.topics[0]}"
        name = ALL_TOPICS if source.pattern is not None else source.topics[0]
        return [_view(spec, name, None, value, field)]
    return [
        _view(
            spec, topic, (topic,), source.value_of(topic), f"source.values.{topic}" if topic in source.values else "source.value"
        )
        for topic in source.topics
    ]


def identifier(name: str) -> str:
    """A topic's name as an identifier for SQL and Python."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{text}" if text[:1].isdigit() else text


def _view(spec: PipelineSpec, name: str, topics: tuple[str, ...] | None, value: ValueSpec, field: str) -> View:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructField, StructType

    options = source_options(spec, value)
    meta = [*META, *(["headers"] if spec.source.headers else [])]
    try:
        types = {**TYPES, "value": value_type_of(options) or TYPES["value"]}
        read = StructType.fromDDL(", ".join(f"`{name}` {types[name]}" for name in ("value", *meta)))
        assert isinstance(read, StructType)
        columns = layout(read, options)
        value_format(options, columns.value_type, fails=False)
    except (PySparkException, OptionError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise spec.fault(f"{field}.schema", f"it is no schema of {value.format} values: {reason}") from error
    fields = [read.fields[0]]
    if value.is_decoded:
        decoded = read.fields[0].dataType
        assert isinstance(decoded, StructType)
        fields = list(decoded.fields)
    taken = {column.name for column in fields}
    fields += [
        StructField(f"_{column.name}" if column.name in taken else column.name, column.dataType) for column in read.fields[1:]
    ]
    return View(name, topics, field, options, columns, StructType(fields), value.is_decoded)
