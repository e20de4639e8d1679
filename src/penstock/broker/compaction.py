"""Compaction: periodically removes messages of compacted topics that later ones with the same key supersede."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from random import Random

from penstock.broker.catalog import Catalog
from penstock.broker.errors import PartitionUnavailableError
from penstock.broker.retention import NeededFrom
from penstock.broker.tablets import Tablets
from penstock.broker.topic import Topic
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.periodic import repeat
from penstock.queue import Offload, Partition, compact, dirt_of

log = logging.getLogger(__name__)

PASSES_MAX = 8  # per partition and run


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """How compaction behaves on a node."""

    interval_s: float = 15.0
    map_bytes: int = 64 << 20  # for the keys of one pass; there is one at a time
    offload: Offload = asyncio.to_thread  # where bytes are worked on; a simulation has no threads


class Compaction:
    """Compacts the partitions of a node, one at a time."""

    def __init__(
        self,
        catalog: Catalog,
        tablets: Tablets,
        leased_from: NeededFrom,
        options: CompactionOptions,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._probe = tablets.probe
        self._catalog = catalog
        self._tablets = tablets
        self._leased_from = leased_from
        self._options = options
        self._clock = clock
        self._random = random

    async def run(self) -> None:
        """Run every `interval_s` until cancelled."""
        await repeat("compaction", self._options.interval_s, self.once)

    async def once(self) -> None:
        """Compact every partition that is due and served now, the dirtiest first; one that fails is retried on the next run."""
        now_ms = int(self._clock.wall() * 1000)
        compacted = self._compacted()
        compacted.sort(key=lambda item: dirt_of(item[1], now_ms).ratio, reverse=True)
        for topic, partition in compacted:
            try:
                await self._compact(topic, partition)
            except PenstockError as error:
                self._probe.compaction_failures += 1
                log.warning("compaction of %s-%d will be tried again: %s", topic.name, partition.number, error)

    def _compacted(self) -> list[tuple[Topic, Partition]]:
        compacted: list[tuple[Topic, Partition]] = []
        for topic in self._catalog.topics():
            if not topic.config.is_compacted:
                continue
            for number, tablet_id in enumerate(topic.tablets):
                if not self._tablets.hosts(tablet_id):
                    continue
                try:
                    compacted.append((topic, self._tablets.partition(tablet_id, number)))
                except PartitionUnavailableError:
                    continue
        return compacted

    async def _compact(self, topic: Topic, partition: Partition) -> None:
        options = self._options
        held_from = partial(self._leased_from, topic, partition.number)
        for _ in range(PASSES_MAX):
            began = self._clock.monotonic()
            summary = await compact(
                partition,
                clock=self._clock,
                random=self._random,
                offload=options.offload,
                map_bytes=options.map_bytes,
                held_from=held_from,
            )
            if summary is None:
                return
            self._probe.compaction.note(self._clock.monotonic() - began)
            self._probe.compaction_bytes_read += summary.bytes_read
            self._probe.compaction_bytes_freed += summary.bytes_freed
            log.info(
                "compacted %s-%d up to offset %d: %d bytes read, %d freed, %d keys%s",
                topic.name,
                partition.number,
                summary.clean_to,
                summary.bytes_read,
                summary.bytes_freed,
                summary.keys,
                "" if summary.is_complete else "; it was trimmed or leased meanwhile, and will be gone over again",
            )
