"""The transactions that touch a partition: which are open, and which were aborted. Pure; Kafka's rules.

Readers of committed data stop at the *last stable offset*, the first offset of the oldest open transaction, and leave out what
aborted ones wrote.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.queue import keys
from penstock.queue.batch import Batch, is_commit_marker
from penstock.queue.errors import OpenTransactionError


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer, its first offset, and the offset of its marker."""

    last_offset: int
    producer_id: int
    first_offset: int


class Transactions:
    """Open and aborted transactions of one partition."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.aborted: list[Aborted] = []  # by last offset

    def stable_offset(self, end_offset: int) -> int:
        """Up to where everything is decided."""
        return min(self.open.values(), default=end_offset)

    def aborted_between(self, begin: int, end: int) -> list[Aborted]:
        """Aborted transactions with a part in begin <= offset < end."""
        return [one for one in self.aborted if one.last_offset >= begin and one.first_offset < end]

    def copy(self) -> Transactions:
        """A copy on which the effect of a write can be tried."""
        twin = Transactions()
        twin.open = dict(self.open)
        twin.aborted = list(self.aborted)
        return twin

    def note(self, partition: int, batch: Batch, base_offset: int) -> list[tuple[bytes, bytes | None]]:
        """Take in a batch; the keys that change with it (None: to be deleted)."""
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
        self.aborted.append(Aborted(base_offset, producer, first_offset))
        return [(key, None), (keys.aborted_key(partition, base_offset, producer), keys.pack_offset(first_offset))]

    def forget_before(self, start_offset: int) -> None:
        """Aborted transactions that nobody can read any more are forgotten."""
        self.aborted = [one for one in self.aborted if one.last_offset >= start_offset]

    def forget(self, gone: Collection[Aborted]) -> None:
        """Aborted transactions of which nothing is left, not even the marker, are forgotten."""
        if gone:
            self.aborted = [one for one in self.aborted if one not in gone]
