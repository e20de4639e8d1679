"""The progress of a streaming query in terms of topics. Spark names a Python source by its Java class and gives its offsets as
text; here they have the names of their topics, and the lag is counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.kafka.client import TopicPartition
from penstock.spark.ranges import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source in the last micro-batch of a query: how far it has read, what there was to read, and how fast it is."""

    topics: tuple[str, ...]
    rows: int
    rows_per_second: float
    offsets: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int] | None

    @property
    def lag(self) -> int | None:
        """The offsets that were not read; None where Spark (4.1) does not say what there was."""
        if self.latest is None:
            return None
        return sum(max(end - self.offsets.get(topic_partition, 0), 0) for topic_partition, end in self.latest.items())

    def __str__(self) -> str:
        lag = "" if self.lag is None else f", {self.lag:,} behind"
        return f"penstock[{','.join(self.topics)}]: {self.rows:,} rows, {self.rows_per_second:,.0f} a second{lag}"


def progress(query: StreamingQuery | Mapping[str, Any]) -> list[SourceProgress]:
    """The progress of a query's sources that are topics, from the query or from one of its `recentProgress`. Empty before the
    first micro-batch."""
    last: Mapping[str, Any] | None = query if isinstance(query, Mapping) else query.lastProgress
    sources = [] if last is None else last["sources"]
    return [found for source in sources if (found := _source_progress(source)) is not None]


def _source_progress(source: Mapping[str, Any]) -> SourceProgress | None:
    end, latest = (_positions(source.get(name)) for name in ("endOffset", "latestOffset"))
    if end is None:
        return None
    topics = tuple(sorted({topic_partition.topic for topic_partition in end}))
    speed = float(source.get("processedRowsPerSecond") or 0.0)
    return SourceProgress(topics, int(source.get("numInputRows", 0)), speed, end, latest)


def _positions(given: Any) -> Mapping[TopicPartition, int] | None:
    """Offsets of topics; None for those of another source."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    if not isinstance(given, Mapping) or not all(isinstance(value, Mapping) for value in given.values()):
        return None
    return StreamOffset.from_json(given).positions
