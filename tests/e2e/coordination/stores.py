"""Every kind of store for the contract tests: how to make clients of it, and how to make it forget."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Coroutine, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from penstock.coordination import (
    Change,
    CommitResult,
    Compare,
    EtcdOptions,
    Event,
    KeyStore,
    KeyTable,
    Lease,
    MemoryStore,
    Snapshot,
    SocketServer,
    SocketStore,
    cluster_prefix,
    connect_etcd,
)
from penstock.core.clock import boot_time
from penstock.testing.coordination_model import SimCoordination
from penstock.testing.sim_loop import run_simulation
from tests.e2e.coordination.etcd_process import EtcdCluster

_serial = count()


class StoreUnderTest:
    """One empty store."""

    lease_s = 0.5
    """The shortest lease it grants."""

    async def start(self) -> None:
        """Make it ready."""

    def client(self) -> KeyStore:
        """A client of its own for each node."""
        raise NotImplementedError

    def compact(self, revision: int) -> None:
        """Forget the changes up to a revision."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close it."""

    def now(self) -> float:
        """The clock of its clients."""
        return boot_time()

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test with it."""
        asyncio.run(self._guarded(test))

    async def _guarded(self, test: Coroutine[Any, Any, None]) -> None:
        await self.start()
        try:
            async with asyncio.timeout(60):
                await test
        finally:
            await self.stop()


class AloneStore(StoreUnderTest):
    """In memory; its clients share one object, as the parts of one process do."""

    async def start(self) -> None:
        self.table = KeyTable("alone")
        self._store = MemoryStore(self.table, boot_time)

    def client(self) -> KeyStore:
        return _SharedStore(self._store)

    def compact(self, revision: int) -> None:
        self.table.compact(revision)

    async def stop(self) -> None:
        await self._store.close()


class ServedStore(AloneStore):
    """The same over a Unix socket."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "coordination.sock"

    async def start(self) -> None:
        await super().start()
        self.server = SocketServer(self._store, self.path)
        await self.server.start()

    def client(self) -> KeyStore:
        return SocketStore(self.path, boot_time)

    async def stop(self) -> None:
        await self.server.close()
        await super().stop()


class EtcdStoreUnderTest(StoreUnderTest):
    """A prefix of its own in an etcd that tests share."""

    lease_s = 2.0

    def __init__(self, etcd: EtcdCluster) -> None:
        self._etcd = etcd
        self._prefix = cluster_prefix(f"test-{next(_serial)}")

    def client(self) -> KeyStore:
        return connect_etcd(EtcdOptions(self._etcd.urls, self._prefix, call_s=5.0, read_s=10.0), random.Random(1))

    def compact(self, revision: int) -> None:
        self._etcd.run("compact", str(revision))


class ModelStore(StoreUnderTest):
    """The simulator's, without faults, in simulated time."""

    async def start(self) -> None:
        self.model = SimCoordination(random.Random(1))

    def client(self) -> KeyStore:
        return self.model.client("test")

    def compact(self, revision: int) -> None:
        self.model.table.compact(revision)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        run_simulation(self._guarded(test))


class _SharedStore:
    """A store that outlives those who close it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def get(self, key: str) -> Snapshot:
        return await self._store.get(key)

    async def scan(self, prefix: str) -> Snapshot:
        return await self._store.scan(prefix)

    async def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        return await self._store.commit(compares, changes)

    def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        return self._store.watch(prefix, after)

    async def grant(self, ttl_s: float) -> Lease:
        return await self._store.grant(ttl_s)

    async def renew(self, lease: int, timeout_s: float) -> float:
        return await self._store.renew(lease, timeout_s)

    async def revoke(self, lease: int) -> None:
        await self._store.revoke(lease)

    async def close(self) -> None:
        pass
