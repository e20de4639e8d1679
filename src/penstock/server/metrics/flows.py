"""Throughput of topics: rates of each, and exported counters of a bounded number of them.

A topic gets its own series when it is first used, up to `SHOWN_MAX`; the others are counted together as `_other`. When all are
taken, one that was idle for `IDLE_S` is replaced. What a topic did without a series stays in `_other`, so that no counter ever
jumps and nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker import Topic
from penstock.queue import QueueProbe
from penstock.server.metrics.metric import OTHER

SHOWN_MAX: Final = 100
IDLE_S: Final = 600.0
TOPICS_PER_PASS: Final = 10_000  # looked at each second; with more, a pass over all takes that many seconds


class Counts(NamedTuple):
    """Messages and bytes written and read."""

    batches_in: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    reads: int = 0
    messages_out: int = 0
    bytes_out: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum."""
        a, b, c, d, e, f = self
        u, v, w, x, y, z = other
        return Counts(a + u, b + v, c + w, d + x, e + y, f + z)

    def minus(self, other: Counts) -> Counts:
        """The difference."""
        a, b, c, d, e, f = self
        u, v, w, x, y, z = other
        return Counts(a - u, b - v, c - w, d - x, e - y, f - z)


NOTHING: Final = Counts()


class TopicRates(NamedTuple):
    """Produce and fetch rates of a topic, per second."""

    produce_messages_per_s: float = 0.0
    produce_bytes_per_s: float = 0.0
    fetch_messages_per_s: float = 0.0
    fetch_bytes_per_s: float = 0.0


NO_RATES: Final = TopicRates()


class _Flow:
    """The counters of a topic."""

    __slots__ = ("active_s", "activity", "counts", "elsewhere", "is_shown", "name", "probes", "rated", "rates")

    def __init__(self, name: str, probes: list[QueueProbe]) -> None:
        self.name = name
        self.probes = probes
        self.activity = 0
        self.counts = NOTHING
        self.elsewhere = NOTHING  # the part counted as `_other`
        self.rated = NOTHING  # the counts at the last computation of rates
        self.rates = NO_RATES
        self.active_s = 0.0
        self.is_shown = False


class TopicFlows:
    """The flows of all topics of a node; call `update` about once a second. Unused topics cost almost nothing."""

    def __init__(self) -> None:
        self._listed: Sequence[tuple[Topic, list[QueueProbe]]] = ()
        self._flows: dict[UUID, _Flow] = {}
        self._by_name: dict[str, _Flow] = {}
        self._shown: list[_Flow] = []
        self._changed: dict[_Flow, None] = {}  # since rates were told last
        self._rated: list[_Flow] = []  # those with rates
        self._used = 0
        self._others = NOTHING
        self._updated_s: float | None = None
        self.rates = NO_RATES  # of all topics together

    @property
    def hidden(self) -> int:
        """How many used topics have no series."""
        return self._used - len(self._shown)

    def update(self, flows: Sequence[tuple[Topic, list[QueueProbe]]], now_s: float) -> None:
        """Update the counters and rates of every topic; `topics` must be the same list while the topics stay the same."""
        before_s = self._updated_s
        if before_s is not None and now_s - before_s < len(flows) / TOPICS_PER_PASS:
            return
        self._updated_s = now_s
        elapsed_s = 0.0 if before_s is None else max(now_s - before_s, 1e-3)
        self.refresh(flows, now_s)
        for flow in self._rated:
            flow.rates = NO_RATES
        total = NOTHING
        for flow in self._changed:
            grown = flow.counts.minus(flow.rated)
            flow.rated = flow.counts
            flow.rates = _rates(grown, elapsed_s) if elapsed_s else NO_RATES
            total = total.plus(grown)
        self._rated = list(self._changed)
        self._changed.clear()
        self.rates = _rates(total, elapsed_s) if elapsed_s else NO_RATES

    def refresh(self, flows: Sequence[tuple[Topic, list[QueueProbe]]], now_s: float) -> None:
        """Update the counters without the rates."""
        if flows is not self._listed:
            self._rebuild_list(flows)
        unshown: list[tuple[_Flow, Counts]] = []
        for flow in self._flows.values():
            activity = 0
            for probe in flow.probes:
                activity += probe.batches_in + probe.reads
            if activity == flow.activity:
                continue
            self._used += not flow.activity
            before, flow.counts = flow.counts, counts_of(flow.probes)
            flow.activity, flow.active_s = activity, now_s
            self._changed[flow] = None
            if not flow.is_shown:
                unshown.append((flow, flow.counts.minus(before)))
        if unshown:
            self._share_out([flow for flow, _ in unshown], now_s)
        for flow, grown in unshown:
            if not flow.is_shown:
                flow.elsewhere = flow.elsewhere.plus(grown)
                self._others = self._others.plus(grown)

    def rates_of(self, name: str) -> TopicRates:
        """The rates of a topic."""
        flow = self._by_name.get(name)
        return NO_RATES if flow is None else flow.rates

    def shown(self) -> list[tuple[str, Counts]]:
        """The exported counters by topic; the last is `_other`."""
        flows = [(flow.name, flow.counts.minus(flow.elsewhere)) for flow in self._shown]
        return [*sorted(flows), (OTHER, self._others)]

    def busiest(self, count: int) -> list[str]:
        """The topics with series, ordered by recent use."""
        ranked = sorted(
            self._shown,
            key=lambda flow: (flow.active_s, flow.rates.produce_bytes_per_s + flow.rates.fetch_bytes_per_s),
            reverse=True,
        )
        return [flow.name for flow in ranked[:count]]

    def _rebuild_list(self, flows: Sequence[tuple[Topic, list[QueueProbe]]]) -> None:
        """Rebuild the list after topics were created or deleted."""
        known = self._flows
        self._flows = {topic.id: known.get(topic.id) or _Flow(topic.name, probes) for topic, probes in flows}
        for (topic, probes), flow in zip(flows, self._flows.values(), strict=True):
            assert topic.name == flow.name
            flow.probes = probes
        self._by_name = {flow.name: flow for flow in self._flows.values()}
        self._shown = [flow for flow in self._flows.values() if flow.is_shown]
        self._used = sum(1 for flow in self._flows.values() if flow.activity)
        self._listed = flows

    def _share_out(self, waiting: list[_Flow], now_s: float) -> None:
        """Assign free series to topics that have none."""
        wanted = [flow for flow in waiting if flow.name != OTHER]
        room = SHOWN_MAX - len(self._shown)
        if len(wanted) > room:
            idle = sorted((flow for flow in self._shown if now_s - flow.active_s >= IDLE_S), key=lambda flow: flow.active_s)
            for flow in idle[: len(wanted) - room]:
                flow.is_shown = False
                room += 1
        for flow in wanted[:room]:
            flow.is_shown = True
        self._shown = [flow for flow in (*self._shown, *wanted[:room]) if flow.is_shown]


def counts_of(probes: Sequence[QueueProbe]) -> Counts:
    """The sum of several probes."""
    total = NOTHING
    for probe in probes:
        counts = Counts(probe.batches_in, probe.messages_in, probe.bytes_in, probe.reads, probe.messages_out, probe.bytes_out)
        total = counts if total is NOTHING else total.plus(counts)
    return total


def _rates(grown: Counts, elapsed_s: float) -> TopicRates:
    return TopicRates(
        grown.messages_in / elapsed_s, grown.bytes_in / elapsed_s, grown.messages_out / elapsed_s, grown.bytes_out / elapsed_s
    )
