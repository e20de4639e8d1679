"""Which node owns which tablets, as ranges of ids, and the transactions that change it. No I/O.

A range is one key: `owners/FIRST` holds its last tablet and its owner. Ranges do not overlap after any of the transactions, and
neighbours of one owner are joined when they are touched. A change of many ranges takes several transactions: until the last one
the rest stays with its old owner, and the right to write comes from storage in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from sortedcontainers import SortedDict

from penstock.coordination.key_layout import OWNERS, number_in, owner_key
from penstock.coordination.key_mirror import KeyChange
from penstock.coordination.port import Change, Compare, Delete, Entry, Put
from penstock.core.errors import CorruptionError, InvalidRequestError

RANGES_PER_TRANSACTION: Final = 100
"""Ranges replaced by one transaction. With the neighbours, and the leader key, it stays below what a store allows."""
TABLETS_PER_TRANSACTION: Final = RANGES_PER_TRANSACTION // 3
"""Single tablets given to nodes by one transaction: each may split a range in three."""
TABLET_MAX: Final = (1 << 64) - 1
SYSTEM_TABLET_MAX: Final = 999
"""The highest id of a system tablet, by which the leader runs the broker; those of topics are higher."""


_UNWRITTEN: Final = -1


@dataclass(frozen=True, slots=True)
class TabletRange:
    """Tablets `first` to `last`, both included, and the node that owns them."""

    first: int
    last: int
    node_id: int


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """One transaction: apply it, then go on with the next."""

    compares: tuple[Compare, ...]
    changes: tuple[Change, ...]


class _StoredRange(msgspec.Struct, frozen=True, array_like=True):
    last: int
    node_id: int


class OwnerMap:
    """All ranges with the revisions that wrote them."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._ranges: SortedDict[int, tuple[TabletRange, int]] = SortedDict()
        for entry in entries:
            stored = decode_range(entry)
            self._ranges[stored.first] = (stored, entry.revision)

    def follow(self, changes: Iterable[KeyChange]) -> None:
        """Apply what has changed in the store. CorruptionError if a key does not hold a range."""
        for change in changes:
            if not change.key.startswith(OWNERS):
                continue
            if change.after is None:
                self._ranges.pop(number_in(change.key), None)
            else:
                stored = decode_range(change.after)
                self._ranges[stored.first] = (stored, change.after.revision)

    def ranges(self) -> list[TabletRange]:
        """All ranges, sorted."""
        return [stored for stored, _ in self._ranges.values()]

    def counts(self) -> dict[int, int]:
        """How many tablets of topics each node owns."""
        counts: dict[int, int] = {}
        for stored, _ in self._ranges.values():
            owned = stored.last - max(stored.first, SYSTEM_TABLET_MAX + 1) + 1
            if owned > 0:
                counts[stored.node_id] = counts.get(stored.node_id, 0) + owned
        return counts

    def owner_of(self, tablet_id: int) -> int | None:
        """The node that should own a tablet; None if no node was assigned."""
        at = self._ranges.bisect_right(tablet_id) - 1
        if at < 0:
            return None
        stored, _ = self._ranges.peekitem(at)[1]
        return stored.node_id if tablet_id <= stored.last else None

    def plan(self, first: int, last: int, node_id: int | None) -> Iterator[OwnerChange]:
        """The transactions that give tablets `first` to `last` to a node, or to none.

        Each is planned on the map as it is when it is asked for: apply the one before first, both in the store and here.
        """
        if not 0 <= first <= last <= TABLET_MAX:
            raise InvalidRequestError(f"{first} to {last} is not a range of tablets")
        while first <= last:
            touched = self._touched(first, last)
            until = last
            if len(touched) > RANGES_PER_TRANSACTION:
                touched = touched[:RANGES_PER_TRANSACTION]
                until = min(last, touched[-1][0].last)
            change = _replace(touched, first, until, node_id)
            if change.changes:
                yield change
            first = until + 1

    def plan_each(self, owners: Mapping[int, int | None]) -> Iterator[OwnerChange]:
        """The transactions that give each of these tablets to its node, or to none, in the order of the mapping. Apply each
        before the next is asked for, as in `plan`."""
        wanted = list(owners)
        for begin in range(0, len(wanted), TABLETS_PER_TRANSACTION):
            after = OwnerMap()
            after._ranges = self._ranges.copy()
            for tablet_id in wanted[begin : begin + TABLETS_PER_TRANSACTION]:
                for step in after.plan(tablet_id, tablet_id, owners[tablet_id]):
                    after.apply(step, _UNWRITTEN)
            change = self._difference(after)
            if change.changes:
                yield change

    def _difference(self, after: OwnerMap) -> OwnerChange:
        """The transaction from this map to another one."""
        compares: list[Compare] = []
        changes: list[Change] = []
        for begin in sorted(self._ranges.keys() | after._ranges.keys()):
            before, revision = self._ranges.get(begin, (None, 0))
            stored, _ = after._ranges.get(begin, (None, 0))
            if before != stored:
                compares.append(Compare(owner_key(begin), revision))
                changes.append(Delete(owner_key(begin)) if stored is None else _put(stored))
        return OwnerChange(tuple(compares), tuple(changes))

    def apply(self, change: OwnerChange, revision: int) -> None:
        """A planned transaction is done."""
        for operation in change.changes:
            first = number_in(operation.key)
            if isinstance(operation, Put):
                self._ranges[first] = (decode_range(Entry(operation.key, operation.value, revision)), revision)
            else:
                self._ranges.pop(first, None)

    def _touched(self, first: int, last: int) -> list[tuple[TabletRange, int]]:
        """The ranges that overlap these tablets or lie right beside them."""
        at = max(0, self._ranges.bisect_right(max(0, first - 1)) - 1)
        touched: list[tuple[TabletRange, int]] = []
        for begin in self._ranges.islice(at):
            stored, revision = self._ranges[begin]
            if begin > last + 1 or len(touched) > RANGES_PER_TRANSACTION:
                break
            if stored.last >= first - 1:
                touched.append((stored, revision))
        return touched


def _replace(touched: Sequence[tuple[TabletRange, int]], first: int, last: int, node_id: int | None) -> OwnerChange:
    """Give tablets to a node; `touched` are the ranges that overlap or adjoin them."""
    after = [
        TabletRange(stored.first, min(stored.last, first - 1), stored.node_id) for stored, _ in touched if stored.first < first
    ]
    if node_id is not None:
        after.append(TabletRange(first, last, node_id))
    after += [
        TabletRange(max(stored.first, last + 1), stored.last, stored.node_id) for stored, _ in touched if stored.last > last
    ]
    old = {stored.first: (stored, revision) for stored, revision in touched}
    new = {joined.first: joined for joined in _join(after)}
    compares: list[Compare] = []
    changes: list[Change] = []
    for begin in sorted(old.keys() | new.keys()):
        before, revision = old.get(begin, (None, 0))
        joined = new.get(begin)
        if before != joined:
            compares.append(Compare(owner_key(begin), revision))
            changes.append(Delete(owner_key(begin)) if joined is None else _put(joined))
    return OwnerChange(tuple(compares), tuple(changes))


def decode_range(entry: Entry) -> TabletRange:
    """A range as it was stored."""
    try:
        stored = msgspec.json.decode(entry.value, type=_StoredRange)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"the key {entry.key} does not hold the owner of tablets: {error}") from error
    return TabletRange(number_in(entry.key), stored.last, stored.node_id)


def _put(stored: TabletRange) -> Put:
    return Put(owner_key(stored.first), msgspec.json.encode(_StoredRange(stored.last, stored.node_id)))


def _join(ranges: Sequence[TabletRange]) -> Iterator[TabletRange]:
    """Join neighbours of one owner."""
    current: TabletRange | None = None
    for stored in ranges:
        if current is not None and current.last + 1 == stored.first and current.node_id == stored.node_id:
            current = TabletRange(current.first, stored.last, current.node_id)
            continue
        if current is not None:
            yield current
        current = stored
    if current is not None:
        yield current
