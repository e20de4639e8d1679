"""Between `Coordination` and any store: notes how the store is, and stops all changes once it turns out to be an older copy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from penstock.coordination.identity import check_position
from penstock.coordination.port import (
    Change,
    CommitResult,
    Compare,
    CoordinationRefusedError,
    CoordinationUnavailableError,
    Event,
    KeyStore,
    Lease,
    Outcome,
    Position,
    RolledBackError,
    Snapshot,
)
from penstock.coordination.status import CoordinationStatus, StoreState
from penstock.core.errors import OutOfSpaceError, PenstockError

_T = TypeVar("_T")

AWAY_S: Final = 1.0
"""A store of which no endpoint has answered for so long is away."""


class GuardedStore:
    """A `KeyStore` that checks each answer against the highest position seen before the request was sent."""

    def __init__(self, store: KeyStore, now: Callable[[], float]) -> None:
        self.inner = store
        self._now = now
        self._floor: Position | None = None
        self._answered_at = now()
        self._rolled_back = asyncio.Event()
        self.status = CoordinationStatus(StoreState.AWAY, now(), "the store was not asked yet")

    @property
    def position(self) -> Position | None:
        """The highest position seen; None before the first answer."""
        return self._floor

    def accept(self, position: Position) -> None:
        """Take the store as it is from now on, also if that is older than what was seen."""
        self._floor = position
        self._rolled_back.clear()
        self._note(StoreState.CONNECTED)

    def note_rolled_back(self, reason: str) -> RolledBackError:
        """Stop all changes: the store turned out to be an older copy, or not ours any more. Returns the error to raise."""
        error = RolledBackError(reason)
        self._note_error(error)
        return error

    async def get(self, key: str) -> Snapshot:
        """Read one key."""
        return await self._read(self.inner.get(key))

    async def scan(self, prefix: str) -> Snapshot:
        """Read all keys with a prefix."""
        return await self._read(self.inner.scan(prefix))

    async def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply a transaction, unless the store is known to be an older copy."""
        if self.status.state is StoreState.ROLLED_BACK:
            raise RolledBackError(self.status.reason)
        floor = self._floor
        result = await self._noted(self.inner.commit(compares, changes))
        if result.outcome is Outcome.UNKNOWN:
            self._note(StoreState.AWAY, "a transaction was not answered in time")
        elif result.position is not None:
            self._check(result.position, floor)
            if result.outcome is Outcome.DONE and self.status.state is StoreState.FULL:
                self._note(StoreState.CONNECTED)
        return result

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield changes after a revision."""
        stream = self.inner.watch(prefix, after)
        try:
            while True:
                try:
                    events = await self._next(stream)
                except (RolledBackError, CoordinationUnavailableError, CoordinationRefusedError) as error:
                    self._note_error(error)
                    raise
                if events and self._floor is not None and events[-1].revision > self._floor.revision:
                    self._floor = Position(self._floor.store_id, events[-1].revision)
                yield events
        finally:
            await stream.aclose()

    async def _next(self, stream: AsyncGenerator[tuple[Event, ...], None]) -> tuple[Event, ...]:
        """The next events; RolledBackError as soon as another call shows that the store was rolled back."""
        reading, rolled_back = asyncio.ensure_future(anext(stream)), asyncio.ensure_future(self._rolled_back.wait())
        try:
            await asyncio.wait({reading, rolled_back}, return_when=asyncio.FIRST_COMPLETED)
            if rolled_back.done():
                raise RolledBackError(self.status.reason)
            return await reading
        finally:
            reading.cancel()
            rolled_back.cancel()
            await asyncio.gather(reading, rolled_back, return_exceptions=True)

    async def grant(self, ttl_s: float) -> Lease:
        """Create a lease."""
        return await self._noted(self.inner.grant(ttl_s))

    async def renew(self, lease: int, timeout_s: float) -> float:
        """Extend a lease."""
        ttl_s = await self._noted(self.inner.renew(lease, timeout_s))
        if self.status.state is StoreState.AWAY:
            self._note(StoreState.CONNECTED)
        return ttl_s

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        await self._noted(self.inner.revoke(lease))

    async def close(self) -> None:
        """Close the store."""
        await self.inner.close()

    async def _read(self, reading: Awaitable[Snapshot]) -> Snapshot:
        floor = self._floor
        snapshot = await self._noted(reading)
        self._check(snapshot.position, floor)
        return snapshot

    def _check(self, position: Position, floor: Position | None) -> None:
        """Raise if an answer is older than what was known when its request was sent; answers may overtake each other."""
        if floor is not None:
            try:
                check_position(position, floor)
            except RolledBackError as error:
                self._note_error(error)
                raise
        if self._floor is None or position.revision > self._floor.revision:
            self._floor = position
        if self.status.state not in (StoreState.FULL, StoreState.ROLLED_BACK):
            self._note(StoreState.CONNECTED)

    async def _noted(self, call: Awaitable[_T]) -> _T:
        try:
            answer = await call
        except (RolledBackError, CoordinationUnavailableError, CoordinationRefusedError, OutOfSpaceError) as error:
            self._note_error(error)
            raise
        if not (isinstance(answer, CommitResult) and answer.outcome is Outcome.UNKNOWN):
            self._answered_at = self._now()
        return answer

    def _note_error(self, error: PenstockError) -> None:
        states: dict[type[PenstockError], StoreState] = {
            RolledBackError: StoreState.ROLLED_BACK,
            CoordinationRefusedError: StoreState.REFUSED,
            OutOfSpaceError: StoreState.FULL,
        }
        self._note(states.get(type(error), StoreState.AWAY), str(error))

    def _note(self, state: StoreState, reason: str = "") -> None:
        if self.status.state is StoreState.ROLLED_BACK and state is StoreState.AWAY:
            return  # that it was rolled back is the more important to know
        now = self._now()
        if state is StoreState.AWAY and now - self._answered_at < AWAY_S:
            return  # one endpoint failed, and others are asked
        if state is StoreState.ROLLED_BACK:
            self._rolled_back.set()
        since = self.status.since if state is self.status.state else now
        self.status = CoordinationStatus(state, since, reason)
