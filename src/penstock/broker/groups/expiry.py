"""Expiry of committed offsets: those of groups without members, and in topics that a group no longer reads."""

from __future__ import annotations

import asyncio
import logging

from penstock.broker.catalog import Catalog
from penstock.broker.consumers import Consumers, Position, TopicPartition
from penstock.broker.errors import UnknownTopicError
from penstock.broker.groups.options import GroupOptions
from penstock.broker.groups.registry import Groups
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.periodic import repeat

log = logging.getLogger(__name__)


class Expiry:
    """Deletes expired offsets, a group at a time."""

    def __init__(self, groups: Groups, consumers: Consumers, catalog: Catalog, options: GroupOptions, clock: Clock) -> None:
        self._groups = groups
        self._consumers = consumers
        self._catalog = catalog
        self._options = options
        self._clock = clock

    async def run(self) -> None:
        """Sweep at each interval, until cancelled."""
        await repeat("the expiry of offsets", self._options.expiry_interval_s, self.sweep)

    async def sweep(self) -> None:
        """Delete the offsets that have expired."""
        names = {summary.name for summary in self._groups.listed()}
        for name in sorted(names):
            # One group at a time, so that others are served in between.
            await asyncio.sleep(0)
            try:
                await self._sweep_group(name)
            except PenstockError as error:
                log.warning("committed offsets of group %r are not expired now, and will be at the next sweep: %s", name, error)

    async def _sweep_group(self, name: str) -> None:
        positions = self._consumers.positions(name)
        before_ms = int((self._clock.wall() - self._options.offsets_retention_s) * 1000)
        expired = [queue for queue, position in positions.items() if self._is_expired(name, queue, position, before_ms)]
        if expired:
            await self._consumers.forget(name, expired)
            log.info("group %r: %d committed offsets have expired", name, len(expired))
        empty_since_ms = self._groups.empty_since_ms(name)
        if len(expired) == len(positions) and empty_since_ms is not None and empty_since_ms <= before_ms:
            await self._groups.delete(name)

    def _is_expired(self, name: str, queue: TopicPartition, position: Position, before_ms: int) -> bool:
        if position.commit_time_ms > before_ms or self._consumers.is_unstable(name, queue):
            return False
        try:
            topic = self._catalog.topic_by_id(queue.topic_id)
        except UnknownTopicError:
            # It is being deleted, and its positions with it.
            return False
        if name in topic.config.declared_consumers:
            return False
        if self._groups.kind(name) is None:
            return True
        empty_since_ms = self._groups.empty_since_ms(name)
        if empty_since_ms is not None:
            return empty_since_ms <= before_ms
        return not self._groups.subscribes(name, topic.name)
