"""The tables of the system tablet on nodes that do not lead: the leader tells its changes, the others follow with a copy.

A follower asks with the epoch and the version that it has, and gets the changes since, or waits for the next. The epoch is the
generation of the system tablet: with another one, or a version that is too old, it gets all keys again, in pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from sortedcontainers import SortedDict

from penstock.broker.errors import SystemTabletUnavailableError
from penstock.broker.system_tablet import SystemTablet
from penstock.tablet import DeleteRange, KvTablet, Request, Result, Write

CHANGES_MAX: Final = 10_000  # that are kept; a follower that has missed more gets a snapshot
PAGE_BYTES: Final = 256 << 10
KEY_COST: Final = 32  # bytes of a key in a page, beside what it holds


class TablePosition(msgspec.Struct, frozen=True, array_like=True):
    """The position of a follower. During a snapshot, `next_key` is the first key of the next page."""

    epoch: int = 0
    version: int = 0
    next_key: bytes | None = None


class TableChange(msgspec.Struct, frozen=True, array_like=True):
    """What a key holds by now; None: it was deleted. With `until`, all keys from `key` up to it were."""

    key: bytes
    head: bytes | None
    until: bytes | None = None


class TablePage(msgspec.Struct, frozen=True, array_like=True):
    """Changes in their order, and the position after them. Those of a snapshot begin at the first key if `is_first`."""

    position: TablePosition
    changes: list[TableChange]
    is_first: bool = False


class TableFeed:
    """The changes of a system tablet, for its followers."""

    def __init__(self, tablet: SystemTablet) -> None:
        self._tablet = tablet
        self._epoch = tablet.generation
        self._version = 0
        self._forgotten = 0  # the version of the last change that is not kept any more
        self._changes: dict[bytes | tuple[bytes, bytes], int] = {}  # keys and ranges, oldest change first, with its version
        self._changed = asyncio.Event()
        tablet.watch(self._note)
        tablet.on_restart(self._restart)

    @property
    def position(self) -> TablePosition:
        """Where a follower is that has every change."""
        return TablePosition(self._epoch, self._version)

    async def next_page(self, position: TablePosition, wait_s: float) -> TablePage:
        """What a follower does not have. It waits for changes if there are none; the page may be empty all the same."""
        if position.epoch == self._epoch and position.next_key is None and position.version == self._version:
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
        if position.epoch != self._epoch:
            return self._snapshot(TablePosition(self._epoch, self._version, b""), is_first=True)
        if position.next_key is not None:
            return self._snapshot(position, is_first=False)
        if position.version < self._forgotten:
            return self._snapshot(TablePosition(self._epoch, self._version, b""), is_first=True)
        return self._since(position.version)

    def _snapshot(self, position: TablePosition, *, is_first: bool) -> TablePage:
        """A page of all keys as they are now. Changes made during the snapshot have a higher version, and are sent after it."""
        changes: list[TableChange] = []
        size = 0
        next_key: bytes | None = None
        for key in self._tablet.keys(position.next_key or b"", None):
            if size >= PAGE_BYTES:
                next_key = key
                break
            head = self._tablet.head(key)
            changes.append(TableChange(key, head))
            size += len(key) + len(head or b"") + KEY_COST
        return TablePage(TablePosition(position.epoch, position.version, next_key), changes, is_first)

    def _since(self, version: int) -> TablePage:
        newer: list[TableChange] = []
        size = 0
        reached = self._version
        for changed, changed_at in list(self._changes.items()):
            if changed_at <= version:
                continue
            if size >= PAGE_BYTES:
                break
            if isinstance(changed, tuple):
                newer.append(TableChange(changed[0], None, changed[1]))
            else:
                newer.append(TableChange(changed, self._tablet.head(changed)))
                size += len(newer[-1].head or b"")
            size += KEY_COST
            reached = changed_at
        return TablePage(TablePosition(self._epoch, reached), newer)

    def _note(self, request: Request) -> None:
        for command in request.commands:
            if isinstance(command, Write):
                changed: bytes | tuple[bytes, bytes] = command.key
            elif isinstance(command, DeleteRange):
                changed = (command.begin, command.end)
            else:
                continue
            self._version += 1
            self._changes.pop(changed, None)
            self._changes[changed] = self._version
        while len(self._changes) > CHANGES_MAX:
            oldest = next(iter(self._changes))
            self._forgotten = self._changes.pop(oldest)
        self._wake()

    async def _restart(self, tablet: KvTablet) -> None:
        """A new generation starts, which may include requests that failed before: send everything again."""
        self._epoch = tablet.generation
        self._version = self._forgotten = 0
        self._changes.clear()
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class FollowedTable:
    """A copy of the system tablet's keys that can only be read. `on_change` is called with the keys that changed, or None if any
    may have."""

    def __init__(self, on_change: Callable[[set[bytes] | None], None]) -> None:
        self._on_change = on_change
        self._heads: SortedDict[bytes, bytes] = SortedDict()
        self._snapshot: SortedDict[bytes, bytes] = SortedDict()  # while its pages come
        self.position = TablePosition()
        self.is_complete = False
        self._applied = TablePosition()
        self._waiting: list[tuple[TablePosition, asyncio.Future[None]]] = []

    def begin_with(self, tablet: KvTablet) -> None:
        """Have the keys of a tablet that this node has run itself, until those of the next leader are here."""
        heads = ((key, tablet.head(key)) for key in tablet.keys(b"", None))
        self._heads = SortedDict((key, head) for key, head in heads if head is not None)
        self.position = self._applied = TablePosition(tablet.generation)
        self.is_complete = True

    @property
    def generation(self) -> int:
        """The generation of the tablet that it follows."""
        return self.position.epoch

    async def execute(self, request: Request) -> list[Result]:
        """Refused: changes are made on the node that leads."""
        raise SystemTabletUnavailableError("this node does not lead the cluster, and changes nothing; ask the one that does")

    def head(self, key: bytes) -> bytes | None:
        """What a key keeps in memory; None if there is no such key."""
        return self._heads.get(key)

    def keys(self, begin: bytes, end: bytes | None) -> Iterator[bytes]:
        """Keys with begin <= key < end as they are now."""
        return iter(list(self._heads.irange(begin, end, inclusive=(True, False))))

    def take(self, page: TablePage) -> None:
        """Apply a page that was asked for with `position`."""
        is_snapshot = page.is_first or self.position.next_key is not None
        self.position = page.position
        if not is_snapshot:
            if page.changes:
                self._on_change(self._apply(page.changes))
            return
        if page.is_first:
            self._snapshot = SortedDict()
        self._snapshot.update((change.key, change.head) for change in page.changes if change.head is not None)
        if page.position.next_key is None:
            self._heads, self._snapshot = self._snapshot, SortedDict()
            self.is_complete = True
            self._on_change(None)

    def note_applied(self, position: TablePosition) -> None:
        """Everything up to a position is in effect on this node."""
        self._applied = position
        waiting, self._waiting = self._waiting, []
        for wanted, reached in waiting:
            if self._has_applied(wanted):
                reached.set_result(None)
            else:
                self._waiting.append((wanted, reached))

    async def applied(self, position: TablePosition, timeout_s: float) -> bool:
        """Wait until the changes up to a position are in effect on this node; whether they are."""
        if self._has_applied(position):
            return True
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (position, reached)
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await reached
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return True

    def _has_applied(self, position: TablePosition) -> bool:
        """A later epoch has all of the earlier ones."""
        return (self._applied.epoch, self._applied.version) >= (position.epoch, position.version)

    def _apply(self, changes: list[TableChange]) -> set[bytes]:
        changed: set[bytes] = set()
        for change in changes:
            if change.until is not None:
                gone = list(self._heads.irange(change.key, change.until, inclusive=(True, False)))
                changed.update(gone)
                for key in gone:
                    del self._heads[key]
                continue
            changed.add(change.key)
            if change.head is None:
                self._heads.pop(change.key, None)
            else:
                self._heads[change.key] = change.head
        return changed
