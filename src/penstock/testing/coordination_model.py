"""A coordination store in simulated time, with everything that etcd and the network do to its clients.

`SimCoordination` is the store and outlives nodes; each node has a client of it. A client may be cut off, its calls take time,
answers are lost (what was asked is then done, not done, or done later), and its watches are late. The store may be stopped and
started, lose leases that live, forget its history, and be restored from an old copy. Draws come from one `random.Random`, so a
seed replays.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.coordination import (
    Change,
    CommitResult,
    Compare,
    CoordinationUnavailableError,
    Event,
    KeyTable,
    Lease,
    MemoryStore,
    Outcome,
    Snapshot,
)
from penstock.coordination.key_table import TableImage

_T = TypeVar("_T")

CALL_S: Final = 0.5
READ_S: Final = 2.0
SILENCE_S: Final = 2.0
"""After so long a watch notices that its client is cut off."""
LATE_S_MAX: Final = 3.0


@dataclass(slots=True)
class CoordinationFaults:
    """What happens to calls and watches of all clients; a test changes it while they run."""

    delay_s_max: float = 0.01
    lost_rate: float = 0.0  # of requests that are never done
    unanswered_rate: float = 0.0  # of requests that are done, now or later, and not answered
    watch_delay_s_max: float = 0.01
    watch_break_rate: float = 0.0  # of batches of events after which the watch breaks


class SimCoordination:
    """The store. `rng` is its own; nothing else draws from it."""

    def __init__(self, rng: random.Random, store_id: str = "sim", *, history_max: int = 10_000) -> None:
        self.random = rng
        self.faults = CoordinationFaults()
        self.is_away = False
        self._away_since = 0.0
        self._away_s = 0.0
        self.table = KeyTable(store_id, history_max=history_max)
        self.inner = MemoryStore(self.table, self.now)
        self.cut_off: set[str] = set()
        self.lost_leases: set[int] = set()

    def now(self) -> float:
        """The time by which leases end. It stands still while the store is away: etcd's leases get their time back after that."""
        real = asyncio.get_running_loop().time()
        return (self._away_since if self.is_away else real) - self._away_s

    def client(self, name: str) -> SimKeyStore:
        """A client of the store; what is cut off is cut off by its name."""
        return SimKeyStore(self, name)

    def stop(self) -> None:
        """Stop answering."""
        if not self.is_away:
            self._away_since = asyncio.get_running_loop().time()
            self.is_away = True

    def start(self) -> None:
        """Answer again, with everything that was done."""
        if self.is_away:
            self._away_s += asyncio.get_running_loop().time() - self._away_since
            self.is_away = False

    async def lose_lease(self) -> int | None:
        """End a lease that lives, as a stuck old leader of etcd may; which one."""
        leases = self.table.leases
        if not leases:
            return None
        lease = self.random.choice(leases)
        self.lost_leases.add(lease)
        await self.inner.revoke(lease)
        return lease

    def compact(self) -> None:
        """Forget all changes until now."""
        self.table.compact(self.table.revision)

    def restore(self, image: TableImage) -> None:
        """Become an old copy of itself, as etcd does when a snapshot is restored under the same name."""
        self.lost_leases |= set(self.table.leases) - image.leases.keys()
        self.table.restore(image, self.now())

    def is_reachable(self, name: str) -> bool:
        """Whether a client gets through."""
        return not self.is_away and name not in self.cut_off


class SimKeyStore:
    """A client: the `KeyStore` of one node."""

    def __init__(self, store: SimCoordination, name: str) -> None:
        self._store = store
        self._name = name

    async def get(self, key: str) -> Snapshot:
        """Read one key."""
        return await self._repeated(lambda: self._store.inner.get(key))

    async def scan(self, prefix: str) -> Snapshot:
        """Read all keys with a prefix."""
        return await self._repeated(lambda: self._store.inner.scan(prefix))

    async def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply a transaction, perhaps without telling, perhaps late."""
        compares, changes = tuple(compares), tuple(changes)
        if not self._store.is_reachable(self._name):
            # The connection may be open or not: if it is, it is unknown whether the request was sent.
            await asyncio.sleep(CALL_S)
            if self._store.random.random() < 0.5:
                raise CoordinationUnavailableError("no endpoint can be reached")
            return CommitResult(Outcome.UNKNOWN)
        try:
            return await self._once(lambda: self._store.inner.commit(compares, changes))
        except _NoAnswerError:
            return CommitResult(Outcome.UNKNOWN)

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield changes late, and break now and then."""
        store = self._store
        await self._reached()
        watch = store.inner.watch(prefix, after)
        try:
            while True:
                events = await self._next(watch)
                await asyncio.sleep(store.random.uniform(0, store.faults.watch_delay_s_max))
                yield events
                if store.random.random() < store.faults.watch_break_rate:
                    raise CoordinationUnavailableError("the watch broke")
        finally:
            await watch.aclose()

    async def grant(self, ttl_s: float) -> Lease:
        """Create a lease."""
        return await self._repeated(lambda: self._store.inner.grant(ttl_s))

    async def renew(self, lease: int, timeout_s: float) -> float:
        """Extend a lease."""
        try:
            return await self._once(lambda: self._store.inner.renew(lease, timeout_s), timeout_s)
        except _NoAnswerError as error:
            raise CoordinationUnavailableError("a lease was not renewed") from error

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        await self._repeated(lambda: self._store.inner.revoke(lease))

    async def close(self) -> None:
        """Nothing is open."""

    async def _repeated(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until the deadline; for what may be done twice."""
        deadline = asyncio.get_running_loop().time() + READ_S
        while True:
            try:
                return await self._once(call)
            except _NoAnswerError as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise CoordinationUnavailableError("the store does not answer") from error

    async def _once(self, call: Callable[[], Awaitable[_T]], timeout_s: float = CALL_S) -> _T:
        store, faults = self._store, self._store.faults
        draw = store.random.random()
        if not store.is_reachable(self._name) or draw < faults.lost_rate:
            await asyncio.sleep(timeout_s)
            raise _NoAnswerError
        if draw < faults.lost_rate + faults.unanswered_rate:
            late_s = store.random.choice([0.0, store.random.uniform(0, LATE_S_MAX)])
            done_later = asyncio.ensure_future(_later(call, late_s, store))
            await asyncio.sleep(timeout_s)
            done_later.add_done_callback(lambda done: done.exception() if not done.cancelled() else None)
            raise _NoAnswerError
        await asyncio.sleep(store.random.uniform(0, faults.delay_s_max))
        if not store.is_reachable(self._name):
            await asyncio.sleep(timeout_s)
            raise _NoAnswerError
        answer = await call()
        await asyncio.sleep(store.random.uniform(0, faults.delay_s_max))
        if not store.is_reachable(self._name):
            await asyncio.sleep(timeout_s)
            raise _NoAnswerError
        return answer

    async def _next(self, watch: AsyncGenerator[tuple[Event, ...], None]) -> tuple[Event, ...]:
        """The next events, unless the client is cut off: then nothing comes, and after a while the watch is given up."""
        reading = asyncio.ensure_future(anext(watch))
        try:
            while True:
                await asyncio.wait({reading}, timeout=SILENCE_S)
                await self._reached()
                if reading.done():
                    return await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _reached(self) -> None:
        if not self._store.is_reachable(self._name):
            await asyncio.sleep(CALL_S)
            raise CoordinationUnavailableError("the store cannot be reached")


class _NoAnswerError(Exception):
    """A call that got no answer; it may have been done."""


async def _later(call: Callable[[], Awaitable[object]], late_s: float, store: SimCoordination) -> None:
    await asyncio.sleep(late_s)
    if not store.is_away:
        await call()
