"""What a metric is: one declaration has its name, kind, unit, labels, tier and what it means."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from penstock.core.probe import Durations

OTHER: Final = "_other"
"""The topic that stands for all those that have no series of their own. No topic of that name can have a series."""


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"  # only grows, until the node starts again
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Tier(StrEnum):
    """Who a metric is for."""

    PUBLIC = "public"  # everyone who runs a node; at /metrics
    INTERNAL = "internal"  # those who look into how it works; at /metrics/internal, with all the others


class Metric(NamedTuple):
    """One metric. Its name ends in its unit, and that of a counter in `_total`."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()
    tier: Tier = Tier.PUBLIC

    @property
    def unit(self) -> str:
        """Seconds, bytes or ratio; empty if it is a number of something."""
        bare = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes", "ratio") if bare.endswith("_" + unit)), "")


Value = int | float | Durations
Sample = tuple[tuple[str, ...], Value]


class Samples:
    """What was read for one scrape: values by metric, in the order they came."""

    __slots__ = ("by_metric",)

    def __init__(self) -> None:
        self.by_metric: dict[Metric, list[Sample]] = {}

    def add(self, metric: Metric, value: Value, *labels: str) -> None:
        """A value of a metric, with a value for each of its labels."""
        assert len(labels) == len(metric.labels), metric.name
        self.by_metric.setdefault(metric, []).append((labels, value))
