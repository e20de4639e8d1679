"""The transactions that touch a partition: which are open, and which were aborted. Pure; Kafka's rules.

Readers of committed data stop at the *last stable offset*, the first offset of the oldest open transaction, and leave out what
aborted ones wrote.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.kernels.produce_frame import ProducedBatch
from penstock.queue import keys
from penstock.queue.batch import Batch, is_commit_marker
from penstock.queue.errors import OpenTransactionError


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer, its first offset, and the offset of its marker."""

    last_offset: int
    producer_id: int
    first_offset: int


class _AbortedHistory:
    """Aborted transactions by last offset. With each stands the lowest first offset of it and of all after it, which tells a
    search how far it has to look."""

    __slots__ = ("entries", "floors")

    def __init__(self) -> None:
        self.entries: list[Aborted] = []
        self.floors: list[int] = []

    def extend(self, entries: Iterable[Aborted]) -> None:
        for entry in entries:
            at = len(self.entries)
            self.entries.append(entry)
            self.floors.append(entry.first_offset)
            while at and self.floors[at - 1] > entry.first_offset:
                at -= 1
                self.floors[at] = entry.first_offset

    def between(self, begin: int, end: int) -> list[Aborted]:
        aborted: list[Aborted] = []
        for at in range(bisect_left(self.entries, (begin,)), len(self.entries)):
            if self.floors[at] >= end:
                break
            if self.entries[at].first_offset < end:
                aborted.append(self.entries[at])
        return aborted

    def cut(self, start_offset: int) -> None:
        gone = bisect_left(self.entries, (start_offset,))
        if gone:
            del self.entries[:gone], self.floors[:gone]

    def keep(self, entries: Iterable[Aborted]) -> None:
        kept = list(entries)
        del self.entries[:], self.floors[:]
        self.extend(kept)


class Transactions:
    """Open and aborted transactions of one partition. Those aborted by writes that are not durable yet stand apart, so that a
    copy need not copy all that were aborted before."""

    __slots__ = ("_added", "_history", "open")

    def __init__(self, before: Transactions | None = None) -> None:
        self.open: dict[int, int] = {} if before is None else dict(before.open)
        self._history: _AbortedHistory = _AbortedHistory() if before is None else before._history
        self._added: list[Aborted] = []

    @property
    def aborted(self) -> list[Aborted]:
        """Every aborted transaction, by last offset."""
        return [*self._history.entries, *self._added]

    def nth_aborted(self, number: int) -> Aborted | None:
        """The aborted transaction that so many durable ones come before; None if there are not so many."""
        return self._history.entries[number] if number < len(self._history.entries) else None

    def load(self, aborted: Iterable[Aborted]) -> None:
        """Take in aborted transactions that are stored, by last offset."""
        self._history.extend(aborted)

    def stable_offset(self, end_offset: int) -> int:
        """Up to where everything is decided."""
        return min(self.open.values()) if self.open else end_offset

    def aborted_between(self, begin: int, end: int) -> list[Aborted]:
        """Aborted transactions with a part in begin <= offset < end."""
        if not self._added and not self._history.entries:
            return []
        added = (
            transaction for transaction in self._added if transaction.last_offset >= begin and transaction.first_offset < end
        )
        return [*self._history.between(begin, end), *added]

    def copy(self) -> Transactions:
        """A copy for planning further writes. Both share the history of durably aborted transactions; what the copy adds joins
        that history when it is settled."""
        return Transactions(self)

    def settle(self) -> None:
        """Called when the writes noted here, and all before them, are durable."""
        if self._added:
            self._history.extend(self._added)
            self._added.clear()

    def note(self, partition: int, batch: Batch | ProducedBatch, base_offset: int) -> list[tuple[bytes, bytes | None]]:
        """Apply a batch and return the keys that change with it (None: delete the key)."""
        producer = batch.producer_id
        if not batch.is_transactional:
            if self.open and producer in self.open:
                raise OpenTransactionError(f"producer {producer} has a transaction open here; it must write within it or end it")
            return []
        key = keys.transaction_key(partition, producer)
        if not batch.is_control:
            if producer in self.open:
                return []
            self.open[producer] = base_offset
            return [(key, keys.pack_offset(base_offset))]
        is_commit = is_commit_marker(batch)  # first: a batch that is refused changes nothing
        first_offset = self.open.pop(producer, None)
        if first_offset is None:
            return []
        if is_commit:
            return [(key, None)]
        self._added.append(Aborted(base_offset, producer, first_offset))
        return [(key, None), (keys.aborted_key(partition, base_offset, producer), keys.pack_offset(first_offset))]

    def forget_before(self, start_offset: int) -> None:
        """Forget aborted transactions that end before `start_offset`."""
        self._history.cut(start_offset)

    def forget(self, gone: Collection[Aborted]) -> None:
        """Forget aborted transactions of which compaction left nothing, not even the marker."""
        if gone:
            self._history.keep(one for one in self._history.entries if one not in gone)
