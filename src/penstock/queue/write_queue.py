"""The bounded queue of writes to a partition that are in no cycle yet. Pure."""

from __future__ import annotations

from collections import deque

from penstock.core.errors import PenstockError
from penstock.queue.errors import WriteQueueFullError
from penstock.queue.write_cycle import WaitingWrite, WriteCycle


class WriteQueue:
    """Writes in their order, bounded by the bytes of all that have no outcome yet, those in cycles among them."""

    __slots__ = ("_resume_at", "_waiting", "bytes", "messages")

    def __init__(self) -> None:
        self._waiting: deque[WaitingWrite] = deque()
        self.bytes = 0
        self.messages = 0
        self._resume_at: int | None = None  # set while writes are refused

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def admit(self, size: int, bytes_max: int, *cycles: WriteCycle | None) -> None:
        """Raise WriteQueueFullError unless another write of this size may wait beside those here and in the cycles. One alone
        may always. Once one was refused, all are until it would fit and half of the room is free: else smaller ones that its
        source sent after it would overtake it."""
        held = self.bytes
        for cycle in cycles:
            if cycle is not None:
                held += cycle.taken_bytes
        if held and self._resume_at is None and held + size > bytes_max:
            self._resume_at = min(bytes_max // 2, bytes_max - size)
        if held and self._resume_at is not None and held > self._resume_at:
            raise WriteQueueFullError(
                f"{held} bytes wait to be written to the partition, and {bytes_max} may; send this again in a moment"
            )
        self._resume_at = None

    def append(self, waiting: WaitingWrite) -> None:
        """A write that comes after all others."""
        self._waiting.append(waiting)
        self.bytes += len(waiting.batch.data)
        self.messages += waiting.batch.messages

    def move(self, cycle: WriteCycle, cycle_bytes_max: int) -> None:
        """Let a cycle take writes from the front, as far as it has room; one it takes in any case."""
        waiting = self._waiting
        while waiting and (cycle.size == 0 or cycle.size + len(waiting[0].batch.data) <= cycle_bytes_max):
            moved = waiting.popleft()
            self.bytes -= len(moved.batch.data)
            self.messages -= moved.batch.messages
            cycle.take(moved)

    def fail(self, error: PenstockError) -> None:
        """Tell all that wait that nothing was written."""
        failed, self._waiting = self._waiting, deque()
        self.bytes = self.messages = 0
        for waiting in failed:
            if not waiting.done.done():
                waiting.done.set_exception(error)
