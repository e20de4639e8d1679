"""Turns the offset ranges of a batch of a stateless pipeline into a DataFrame, through the transformation if there is one, and
counts the rows read and the rows that could not be decoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.accumulators import AccumulatorParam

from penstock.spark.pipelines.errors import SpecError
from penstock.spark.pipelines.query import Query, used_columns
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.views import Counts, ReadRangesTask, View, make_views
from penstock.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ReadCounts(NamedTuple):
    """How many rows of a batch were read, and how many values of which ranges could not be decoded."""

    rows: int
    dead: list[tuple[OffsetRange, int]]
    empty: int


class CountsParam(AccumulatorParam[Counts]):
    """Accumulates counts by range, so that a task that runs twice is counted once."""

    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        value1.update(value2)
        return value1


class BatchRows:
    """Makes the DataFrames of batches. One batch at a time: `frame`, an action on it, `read_counts`."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        self.views: list[View] = make_views(spec)
        self.query = Query(spec, spark, self.views) if spec.transform is not None else None
        self._spark = self.query.session if self.query is not None else spark
        self.counts: Any = spark.sparkContext.accumulator({}, CountsParam())
        self._ranges: list[OffsetRange] = []
        self._read_views: list[View] | None = None

    def reading(self, ranges: Iterable[OffsetRange]) -> tuple[DataFrame, ReadRangesTask]:
        """The numbers of some ranges, and the task that reads the rows of the only view from them: for what needs no plan of
        Spark's."""
        self._begin(ranges)
        [view] = self.read_views()
        return view.numbers(self._spark, self._ranges), view.reading(self._ranges, self.counts)

    def _begin(self, ranges: Iterable[OffsetRange]) -> None:
        self._ranges = list(ranges)
        self.counts.value = {}

    def frame(self, ranges: Iterable[OffsetRange]) -> DataFrame:
        """The result rows for some ranges; without a transformation those of the first view."""
        self._begin(ranges)
        frames = {view.name: view.frame(self._spark, self._ranges, self.counts) for view in self.read_views()}
        if self.query is None:
            return frames[self.views[0].name]
        return self.query.apply(frames)

    def read_views(self) -> list[View]:
        """The views as DataFrames that tasks produce."""
        if self._read_views is None:
            self._read_views = self._prune()
        return self._read_views

    def _prune(self) -> list[View]:
        """The views with only the columns that the query uses. If the query names columns only to exclude them, all are kept."""
        if self.query is None:
            return self.views
        whole = self.query.apply({view.name: view.frame(self._spark, []) for view in self.views})
        used = used_columns(whole)
        pruned = [view.pruned(used) for view in self.views]
        try:
            fits = self.query.apply({view.name: view.frame(self._spark, []) for view in pruned}).schema == whole.schema
        except SpecError:
            fits = False
        return pruned if fits else self.views

    def read_counts(self) -> ReadCounts:
        """What the tasks of the last action have read."""
        counts: Counts = self.counts.value
        counted = [
            (offset_range, counts.get((offset_range.topic_partition, offset_range.start, offset_range.stop), (0, 0, 0)))
            for offset_range in self._ranges
        ]
        return ReadCounts(
            sum(rows + dead for _, (rows, dead, _) in counted),
            [(offset_range, dead) for offset_range, (_, dead, _) in counted if dead],
            sum(empty for _, (_, _, empty) in counted),
        )
