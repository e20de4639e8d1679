"""Filters that Spark pushes down to a scan: on topic, partition, offset and timestamp they choose what is read at all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.kafka.client import TopicPartition

_TESTS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, some: value in some,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """What of its topics a scan needs: partitions that pass the filters, offsets from `first` up to `stop`, and records with
    timestamps from `first_ms` up to `stop_ms`."""

    filters: tuple[Filter, ...] = ()
    first: int = 0
    stop: int | None = None
    first_ms: int | None = None
    stop_ms: int | None = None

    def wants(self, topic_partition: TopicPartition) -> bool:
        """Whether records of a partition may pass the filters."""
        columns = {"topic": topic_partition.topic, "partition": topic_partition.partition}
        return all(_passes(one, columns) for one in self.filters)

    def narrowed(self, one: Filter) -> tuple[ScanBounds, bool]:
        """The bounds with a filter, and whether every record that is read then passes it."""
        name = _column(one)
        if isinstance(one, IsNotNull) and name in _NEVER_NULL:
            return self, True
        if name in ("topic", "partition"):
            inner = one.child if isinstance(one, Not) else one
            return (replace(self, filters=(*self.filters, one)), True) if type(inner) in _TESTS else (self, False)
        if name == "offset":
            return self._with_offsets(one)
        if name == "timestamp":
            return self._with_times(one), False  # timestamps need not be in order: Spark looks at each
        return self, False

    def _with_offsets(self, one: Filter) -> tuple[ScanBounds, bool]:
        bounds = _bounds(one)
        if bounds is None:
            return self, False
        first, stop = bounds
        narrowed = replace(self, first=_most(self.first, first), stop=_least(self.stop, stop))
        return narrowed, not isinstance(one, In)

    def _with_times(self, one: Filter) -> ScanBounds:
        bounds = _bounds(_in_ms(one))
        if bounds is None:
            return self
        first, stop = bounds
        return replace(
            self,
            first_ms=first if self.first_ms is None else _most(self.first_ms, first),
            stop_ms=_least(self.stop_ms, stop),
        )


class PushedFilters:
    """Gives a reader its `pushFilters`, also where Spark is not set to push filters down.

    Spark refuses a reader that overrides the method unless `spark.sql.python.filterPushdown.enabled` is set, and tells so by the
    function behind it. A reader of ours works in every session: where the setting is off, the method is never called.

    What is planned for a query with filters Spark uses for all later queries of the same DataFrame, those with other filters or
    none too. So filters are used only where the option `pushFilters` says that the DataFrame is for one query.
    """

    def __get__(self, reader: Any, owner: type) -> Any:
        return _PushFilters(reader)


class _PushFilters:
    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        if not self._reader.pushes_filters:
            return filters
        bounds: ScanBounds = self._reader.bounds
        left = []
        for one in filters:
            bounds, is_done = bounds.narrowed(one)
            if not is_done:
                left.append(one)
        self._reader.bounds = bounds
        return left


def _column(one: Filter) -> str | None:
    """The column that a filter is about; None for a field of a column."""
    path: tuple[str, ...] = getattr(one.child if isinstance(one, Not) else one, "attribute", ())
    return path[0] if len(path) == 1 else None


def _passes(one: Filter, columns: Mapping[str, Any]) -> bool:
    if isinstance(one, Not):
        return not _passes(one.child, columns)
    value, wanted = columns[str(_column(one))], getattr(one, "value", None)
    return wanted is not None and _TESTS[type(one)](value, wanted)


def _bounds(one: Filter) -> tuple[int | None, int | None] | None:
    """The first number that passes a filter and the one after the last, None for no limit; None alone if it sets neither."""
    value = getattr(one, "value", None)
    if isinstance(one, In) and value and all(isinstance(each, int) for each in value):
        return min(value), max(value) + 1
    if not isinstance(value, int):
        return None
    found: dict[type[Filter], tuple[int | None, int | None]] = {
        EqualTo: (value, value + 1),
        EqualNullSafe: (value, value + 1),
        GreaterThan: (value + 1, None),
        GreaterThanOrEqual: (value, None),
        LessThan: (None, value),
        LessThanOrEqual: (None, value + 1),
    }
    return found.get(type(one))


def _in_ms(one: Filter) -> Filter:
    """A filter on times as one on ms since 1970, rounded so that no record is left out that passes."""
    value = getattr(one, "value", None)
    if isinstance(value, datetime) and value.tzinfo is not None:
        floor = int(value.timestamp() * 1000 // 1)
        if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
            return GreaterThanOrEqual(one.attribute, floor)
        if isinstance(one, (LessThan, LessThanOrEqual)):
            return LessThanOrEqual(one.attribute, floor)
        if isinstance(one, (EqualTo, EqualNullSafe)):
            return EqualTo(one.attribute, floor)
    return IsNotNull(("timestamp",))


def _most(value: int, other: int | None) -> int:
    return value if other is None else max(value, other)


def _least(value: int | None, other: int | None) -> int | None:
    return other if value is None else value if other is None else min(value, other)
