"""The write speed limit of partitions, if their topic has one: writers are throttled, not refused."""

from __future__ import annotations

from uuid import UUID

from penstock.broker import Topic, TopicConfig
from penstock.core.clock import Clock
from penstock.gateway.ydb.topic_settings import settings_of

TOPICS_MAX = 10_000


class WriteSpeed:
    """Throttles writers of all partitions that have a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[UUID, tuple[TopicConfig, int, int]] = {}
        self._free_at: dict[tuple[UUID, int], float] = {}  # when the debt of a partition is paid off

    def delay_s(self, topic: Topic, partition: int, size: int) -> float:
        """Charge a write. Returns how long its writer must wait before it writes more."""
        cached = self._limits.get(topic.id)
        if cached is None or cached[0] is not topic.config:
            if len(self._limits) >= TOPICS_MAX:  # most of them may be deleted by now
                self._limits.clear()
                self._free_at.clear()
            settings = settings_of(topic)
            cached = self._limits[topic.id] = topic.config, settings.write_bytes_per_s, settings.write_burst_bytes
        _, rate, burst = cached
        if not rate:
            return 0.0
        now = self._clock.monotonic()
        free_at = max(self._free_at.get((topic.id, partition), 0.0), now - burst / rate) + size / rate
        self._free_at[topic.id, partition] = free_at
        return max(free_at - now, 0.0)
