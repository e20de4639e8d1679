"""A writer and watchers that show what a fault of etcd does: pauses, changes that were missed or doubled, leases that were
lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.coordination import (
    Compare,
    Coordination,
    CoordinationUnavailableError,
    EtcdOptions,
    KeyChange,
    KeyStore,
    Outcome,
    Put,
    cluster_prefix,
    connect_etcd,
)
from tests.e2e.coordination.etcd_process import EtcdCluster
from tests.e2e.coordination.nodes import IDENTITY, record

KEY = "groups/counter"
TTL_S = 5.0


def connect(etcd: EtcdCluster, seed: int) -> KeyStore:
    """A client; the seed decides which endpoint it asks first."""
    return connect_etcd(EtcdOptions(etcd.urls, cluster_prefix("faults")), random.Random(seed))


@dataclass
class CountingLoad:
    """Counts up one key, with compare-and-swap. `pauses` are times between two counts, in seconds."""

    etcd: EtcdCluster
    nodes: list[Coordination] = field(default_factory=list)
    seen: list[list[int]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    unknown: int = 0
    counted: int = 0
    _task: asyncio.Task[None] | None = None

    async def start(self, nodes: int = 3, ttl_s: float = TTL_S) -> None:
        """Join nodes, each of which watches, and begin to count."""
        for number in range(nodes):
            node = Coordination(connect(self.etcd, number))
            await node.create_cluster(IDENTITY)
            await node.open()
            values: list[int] = []
            self.seen.append(values)
            node.listen(lambda changes, values=values: self._note(changes, values))  # type: ignore[misc]
            await node.register(record(number), ttl_s)
            node.campaign()
            self.nodes.append(node)
        self._task = asyncio.create_task(self._count(connect(self.etcd, 99)))

    async def settle(self, seconds: float) -> None:
        """Count on for a while."""
        assert self._task is not None
        await asyncio.sleep(seconds)
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Stop counting, wait until every watcher has seen the last count, and leave."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        entry = (await self.nodes[0]._store.get(KEY)).entry
        assert entry is not None
        self.counted = int(entry.value)
        async with asyncio.timeout(20):
            while any(values[-1:] != [self.counted] for values in self.seen):  # noqa: ASYNC110 - watchers have no event for it
                await asyncio.sleep(0.02)
        for node in self.nodes:
            node._listeners.clear()
        for node in self.nodes:
            await node.close()

    def check(self) -> None:
        """Every count was seen by every watcher, once and in order, and no member was gone."""
        for values in self.seen:
            assert values == list(range(1, self.counted + 1))
        assert self.gone == []

    @property
    def longest_pause_s(self) -> float:
        """The longest time in which nothing could be counted."""
        return max(self.pauses)

    def _note(self, changes: Sequence[KeyChange], values: list[int]) -> None:
        for change in changes:
            if change.key == KEY and change.after is not None:
                values.append(int(change.after.value))
            elif change.key.startswith("members/") and change.after is None:
                self.gone.append(change.key)

    async def _count(self, client: KeyStore) -> None:
        value, revision, last = 0, 0, time.monotonic()
        try:
            while True:
                try:
                    result = await client.commit([Compare(KEY, revision)], [Put(KEY, str(value + 1).encode())])
                    if result.outcome is Outcome.DONE:
                        value, revision = value + 1, result.revision
                    else:
                        self.unknown += result.outcome is Outcome.UNKNOWN
                        entry = (await client.get(KEY)).entry
                        value, revision = (int(entry.value), entry.revision) if entry is not None else (0, 0)
                        continue
                except CoordinationUnavailableError:
                    await asyncio.sleep(0.05)
                    continue
                self.pauses.append(time.monotonic() - last)
                last = time.monotonic()
                await asyncio.sleep(0.005)
        finally:
            await client.close()
