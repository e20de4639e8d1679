"""The owners of tablets as the leader reads and writes them, one change after the other."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from penstock.coordination import SYSTEM_TABLET_MAX, Coordination, Outcome, OwnerMap, TabletRange
from penstock.core.errors import UnavailableError

FREED_AT_ONCE: Final = 10


class _Assignment:
    """Owners that are written together."""

    def __init__(self) -> None:
        self.wanted: dict[int, int] = {}
        self.writing: asyncio.Task[None] | None = None


class Owners:
    """Keeps what was read or written last, and reads again after a write whose outcome is not known. What is to be written while
    a write is in flight is written together after it: a node that drains hands many tablets over at a time."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._map: OwnerMap | None = None
        self._writing = asyncio.Lock()
        self._next = _Assignment()

    async def read(self) -> OwnerMap:
        """All owners, after the write that is in flight: what is read during one may be older than what it leaves."""
        if self._map is not None:
            return self._map
        async with self._writing:
            return await self._read()

    async def _read(self) -> OwnerMap:
        if self._map is None:
            self._map = await self._coordination.read_owners()
        return self._map

    @property
    def known(self) -> OwnerMap:
        """All owners as last seen, without a look at the store."""
        return self._map if self._map is not None else self._coordination.owners()

    def forget(self) -> None:
        """Read again next time."""
        self._map = None

    async def assign(self, wanted: Mapping[int, int]) -> None:
        """Write the owners of tablets. UnavailableError if that is not known to be done: then some may be written."""
        assignment = self._next
        assignment.wanted.update(wanted)
        if assignment.writing is None:
            assignment.writing = asyncio.create_task(self._assign(assignment))
            assignment.writing.add_done_callback(_note_error)
        await asyncio.shield(assignment.writing)

    async def _assign(self, assignment: _Assignment) -> None:
        async with self._writing:
            self._next = _Assignment()
            await self._write(lambda owners: self._coordination.assign_each(owners, assignment.wanted))

    async def free(self, existing: Callable[[], Sequence[int]]) -> None:
        """Let tablets that are deleted or do not exist yet have no owner, a few ranges at a time. `existing` tells those that
        there are, sorted."""
        async with self._writing:
            ranges = (await self._read()).ranges()
            for first, last in islice(unused_ranges(ranges, existing()), FREED_AT_ONCE):
                await self._write(partial(self._coordination.assign, first=first, last=last, node_id=None))

    async def _write(self, write: Callable[[OwnerMap], Awaitable[Outcome]]) -> None:
        owners = await self._read()
        self._map = None
        outcome = await write(owners)
        if outcome is not Outcome.DONE:
            raise UnavailableError(f"writing the owners of tablets is {outcome.value}; try again")
        self._map = owners


def _note_error(written: asyncio.Task[None]) -> None:
    """Callers that were cancelled do not learn of an error."""
    if not written.cancelled():
        _ = written.exception()


def unused_ranges(ranges: Sequence[TabletRange], existing: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of ids of topics' tablets that have an owner and that no tablet has; `existing` are sorted."""
    for owned in ranges:
        first = max(owned.first, SYSTEM_TABLET_MAX + 1)
        at = bisect_left(existing, first)
        while first <= owned.last:
            used = existing[at] if at < len(existing) else owned.last + 1
            if used > first:
                yield first, min(used - 1, owned.last)
            first, at = used + 1, at + 1
