"""The writing of a partition: what waits is taken into cycles, and one cycle is on its way to the disk at a time.

It runs without a task: a cycle begins at the end of the turn of the loop that brought its first batch, and the tablet's answer
goes on from there. While one cycle is in flight the next is filled. A failed cycle fails everything queued behind it: otherwise
dedup would reject the retries of the failed writes for ever.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from penstock.core.errors import OutOfSpaceError, PenstockError, UnavailableError
from penstock.queue.change_lock import ChangeLock
from penstock.queue.errors import PartitionFullError
from penstock.queue.head import HeadPlan
from penstock.queue.sources import SourceState
from penstock.queue.write_cycle import WaitingWrite, WriteCycle
from penstock.queue.write_queue import WriteQueue
from penstock.tablet import KvTablet, Request, Result

log = logging.getLogger(__name__)

CYCLE_BYTES_MAX = 16 << 20


class Written(Protocol):
    """The partition that is written to."""

    number: int

    def new_cycle(self, before: WriteCycle | None) -> WriteCycle:
        """A cycle that follows another, or what is stored."""
        ...

    def plan(self, cycle: WriteCycle) -> tuple[HeadPlan, Request] | None:
        """What a cycle does to the head, and the request that does it; None if it has nothing to write."""
        ...

    def advance(self, cycle: WriteCycle, plan: HeadPlan) -> None:
        """A cycle is durable: from now on it can be read."""
        ...

    def source(self, source: bytes) -> SourceState | None:
        """What a source has written last."""
        ...


class Writing:
    """The cycles of one partition."""

    def __init__(self, partition: Written, tablet: KvTablet, changing: ChangeLock) -> None:
        self._partition = partition
        self._tablet = tablet
        self._changing = changing
        self._queue = WriteQueue()  # what fits in no cycle yet
        self._next: WriteCycle | None = None  # being filled
        self._current: WriteCycle | None = None  # on its way to the disk
        self._is_in_flight = False  # whether a cycle is being written, or is scheduled

    def admit(self, size: int, bytes_max: int) -> None:
        """Raise WriteQueueFullError unless another write of this size may wait."""
        self._queue.admit(size, bytes_max, self._current, self._next)

    def in_flight(self) -> tuple[int, int]:
        """Messages and bytes of all writes that are accepted and not stored yet."""
        messages, size = self._queue.messages, self._queue.bytes
        for cycle in (self._current, self._next):
            if cycle is not None:
                messages += cycle.messages
                size += cycle.size
        return messages, size

    def append(self, waiting: WaitingWrite) -> None:
        """A write that comes after all others."""
        self._queue.append(waiting)
        self._prepare()
        if not self._is_in_flight:
            # Not at once: what else this turn of the loop brings goes along.
            self._is_in_flight = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _prepare(self) -> None:
        """Move queued writes into the next cycle, up to its size limit. The previous cycle may still be in flight."""
        if self._next is None:
            self._next = self._partition.new_cycle(self._current)
        self._queue.move(self._next, CYCLE_BYTES_MAX)

    def _begin(self) -> None:
        """Write the next cycle once no other change of the partition holds the lock."""
        turn = self._changing.take()
        if turn is None:
            self._write()
        else:
            turn.add_done_callback(lambda _: self._write())

    def _write(self) -> None:
        """Commit a cycle as a whole."""
        cycle, self._next = self._next, None
        assert cycle is not None, "only a cycle in flight drops the one behind it"
        self._current = cycle
        try:
            if self._queue:
                self._prepare()
            planned = self._partition.plan(cycle)
            if planned is not None:
                plan, request = planned
                self._tablet.submit(request, _Outcome(self, cycle, plan))
        except Exception as error:  # noqa: BLE001 - no caller may be left waiting, whatever the error
            self.failed(error)
        else:
            if planned is None:
                self._go_on(cycle)

    def stored(self, cycle: WriteCycle, plan: HeadPlan) -> None:
        """Called when the cycle in flight is durable."""
        try:
            self._partition.advance(cycle, plan)
        except Exception as error:  # noqa: BLE001 - as above
            self.failed(error)
        else:
            self._go_on(cycle)

    def failed(self, error: Exception) -> None:
        """Called when the cycle in flight was not stored, or its outcome is unknown."""
        if isinstance(error, OutOfSpaceError):
            told: PenstockError = PartitionFullError(f"the storage of partition {self._partition.number} is full: {error}")
        elif isinstance(error, PenstockError):
            told = error
        else:
            log.error("partition %d cannot go on writing", self._partition.number, exc_info=error)
            told = UnavailableError(f"partition {self._partition.number} stopped writing; try again")
        cycles, self._current, self._next = (self._current, self._next), None, None
        self._is_in_flight = False
        for cycle in cycles:
            if cycle is not None:
                cycle.fail(told)
        # Writes queued behind may be of the same sources: once they are stored, retries of the failed ones would be rejected.
        self._queue.fail(told)
        self._changing.leave(error)

    def _go_on(self, cycle: WriteCycle) -> None:
        """Tell the writers of a cycle, and go on with the next."""
        self._current = None
        self._changing.leave()
        if self._next is None:
            self._is_in_flight = False
            cycle.acknowledge()
        else:
            self._next.follow(self._partition.source)
            # Two turns of the loop later the next cycle is with the disk, which works while the writers go on.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, cycle.acknowledge)
            self._begin()


class _Outcome:
    """Told by the tablet what becomes of a cycle."""

    __slots__ = ("_cycle", "_is_told", "_plan", "_writing")

    def __init__(self, writing: Writing, cycle: WriteCycle, plan: HeadPlan) -> None:
        self._writing = writing
        self._cycle = cycle
        self._plan = plan
        self._is_told = False

    def done(self) -> bool:
        return self._is_told

    def set_result(self, result: list[Result], /) -> None:
        self._is_told = True
        self._writing.stored(self._cycle, self._plan)

    def set_exception(self, exception: PenstockError, /) -> None:
        self._is_told = True
        self._writing.failed(exception)
