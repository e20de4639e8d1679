"""The store of a node that is alone: in memory, in this process, nothing stored. The supervisor of workers serves the same
one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from penstock.coordination.key_table import KeyTable
from penstock.coordination.port import Change, CommitResult, Compare, Event, Lease, Snapshot
from penstock.core.errors import ClosedError


class MemoryStore:
    """A `KeyStore` on a `KeyTable`. Leases end by `now`, a clock in seconds that never goes back."""

    def __init__(self, table: KeyTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def get(self, key: str) -> Snapshot:
        """Read one key."""
        self._expire()
        return self._table.get(key)

    async def scan(self, prefix: str) -> Snapshot:
        """Read all keys with a prefix."""
        self._expire()
        return self._table.scan(prefix)

    async def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply a transaction; its outcome is never unknown."""
        self._expire()
        result = self._table.commit(compares, changes)
        self._wake()
        return result

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield changes as they are made."""
        while True:
            self._expire()
            changed = self._changed  # taken before the look, so that no change falls between look and wait
            for events in self._table.changes_after(after, prefix):
                after = events[0].revision
                yield events
            await changed.wait()
            self._check_open()

    async def grant(self, ttl_s: float) -> Lease:
        """Create a lease."""
        self._expire()
        lease = self._table.grant(ttl_s, self._now())
        self._wake()
        return lease

    async def renew(self, lease: int, timeout_s: float) -> float:
        """Extend a lease."""
        assert timeout_s > 0
        self._expire()
        return self._table.renew(lease, self._now())

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        self._expire()
        self._table.revoke([lease])
        self._wake()

    async def close(self) -> None:
        """End watches."""
        self._is_closed = True
        self._changed.set()
        if self._timer is not None:
            self._timer.cancel()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the coordination store is closed")

    def _expire(self) -> None:
        self._check_open()
        if self._table.expire(self._now()):
            self._wake()

    def _wake(self) -> None:
        """Let watches look, and look for ended leases when the next one is due."""
        self._changed.set()
        self._changed = asyncio.Event()
        if self._timer is not None:
            self._timer.cancel()
        expiry = self._table.next_expiry()
        if expiry is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, expiry - self._now()) + 0.001, self._expire_later)

    def _expire_later(self) -> None:
        if not self._is_closed:
            self._table.expire(self._now())
            self._wake()
