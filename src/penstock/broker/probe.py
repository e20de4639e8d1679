"""Counters of a broker, and state that is read on demand; nothing here is on the path of a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.consumers import OBJECT_PREFIX
from penstock.broker.namespace import consumer_name
from penstock.core.clock import Clock
from penstock.core.probe import Durations
from penstock.queue import BlobCache, QueueProbe
from penstock.tablet import TabletProbe

if TYPE_CHECKING:
    from uuid import UUID

    from penstock.broker.broker import Broker
    from penstock.broker.topic import Topic


class BrokerProbe:
    """Counters of the broker's background work, and the probes of the layers below."""

    __slots__ = (
        "compaction",
        "compaction_bytes_freed",
        "compaction_bytes_read",
        "compaction_failures",
        "expired_messages",
        "retention_failures",
        "tablet_starts",
        "tablets",
    )

    def __init__(self, clock: Clock | None = None) -> None:
        self.tablets = TabletProbe(clock)
        self.tablet_starts = 0
        self.compaction = Durations()
        self.compaction_bytes_read = 0
        self.compaction_bytes_freed = 0
        self.compaction_failures = 0
        self.retention_failures = 0
        self.expired_messages = 0


class GroupCount(NamedTuple):
    """How many groups of a kind are in a state."""

    kind: str
    state: str
    groups: int


class BrokerReading:
    """A view of a broker for monitoring. The cost of each call is proportional to its result."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._probes: tuple[int, list[tuple[Topic, list[QueueProbe]]]] = (-1, [])

    @property
    def cache(self) -> BlobCache:
        """The blob cache."""
        return self._broker.tablets.cache

    def flows(self) -> list[tuple[Topic, list[QueueProbe]]]:
        """Every topic with the probes of its tablets; the same list until the catalog changes."""
        broker = self._broker
        version = broker.catalog.version
        if self._probes[0] != version:
            probe_of, topics = broker.tablets.probe_of, broker.catalog.topics()
            self._probes = (version, [(topic, [probe_of(tablet) for tablet in sorted(set(topic.tablets))]) for topic in topics])
        return self._probes[1]

    def age_clock_behind_s(self) -> float:
        """How far the age clock is behind the machine's clock, in seconds."""
        return self._broker.ages.behind_s

    def tablets(self) -> tuple[int, int]:
        """How many tablets of topics there are, and how many of them serve."""
        return self._broker.tablets.counts()

    def trouble(self) -> str | None:
        """Why the broker cannot serve now; None if it can."""
        trouble = self._broker.system_tablets.trouble()
        if trouble is not None:
            return trouble
        return None if self._broker.tablets.serves else "none of the tablets of topics serves"

    def trim_alerts(self) -> dict[UUID, str]:
        """Topics whose trimming by the Queue Agent failed, and why."""
        return {topic_id: next(iter(alerts.values())) for topic_id, alerts in self._broker.queue_agent.alerts().items()}

    def consumer_paths(self) -> dict[str, str]:
        """The paths of YT consumers, by their keys in the table of committed offsets."""
        return {consumer_name(node): node.path for node in self._broker.namespace.consumers()}

    @staticmethod
    def is_group(name: str) -> bool:
        """Whether this name is a group, and not a YT consumer or producer."""
        return not name.startswith(OBJECT_PREFIX)

    def open_transactions(self) -> int:
        """How many transactions are open."""
        return self._broker.transactions.ongoing

    def groups(self) -> list[GroupCount]:
        """Numbers of groups by kind and state, without groups that only have committed offsets."""
        counts: dict[tuple[str, str], int] = {}
        for summary in self._summaries():
            counts[summary] = counts.get(summary, 0) + 1
        return [GroupCount(kind, state, count) for (kind, state), count in sorted(counts.items())]

    def _summaries(self) -> Iterator[tuple[str, str]]:
        for groups in self._broker.groups.kinds():
            for name in list(groups.names()):
                summary = groups.summary(name)
                yield summary.kind, summary.state.lower()
