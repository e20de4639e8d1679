"""A copy of all keys of a cluster, kept up to date from listings and watches. No I/O.

A listing that follows a lost watch is compared with the copy, so that its reader sees each change once, though several changes
of one key may come as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sortedcontainers import SortedDict

from penstock.coordination.port import Entry, Event, RolledBackError, Snapshot


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key before and after; None where it does not exist."""

    key: str
    before: Entry | None
    after: Entry | None


class KeyMirror:
    """Keys as of `revision`. 0 means that nothing was read yet."""

    def __init__(self) -> None:
        self.revision = 0
        self._entries: SortedDict[str, Entry] = SortedDict()

    def get(self, key: str) -> Entry | None:
        """One key."""
        return self._entries.get(key)

    def scan(self, prefix: str) -> list[Entry]:
        """All keys with a prefix, sorted."""
        entries = self._entries
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None
        return [entries[key] for key in entries.irange(prefix, end, inclusive=(True, False))]

    def check_listing(self, snapshot: Snapshot) -> None:
        """RolledBackError if a listing has a key as it was before the copy saw it change: revisions of a store that others
        write to as well may have grown past those that were seen."""
        for entry in snapshot.entries:
            known = self._entries.get(entry.key)
            if known is not None and entry.revision < known.revision:
                raise RolledBackError(
                    f"the key {entry.key} was written at revision {known.revision} before and at {entry.revision} now:"
                    " the store was restored from an old copy"
                )

    def apply_listing(self, snapshot: Snapshot) -> list[KeyChange]:
        """Take over a listing of all keys; returns what is different. A listing older than the copy replaces it as well: the
        caller lists such a store only after it was accepted as restored."""
        listed = {entry.key: entry for entry in snapshot.entries}
        changes = [
            KeyChange(key, self._entries.get(key), listed.get(key))
            for key in sorted(self._entries.keys() | listed.keys())
            if self._entries.get(key) != listed.get(key)
        ]
        self._entries = SortedDict(listed)
        self.revision = snapshot.position.revision
        return changes

    def apply_events(self, events: Sequence[Event]) -> list[KeyChange]:
        """Apply the events of one revision; those that the copy already has are ignored."""
        changes = []
        for event in self._newer(events):
            before = self._entries.get(event.key)
            if event.entry is None:
                self._entries.pop(event.key, None)
            else:
                self._entries[event.key] = event.entry
            if before != event.entry:
                changes.append(KeyChange(event.key, before, event.entry))
        if events:
            self.revision = max(self.revision, events[-1].revision)
        return changes

    def _newer(self, events: Iterable[Event]) -> list[Event]:
        return [event for event in events if event.revision > self.revision]
