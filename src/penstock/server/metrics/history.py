"""History of metrics: 1 s steps for 10 minutes, 10 s steps for 6 hours, 60 s steps for 2 days.

All series share their timestamps. A series takes 22 KiB, and there are at most `SERIES_MAX`, so the total is below 9 MiB whatever
the number of topics: the node's own series always exist, topics and consumers have one while they are among the busiest.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequestError

LEVELS: Final = ((1, 600), (10, 2160), (60, 2880))
HISTORY_S: Final = LEVELS[-1][0] * LEVELS[-1][1]
SERIES_MAX: Final = 400
POINTS_MAX: Final = 3000
DEFAULT_SPAN_MS: Final = 600_000


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _last(values: list[float]) -> float:
    return values[-1]


Fold = Callable[[list[float]], float]
_FOLDS: Final[dict[str, Fold]] = {
    "produce_bytes": _mean,
    "produce_messages": _mean,
    "fetch_bytes": _mean,
    "fetch_messages": _mean,
    "request_ms_p99": max,
    "fsync_ms_p99": max,
    "loop_lag_ms": max,
    "storage_used": _last,
    "lag_messages": _last,
    "lag_seconds": _last,
    "pipeline_rows": _mean,
    "pipeline_lag": _last,
    "pipeline_batch_ms": max,
    "pipeline_dead_letters": _last,
}
HISTORY_METRICS: Final = tuple(_FOLDS)
FLOW_METRICS: Final = ("produce_messages", "produce_bytes", "fetch_messages", "fetch_bytes")  # those of topics
LAG_METRICS: Final = ("lag_messages", "lag_seconds")  # those of consumers
PIPELINE_METRICS: Final = ("pipeline_rows", "pipeline_lag", "pipeline_batch_ms", "pipeline_dead_letters")  # those of pipelines


class Key(NamedTuple):
    """A series: of the node, of a topic, of a consumer in a topic, or of a pipeline, whose name is the consumer."""

    metric: str
    topic: str = ""
    consumer: str = ""


class StoredLevel(NamedTuple):
    """A level as it is stored: its shape, how many ticks there ever were, and the rings as bytes."""

    step_s: int
    capacity: int
    ticks: int
    times: bytes
    series: list[tuple[str, str, str, bytes]]


class _Level:
    """One resolution: a ring of times, and one of values for each series."""

    def __init__(self, step_s: int, capacity: int) -> None:
        self.step_s = step_s
        self.capacity = capacity
        self.times = array("q", [0]) * capacity
        self.count = 0  # of ticks ever
        self.series: dict[Key, array[float]] = {}

    def write(self, now_ms: int, values: Mapping[Key, float]) -> None:
        at = self.count % self.capacity
        self.times[at] = now_ms
        for key, ring in self.series.items():
            ring[at] = values.get(key, math.nan)
        self.count += 1

    def stored(self) -> StoredLevel:
        series = [(*key, ring.tobytes()) for key, ring in self.series.items()]
        return StoredLevel(self.step_s, self.capacity, self.count, self.times.tobytes(), series)

    def restore(self, stored: StoredLevel, now_ms: int) -> bool:
        """Take over what was stored, followed by a gap. Returns False if it does not fit, or is of the future."""
        if (stored.step_s, stored.capacity) != (self.step_s, self.capacity) or stored.ticks < 0:
            return False
        times = array("q", stored.times)
        rings = {Key(metric, topic, consumer): array("f", values) for metric, topic, consumer, values in stored.series}
        if {len(times), *map(len, rings.values())} != {self.capacity} or not all(key.metric in _FOLDS for key in rings):
            return False
        last_ms = times[(stored.ticks - 1) % self.capacity] if stored.ticks else now_ms
        if last_ms > now_ms:
            return False  # the clock was set back: times would not be in order
        self.times, self.series, self.count = times, rings, stored.ticks
        if now_ms - last_ms > 2000 * self.step_s:
            # Nothing is known of the time when the node did not run: a chart draws no line across it.
            self.write((last_ms + now_ms) // 2, {})
        return True

    def recent(self, key: Key, count: int) -> list[float]:
        ring = self.series[key]
        values = (ring[at % self.capacity] for at in range(max(self.count - count, 0), self.count))
        return [value for value in values if not math.isnan(value)]

    def places(self, from_ms: int, to_ms: int) -> list[int]:
        """The ring indexes of a time range, in order."""
        begin = max(self.count - self.capacity, 0)
        slots = (at % self.capacity for at in range(begin, self.count))
        return [at for at in slots if from_ms <= self.times[at] <= to_ms]


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """A query of the history; for the metrics of pipelines, the consumer is the pipeline."""

    metric: str
    topic: str | None = None
    consumer: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    points: int | None = None


class History:
    """The rings. `tick` them once a second."""

    def __init__(self) -> None:
        self._levels = [_Level(*level) for level in LEVELS]

    @classmethod
    def restored(cls, levels: Sequence[StoredLevel], now_ms: int) -> History | None:
        """The history that was stored; None if it does not fit the levels there are."""
        history = cls()
        if len(levels) != len(history._levels):
            return None
        fits = [level.restore(stored, now_ms) for level, stored in zip(history._levels, levels, strict=True)]
        return history if all(fits) else None

    def stored_levels(self) -> list[StoredLevel]:
        """All of it, to be stored."""
        return [level.stored() for level in self._levels]

    @property
    def keys(self) -> list[Key]:
        """The series that are recorded."""
        return list(self._levels[0].series)

    def keep(self, keys: Iterable[Key]) -> None:
        """Set the series to record; existing ones among them keep their values."""
        wanted = list(keys)[:SERIES_MAX]
        for level in self._levels:
            level.series = {
                key: level.series.get(key) or array("f", [math.nan]) * level.capacity for key in dict.fromkeys(wanted)
            }

    def tick(self, now_ms: int, values: Mapping[Key, float]) -> None:
        """Record the current values; a series without one gets a gap."""
        self._levels[0].write(now_ms, values)
        for finer, coarser in zip(self._levels, self._levels[1:], strict=False):
            ratio = coarser.step_s // finer.step_s
            if finer.count % ratio:
                break
            folded: dict[Key, float] = {}
            for key in finer.series:
                if recent := finer.recent(key, ratio):
                    folded[key] = _FOLDS[key.metric](recent)
            coarser.write(now_ms, folded)

    def since(self, key: Key, span_s: int) -> list[float]:
        """The values of a series over the last `span_s` seconds, oldest first."""
        level = next(
            (level_option for level_option in self._levels if level_option.step_s * level_option.capacity >= span_s),
            self._levels[-1],
        )
        return level.recent(key, max(span_s // level.step_s, 1)) if key in level.series else []

    def query(self, query: SeriesQuery, now_ms: int) -> dict[str, object]:
        """Timestamps and values for a query, limited to its number of points; a gap is None."""
        _check(query)
        to_ms = now_ms if query.to_ms is None else query.to_ms
        from_ms = to_ms - DEFAULT_SPAN_MS if query.from_ms is None else query.from_ms
        level = self._level_for(from_ms, now_ms)
        width_ms = level.step_s * 1000
        if query.points:
            width_ms = max(width_ms, -(-(to_ms - from_ms) // query.points))
        buckets: dict[int, list[int]] = {}
        for at in level.places(from_ms, to_ms):
            buckets.setdefault(level.times[at] // width_ms, []).append(at)
        fold = _FOLDS[query.metric]
        keys = {_label(key, query): key for key in level.series if _matches(key, query)}
        return {
            "times": [bucket * width_ms for bucket in buckets],
            "series": {
                label: [_folded([level.series[key][at] for at in places], fold) for places in buckets.values()]
                for label, key in keys.items()
            },
        }

    def _level_for(self, from_ms: int, now_ms: int) -> _Level:
        for level in self._levels:
            if now_ms - from_ms <= level.step_s * level.capacity * 1000:
                return level
        return self._levels[-1]


def _folded(values: list[float], fold: Fold) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return fold(known) if known else None


def _matches(key: Key, query: SeriesQuery) -> bool:
    if key.metric != query.metric:
        return False
    if query.metric in PIPELINE_METRICS:
        return query.consumer in (None, key.consumer)
    if query.metric in LAG_METRICS:
        return query.consumer in (None, key.consumer) and query.topic in (None, key.topic)
    return key.topic == (query.topic or "")


def _label(key: Key, query: SeriesQuery) -> str:
    if key.metric in PIPELINE_METRICS:
        return key.consumer
    if key.metric in LAG_METRICS:
        return key.topic if query.consumer is not None else f"{key.consumer}: {key.topic}"
    return key.topic or key.metric


def _check(query: SeriesQuery) -> None:
    if query.metric not in _FOLDS:
        raise InvalidRequestError(f"there is no history of {query.metric!r}; there is of {', '.join(HISTORY_METRICS)}")
    if query.topic and query.metric not in (*FLOW_METRICS, *LAG_METRICS):
        raise InvalidRequestError(f"{query.metric} is of the whole node; leave out topic")
    if query.consumer and query.metric not in (*LAG_METRICS, *PIPELINE_METRICS):
        raise InvalidRequestError(f"{query.metric} is not of a consumer; ask for {' or '.join(LAG_METRICS)}")
    if query.points is not None and not 1 <= query.points <= POINTS_MAX:
        raise InvalidRequestError(f"points is {query.points}; it must be 1 to {POINTS_MAX}")
    if query.from_ms is not None and query.to_ms is not None and query.from_ms > query.to_ms:
        raise InvalidRequestError(f"from is {query.from_ms}, which is after to, {query.to_ms}")
