"""Retention: periodically deletes messages beyond their topic's retention, except those that consumers need or leases protect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.broker.age_clock import AgeClock
from penstock.broker.catalog import Catalog
from penstock.broker.consumers import Consumers, TopicPartition
from penstock.broker.errors import PartitionUnavailableError
from penstock.broker.leases import Leases
from penstock.broker.probe import BrokerProbe
from penstock.broker.tablets import Tablets
from penstock.broker.topic import Topic
from penstock.core.errors import PenstockError

NeededFrom = Callable[[Topic, int], int | None]
"""The first offset of a partition that is still needed; None if no offset is."""

log = logging.getLogger(__name__)


class Retention:
    """Applies retention to all partitions of a node."""

    def __init__(
        self,
        catalog: Catalog,
        consumers: Consumers,
        tablets: Tablets,
        vital_from: NeededFrom,
        leases: Leases,
        *,
        ages: AgeClock,
        interval_s: float,
        probe: BrokerProbe | None = None,
    ) -> None:
        self._probe = probe or BrokerProbe()
        self._catalog = catalog
        self._consumers = consumers
        self._tablets = tablets
        self._vital_from = vital_from
        self._leases = leases
        self._ages = ages
        self._interval_s = interval_s

    async def run(self) -> None:
        """Run every `interval_s` until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.once()

    async def once(self) -> None:
        """Apply retention to every partition that is served now; one that fails is retried on the next run."""
        await self._sweep_leases()
        await self._store_time()
        now_ms = int(self._ages.wall() * 1000)
        for topic in self._catalog.topics():
            for number, tablet_id in enumerate(topic.tablets):
                try:
                    partition = self._tablets.partition(tablet_id, number)
                    gone = await partition.retain(self.needed_from(topic, number), now_ms)
                    self._probe.expired_messages += gone
                except PartitionUnavailableError:
                    continue
                except PenstockError as error:
                    self._probe.retention_failures += 1
                    log.warning("retention of %s-%d will be tried again: %s", topic.name, number, error)

    def needed_from(self, topic: Topic, number: int) -> int | None:
        """The first offset that an important or vital consumer or a lease needs; None if there is none."""
        place = TopicPartition(topic.id, number)
        positions = (self._consumers.position(name, place) for name in topic.config.important_consumers)
        # A consumer that has never committed has read nothing.
        offsets = [0 if position is None else position.offset for position in positions]
        others = self._vital_from(topic, number), self._leases.needed_from(place)
        return min([*offsets, *(offset for offset in others if offset is not None)], default=None)

    async def _store_time(self) -> None:
        try:
            await self._ages.store()
        except PenstockError as error:
            log.warning("the time that messages age by will be stored later: %s", error)

    async def _sweep_leases(self) -> None:
        try:
            await self._leases.sweep()
        except PenstockError as error:
            log.warning("expired leases will be deleted later: %s", error)
