"""Retention: periodically deletes messages beyond their topic's retention, except those that consumers need or leases protect."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from penstock.broker.age_clock import AgeClock
from penstock.broker.catalog import Catalog
from penstock.broker.errors import PartitionUnavailableError
from penstock.broker.tablets import Tablets
from penstock.broker.topic import Topic
from penstock.core.errors import PenstockError
from penstock.core.periodic import repeat

NeededFrom = Callable[[Topic, int], int | None]
"""The first offset of a partition that is still needed; None if no offset is."""

log = logging.getLogger(__name__)


class Retention:
    """Applies retention to all partitions of a node. `prepare` is awaited before each run: if it fails, nothing is deleted."""

    def __init__(
        self,
        catalog: Catalog,
        tablets: Tablets,
        needed_from: NeededFrom,
        prepare: Callable[[], Awaitable[None]],
        *,
        ages: AgeClock,
        interval_s: float,
    ) -> None:
        self._probe = tablets.probe
        self._catalog = catalog
        self._tablets = tablets
        self._needed_from = needed_from
        self._prepare = prepare
        self._ages = ages
        self._interval_s = interval_s

    async def run(self) -> None:
        """Run every `interval_s` until cancelled."""
        await repeat("retention", self._interval_s, self.once)

    async def once(self) -> None:
        """Apply retention to every partition that is served now; one that fails is retried on the next run."""
        try:
            await self._prepare()
        except PenstockError as error:
            log.warning("retention will be tried again: %s", error)
            return
        now_ms = int(self._ages.wall() * 1000)
        for topic in self._catalog.topics():
            for number, tablet_id in enumerate(topic.tablets):
                if not self._tablets.hosts(tablet_id):
                    continue
                try:
                    partition = self._tablets.partition(tablet_id, number)
                    gone = await partition.retain(self._needed_from(topic, number), now_ms)
                    self._probe.expired_messages += gone
                except PartitionUnavailableError:
                    continue
                except PenstockError as error:
                    self._probe.retention_failures += 1
                    log.warning("retention of %s-%d will be tried again: %s", topic.name, number, error)
