"""One partition of a Fetch request. What it consists of is declared in fetched_partition.pxd, for the kernel that uses it."""

from __future__ import annotations

from typing import Final

import cython

COMPILED: Final[bool] = cython.compiled

NOTHING_TO_READ: Final = -1
_NOTHING_TO_READ = cython.declare(cython.longlong, NOTHING_TO_READ)


@cython.final
@cython.cclass
class FetchedPartition:
    """One partition of a fetch: what is asked of it, what it holds for the client, and what the session told the client last."""

    def __init__(  # noqa: PLR0917 - compiled, keywords make it slower
        self,
        topic: object,
        index: cython.longlong,
        offset: cython.longlong = 0,
        size_max: cython.longlong = 0,
        leader_epoch: cython.longlong = -1,
        last_epoch: cython.longlong = -1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.key = (topic, index)
        self.offset = offset
        self.size_max = size_max
        self.leader_epoch = leader_epoch
        self.last_epoch = last_epoch
        self._kept = None
        self._sent_high = -2
        self.reset()

    def change(self, other: FetchedPartition) -> None:
        """Asks for what another does from now on."""
        self.offset = other.offset
        self.size_max = other.size_max
        self.leader_epoch = other.leader_epoch
        self.last_epoch = other.last_epoch

    def copy(self) -> FetchedPartition:
        """Returns the same for one request of a session, which it stays part of."""
        copied: FetchedPartition = FetchedPartition(
            self.topic, self.index, self.offset, self.size_max, self.leader_epoch, self.last_epoch
        )
        copied._kept = self
        return copied

    @cython.ccall
    def reset(self) -> object:
        """Forgets what it holds."""
        self.partition = None
        self.shows_all = False
        self.until = _NOTHING_TO_READ
        self.error_code = 0
        self.high_watermark = self.stable_offset = self.start_offset = -1
        self.diverging = self.leader = self.aborted = self.records = None
        self.size = 0
        return None

    def fail(self, code: cython.longlong) -> None:
        """Returns an error instead of batches."""
        self.error_code = code
        self.partition = None
        self.until = _NOTHING_TO_READ

    def fill(self, records: object, size: cython.longlong) -> None:
        """Returns these records of so many bytes; there is nothing more to read."""
        self.records = records
        self.size = size
        self.until = _NOTHING_TO_READ

    @cython.ccall
    @cython.exceptval(-1)
    def look(self, route: object, is_committed: cython.bint) -> cython.bint:
        """Takes over the offsets of its partition. Returns False if the client asks for one that is out of range."""
        partition: object = route.partition
        self.start_offset = partition.start_offset
        self.high_watermark = partition.end_offset
        self.stable_offset = partition.stable_offset if partition.transactions.open else self.high_watermark
        if self.offset < self.start_offset or self.offset > self.high_watermark:
            return False
        self.partition = partition
        self.shows_all = route.shows_own_headers
        self.until = self.stable_offset if is_committed else self.high_watermark
        if is_committed:
            self.aborted = []
        if self.offset >= self.until:
            self.until = _NOTHING_TO_READ
        return True

    @cython.ccall
    @cython.exceptval(-1)
    def is_news(self) -> cython.bint:
        """Returns whether an incremental reply must include it, and remembers what it sends."""
        kept: FetchedPartition = self._kept
        is_same: cython.bint = (
            kept._sent_high == self.high_watermark
            and kept._sent_stable == self.stable_offset
            and kept._sent_start == self.start_offset
        )
        kept._sent_high = -2 if self.error_code else self.high_watermark
        kept._sent_stable = self.stable_offset
        kept._sent_start = self.start_offset
        return not is_same or self.error_code != 0 or self.size > 0 or self.diverging is not None
