"""Writing one blob to a group: main disks first, handoffs for those that fail or lag, OK as soon as the quorum stands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from penstock.blob.blob_id import PREFIX_SIZE
from penstock.blob.disk import Buffer
from penstock.blob.group import Group
from penstock.blob.link import DiskReply
from penstock.blob.quorum import put_done, put_possible
from penstock.blob.record import BLOCK_SIZE
from penstock.blob.status import OK, Reply, Status
from penstock.blob.topology import Erasure, allowed_parts, main_part
from penstock.blob.vector import Content, SummedBuffer, contiguous
from penstock.core.clock import Clock

_OK = Status.OK  # to look it up in the enumeration costs every part a third of a microsecond
Assignment = tuple[int, int]
"""(subgroup index, part)."""


class PutOperation:
    """One put to a group of several disks. With `restored`, the blob exists with these parts, by subgroup index, and only missing
    ones are written; blocks of newer generations do not stop it."""

    def __init__(
        self,
        group: Group,
        clock: Clock,
        blob_id: bytes,
        data: Buffer,
        *,
        restored: Sequence[int] | None = None,
        from_reserve: bool = False,
    ) -> None:
        self._group = group
        self._erasure = group.erasure
        self._clock = clock
        self._generation = group.generation
        self._prefix = blob_id[:PREFIX_SIZE]
        self._size = len(data)
        self._parts = _with_checksums(group, group.codec.encode(data), restored is not None)
        self._orders = group.subgroup(self._prefix)
        self._held = [0] * len(self._orders) if restored is None else list(restored)
        self._lost = 0
        self._pending: dict[asyncio.Task[DiskReply], Assignment] = {}
        self._written: list[tuple[Assignment, tuple[int, int]]] = []  # with the place in the log
        self._reasons: list[str] = []
        self._out_of_space = False
        self._behind = False
        self._collected = False
        self._restoring = restored is not None
        self._from_reserve = from_reserve
        self._may_hedge = True
        self._detoured = False

    async def run(self) -> Reply:
        """Write until the quorum is reached or cannot be."""
        self._send(self._first_assignments())
        while self._pending:
            hedge = self._group.hedge_delay(self._clock.monotonic()) if self._may_hedge else None
            done, _ = await asyncio.wait(self._pending, timeout=hedge, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                # Disks that have not answered by now are suspect: their parts go to handoffs as well.
                more = self._more(doubted=True)
                self._send(more)
                self._detoured |= bool(more)
                self._may_hedge = False
                continue
            for task in done:
                verdict = self._note(task)
                if verdict is not None:
                    return verdict
            if put_done(self._erasure, self._held):
                self._watch_stragglers()
                return OK
            if not put_possible(self._erasure, self._held, self._lost):
                return self._failure()
            self._send(self._more(doubted=False))
        return self._failure()

    def _first_assignments(self) -> list[Assignment]:
        mains = [(index, part) for index in range(len(self._orders)) if (part := main_part(self._erasure, index))]
        has_handoffs = len(mains) < len(self._orders)
        mains = [(index, part) for index, part in mains if not self._held[index] >> part - 1 & 1]
        slow = self._group.slowest(self._clock.monotonic())
        if slow is None or not has_handoffs:
            return mains  # where there are no handoffs, every disk gets its copy, and the quorum does not wait for the slowest
        self._group.paces[slow].forgive()
        self._detoured = True
        wanted = [assignment for assignment in mains if self._orders[assignment[0]] != slow]
        expected = list(self._held)
        for index, part in wanted:
            expected[index] |= 1 << part - 1
        return wanted + self._additions(expected, {self._orders.index(slow)}) or mains

    def _more(self, *, doubted: bool) -> list[Assignment]:
        """What else to send so that the quorum is reached; with `doubted`, without counting on those that have not answered."""
        expected = list(self._held)
        silent = {index for index, _ in self._pending.values()}
        if not doubted:
            for index, part in self._pending.values():
                expected[index] |= 1 << part - 1
        return self._additions(expected, silent)

    def _additions(self, expected: list[int], avoid: set[int]) -> list[Assignment]:
        """The fewest assignments to free disks that complete the quorum; none if nothing does."""
        barred = self._lost | sum(1 << index for index in avoid)
        return list(_fewest_additions(self._erasure, tuple(expected), barred))

    def _send(self, assignments: list[Assignment]) -> None:
        for index, part in assignments:
            task = self._group.spawn(self._store(index, part))
            self._pending[task] = (index, part)

    async def _store(self, index: int, part: int) -> DiskReply:
        order = self._orders[index]
        link = self._group.links[order]
        if link is None:
            return DiskReply(Status.ERROR, f"VDisk {self._group.vdisk_id(order)} is out")
        blob_id = self._prefix + (self._size << 4 | part).to_bytes(4, "big")
        pace = self._group.paces[order]
        started = self._clock.monotonic()
        pace.begin(started)
        try:
            body = self._parts[part - 1]
            if self._restoring:
                return await link.put_replica(self._generation, blob_id, contiguous(body))
            return await link.put(self._generation, blob_id, body, from_reserve=self._from_reserve)
        finally:
            pace.end(started, self._clock.monotonic())

    def _note(self, task: asyncio.Task[DiskReply]) -> Reply | None:
        """Note a disk's answer. Returns the answer to the whole put if this decides it."""
        index, part = self._pending.pop(task)
        reply = task.result()
        if reply.status is _OK:
            self._held[index] |= 1 << part - 1
            if reply.written:
                self._written.append(((index, part), reply.place))
            return None
        if reply.status is Status.BLOCKED or (reply.status is Status.RACE and not reply.is_behind):
            return Reply(reply.status, reply.reason)
        if reply.is_behind:
            self._behind = True
            self._group.note_race()  # it is offered the configuration of this node
        if reply.conflict:
            _ = self._group.spawn(self._take_back())
            return Reply(Status.ERROR, reply.reason)
        self._lost |= 1 << index
        self._out_of_space |= reply.status is Status.OUT_OF_SPACE
        self._collected |= reply.status is Status.NODATA
        self._reasons.append(reply.reason)
        return None

    def _failure(self) -> Reply:
        status = Status.NODATA if self._collected else Status.OUT_OF_SPACE if self._out_of_space else Status.ERROR
        if self._behind:
            status = Status.RACE  # with the disks that have not followed yet there may be enough
        return Reply(status, "too few disks took the blob: " + "; ".join(dict.fromkeys(self._reasons)))

    def _watch_stragglers(self) -> None:
        """Watch writes beyond the quorum: if one fails, replication restores its part."""
        if self._lost or self._detoured:
            self._group.note_disorder()

        def check(task: asyncio.Task[DiskReply]) -> None:
            if not task.cancelled() and task.exception() is None and task.result().status is not _OK:
                self._group.note_disorder()

        for task in self._pending:
            task.add_done_callback(check)

    async def _take_back(self) -> None:
        """Drop the parts this put stored: another blob has the id, and these must not be mistaken for parts of it."""
        while self._pending:
            done, _ = await asyncio.wait(self._pending)
            for task in done:
                assignment = self._pending.pop(task)
                if task.result().written:
                    self._written.append((assignment, task.result().place))
        for (index, part), place in self._written:
            link = self._group.links[self._orders[index]]
            if link is not None:
                await link.drop(self._generation, self._prefix + (self._size << 4 | part).to_bytes(4, "big"), place)


def _with_checksums(group: Group, parts: list[Buffer], restoring: bool) -> Sequence[Content]:
    """Long parts that go to other nodes, with their checksums; those of equal parts are computed once."""
    if restoring or len(parts[0]) <= BLOCK_SIZE or not any(link is not None and link.is_remote for link in group.links):
        return parts
    summed = {id(part): SummedBuffer(part, BLOCK_SIZE) for part in parts}
    return [summed[id(part)] for part in parts]


@lru_cache(maxsize=4096)
def _fewest_additions(erasure: Erasure, expected: tuple[int, ...], barred: int) -> tuple[Assignment, ...]:
    """See PutOperation._additions. Remembered, because many puts at once meet the same slow disk, and the search is long."""
    if put_done(erasure, expected):
        return ()
    candidates = [
        (index, part)
        for index in range(len(expected))
        if not barred >> index & 1
        for part in allowed_parts(erasure, index)
        if not expected[index] >> part - 1 & 1
    ]
    for count in range(1, 5):
        for chosen in combinations(candidates, count):
            if len({index for index, _ in chosen}) < count:
                continue
            trial = list(expected)
            for index, part in chosen:
                trial[index] |= 1 << part - 1
            if put_done(erasure, trial):
                return chosen
    return ()
