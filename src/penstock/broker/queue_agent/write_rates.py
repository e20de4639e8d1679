"""How fast partitions are written to. Idle ones cost nothing: each tells of its next write, and is looked at again after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from penstock.broker.queue_agent.rates import Rate
from penstock.broker.topic import Topic
from penstock.broker.weights import Weights
from penstock.core.errors import PenstockError
from penstock.queue import Partition

INTERVAL_S = 1.0
AT_ONCE = 500  # partitions looked at before others are served

PartitionOf = Callable[[Topic, int], Partition]
Key = tuple[UUID, int]


class RowRates(NamedTuple):
    """Rates of rows and of their weight."""

    rows: Rate
    weight: Rate

    @property
    def are_still(self) -> bool:
        """Whether there was no growth for some minutes."""
        return self.rows.is_still and self.weight.is_still

    def fade(self, now_s: float) -> None:
        """Update both, without growth."""
        self.rows.fade(now_s)
        self.weight.fade(now_s)

    def shown(self) -> tuple[dict[str, float], dict[str, float]]:
        return self.rows.shown(), self.weight.shown()


class _Wake:
    """Waits for the next write to an idle partition."""

    __slots__ = ("_told", "_woken", "place")

    def __init__(self, place: tuple[Topic, int], woken: list[_Wake]) -> None:
        self.place = place
        self._woken = woken
        self._told = False

    def done(self) -> bool:
        """Whether it was told."""
        return self._told

    def set_result(self, _: None, /) -> None:
        """Something was written."""
        self._told = True
        self._woken.append(self)


class WriteRates:
    """The rates of all partitions that this node serves. `update` is to be called about once a second. `changes` tells how often
    a tablet has started or stopped."""

    def __init__(
        self, topics: Callable[[], Sequence[Topic]], partition_of: PartitionOf, weights: Weights, changes: Callable[[], int]
    ) -> None:
        self._topics = topics
        self._partition_of = partition_of
        self._weights = weights
        self._changes = changes
        self._seen_changes = -1
        self._rates: dict[Key, RowRates] = {}
        self._busy: dict[Key, tuple[Topic, int]] = {}  # looked at in every update
        self._idle: dict[Key, tuple[_Wake, Partition]] = {}
        self._woken: list[_Wake] = []

    async def update(self, now_s: float) -> None:
        """Look at the partitions that were written to in the last minutes; at all after a tablet has started or stopped."""
        if self._seen_changes != self._changes():
            self._seen_changes = self._changes()
            self._look_at_all()
        woken, self._woken[:] = list(self._woken), []
        for wake in woken:
            key = wake.place[0].id, wake.place[1]
            self._stop_waiting(key)
            self._busy[key] = wake.place
            self._rates[key].fade(now_s - INTERVAL_S)  # all of the growth is of the last second
        for at, (key, (topic, number)) in enumerate(list(self._busy.items())):
            try:
                self._update_one(now_s, key, topic, self._partition_of(topic, number))
            except PenstockError:
                del self._busy[key]  # not served here; when it is, there is a change
            if at % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    def of(self, topic: Topic, number: int, now_s: float) -> RowRates:
        """The rates of a partition."""
        key = topic.id, number
        rates = self._rates.get(key)
        if rates is None:
            return RowRates(Rate(), Rate())
        if key in self._idle and not self._idle[key][0].done():
            rates.fade(now_s)
        return rates

    def _look_at_all(self) -> None:
        self._busy = {(topic.id, number): (topic, number) for topic in self._topics() for number in range(topic.partitions)}
        for key in list(self._idle):
            self._stop_waiting(key)
        self._woken.clear()
        for gone in self._rates.keys() - self._busy.keys():
            del self._rates[gone]

    def _update_one(self, now_s: float, key: Key, topic: Topic, partition: Partition) -> None:
        rates = self._rates.get(key)
        if rates is None:
            rates = self._rates[key] = RowRates(Rate(), Rate())
            for rate in rates:  # what is counted begins at zero, so nothing written before this first look is missed
                rate.update(now_s - INTERVAL_S, 0)
        rates.rows.update(now_s, partition.written)
        rates.weight.update(now_s, self._weights.added(partition))
        if rates.are_still:
            del self._busy[key]
            wake = _Wake((topic, partition.number), self._woken)
            self._idle[key] = (wake, partition)
            partition.arrivals.watch(wake)

    def _stop_waiting(self, key: Key) -> None:
        """Wait for no write to a partition any more."""
        with suppress(KeyError):
            wake, partition = self._idle.pop(key)
            partition.arrivals.unwatch(wake)
