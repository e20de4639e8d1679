"""The state of a store in memory: keys, revisions, leases and the latest changes. No I/O; the time comes with each call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from penstock.coordination.limits import check_transaction
from penstock.coordination.port import (
    NO_LEASE,
    Change,
    CommitResult,
    CompactedError,
    Compare,
    Delete,
    Entry,
    Event,
    Lease,
    Outcome,
    Position,
    Put,
    RolledBackError,
    Snapshot,
)

HISTORY_EVENTS_MAX: Final = 10_000
FIRST_REVISION: Final = 1


@dataclass(slots=True)
class _LeaseState:
    ttl_s: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class TableImage:
    """All of a table at one moment, to be restored later."""

    entries: dict[str, Entry]
    revision: int
    leases: dict[int, float]


class KeyTable:
    """Keys with the revisions that wrote them. Keeps the last changes for watches and deletes the keys of leases that end."""

    def __init__(self, store_id: str, *, history_max: int = HISTORY_EVENTS_MAX) -> None:
        self.store_id = store_id
        self.revision = FIRST_REVISION
        self._entries: dict[str, Entry] = {}
        self._leases: dict[int, _LeaseState] = {}
        self._last_lease = 0
        self._history: deque[tuple[Event, ...]] = deque()
        self._history_events = 0
        self._history_max = history_max
        self._compacted = FIRST_REVISION  # changes after this revision are in the history

    @property
    def position(self) -> Position:
        """Where the table is."""
        return Position(self.store_id, self.revision)

    def get(self, key: str) -> Snapshot:
        """One key."""
        entry = self._entries.get(key)
        return Snapshot((entry,) if entry is not None else (), self.position)

    def scan(self, prefix: str) -> Snapshot:
        """All keys with a prefix."""
        found = (entry for key, entry in self._entries.items() if key.startswith(prefix))
        return Snapshot(tuple(sorted(found, key=lambda entry: entry.key)), self.position)

    def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply the changes if every compare holds and every lease lives."""
        check_transaction(compares, changes)
        leases = {change.lease for change in changes if isinstance(change, Put)} - {NO_LEASE}
        if not leases <= self._leases.keys() or any(self._revision_of(compare.key) != compare.revision for compare in compares):
            return CommitResult(Outcome.REFUSED, self.position)
        self._apply(changes)
        return CommitResult(Outcome.DONE, self.position)

    def changes_after(self, revision: int, prefix: str) -> list[tuple[Event, ...]]:
        """The changes of keys with a prefix after a revision, those of one revision together."""
        if revision > self.revision:
            raise RolledBackError(f"a watch continues after revision {revision}, and the store is at {self.revision}")
        if revision < self._compacted:
            raise CompactedError(f"the changes after revision {revision} are gone; those after {self._compacted} are kept")
        newer = takewhile(lambda events: events[0].revision > revision, reversed(self._history))
        chosen = [tuple(event for event in events if event.key.startswith(prefix)) for events in newer]
        return [events for events in reversed(chosen) if events]

    def compact(self, revision: int) -> None:
        """Forget the changes up to a revision."""
        while self._history and self._history[0][0].revision <= revision:
            self._history_events -= len(self._history.popleft())
        self._compacted = max(self._compacted, min(revision, self.revision))

    def grant(self, ttl_s: float, now: float) -> Lease:
        """Create a lease."""
        self._last_lease += 1
        self._leases[self._last_lease] = _LeaseState(ttl_s, now + ttl_s)
        return Lease(self._last_lease, ttl_s)

    def renew(self, lease: int, now: float) -> float:
        """Extend a lease; 0 if it has ended."""
        state = self._leases.get(lease)
        if state is None:
            return 0.0
        state.ends_at = now + state.ttl_s
        return state.ttl_s

    def revoke(self, leases: Iterable[int]) -> None:
        """End leases; their keys are deleted as one change each."""
        for lease in leases:
            if self._leases.pop(lease, None) is not None:
                self._apply([Delete(entry.key) for entry in self._entries.values() if entry.lease == lease])

    def expire(self, now: float) -> bool:
        """End the leases whose time is over; whether there were any."""
        ended = [lease for lease, state in self._leases.items() if state.ends_at <= now]
        self.revoke(ended)
        return bool(ended)

    def next_expiry(self) -> float | None:
        """When the next lease ends unless it is renewed."""
        return min((state.ends_at for state in self._leases.values()), default=None)

    @property
    def leases(self) -> list[int]:
        """The leases that live."""
        return list(self._leases)

    def image(self) -> TableImage:
        """A copy of everything, as a backup would have it."""
        return TableImage(dict(self._entries), self.revision, {lease: state.ttl_s for lease, state in self._leases.items()})

    def restore(self, image: TableImage, now: float) -> None:
        """Become what the copy has: leases get their whole length again, and no history is left."""
        self._entries = dict(image.entries)
        self.revision = self._compacted = image.revision
        self._leases = {lease: _LeaseState(ttl_s, now + ttl_s) for lease, ttl_s in image.leases.items()}
        self._history.clear()
        self._history_events = 0

    def _revision_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return entry.revision if entry is not None else 0

    def _apply(self, changes: Sequence[Change]) -> None:
        revision = self.revision + 1
        events = []
        for change in changes:
            if isinstance(change, Put):
                entry = Entry(change.key, change.value, revision, change.lease)
                self._entries[change.key] = entry
                events.append(Event(change.key, revision, entry))
            elif self._entries.pop(change.key, None) is not None:
                events.append(Event(change.key, revision, None))
        if not events:
            return
        self.revision = revision
        self._history.append(tuple(events))
        self._history_events += len(events)
        while self._history_events > self._history_max:
            self.compact(self._history[0][0].revision)
