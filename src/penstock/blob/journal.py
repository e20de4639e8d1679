"""The write-ahead log of a VDisk: records are appended to the active chunk; all that arrive during a flush share the next one.

A record has its place as soon as it is appended; it is durable, and readable, when its batch is. A flush happens at the end of
the turn of the loop that brought its first record, at once if the disk is quick enough for that, otherwise in a task. Just before
it, composers are called: they append what has gathered elsewhere, so that one write takes it all. After a failed flush the end
of the chunk is unknown, so that batch and the one behind it fail together and writing goes on in a new chunk. Chunks that lie
between the last one with anything durable and the new one are abandoned, and their numbers are missing from then on; the head of
the new chunk tells so. A disk that keeps failing is tried less and less often, at least once a second while there is something
to write.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Protocol

from penstock.blob.disk import Buffer, Disk
from penstock.blob.disk_threads import as_disk_error
from penstock.blob.record import (
    BLOCK_SIZE,
    HEADER_SIZE,
    STARTS,
    RecordKind,
    abandoned_id,
    encode,
    encode_later,
    encode_start,
    record_size,
)
from penstock.blob.status import Reply, Submitted
from penstock.blob.vector import Content, Vector
from penstock.kernels.log_bytes import record_start

CHUNK_SUFFIX = ".chunk"
LATER_BYTES = 512 << 10  # from here on checksums take long enough to be worth leaving to the disk's thread
RETRY_S = 0.01  # after the second failure in a row, and twice as long after each one more
RETRY_MAX_S = 1.0
_SISTERS = int(RecordKind.SISTERS)
Position = tuple[int, int]
Undo = tuple[Any, ...]
"""What takes back a change in memory: a function, then its arguments."""


def chunk_name(number: int) -> str:
    """The file of a chunk."""
    return f"{number:08d}{CHUNK_SUFFIX}"


class FailureReplies(Protocol):
    """Replies to those whose records did not become durable."""

    def reply_for(self, error: OSError) -> Reply:
        """The reply that tells of an error of the disk."""
        ...


class Segment:
    """What a batch adds to one chunk, and whether the chunk begins or ends with it."""

    __slots__ = ("begins", "buffers", "chunk", "end", "ends", "finish")

    def __init__(self, chunk: int, *, begins: bool) -> None:
        self.chunk = chunk
        self.buffers: list[Buffer] = []
        self.finish: list[Callable[[], None]] = []
        self.begins = begins
        self.ends = False
        self.end = 0  # where in the chunk it stops


class Batch:
    """Records that become durable together. Those that wait are told None, or the error that kept them from the disk."""

    __slots__ = ("bytes_appended", "callbacks", "end", "last", "segments", "undo", "waiters")

    def __init__(self) -> None:
        # A future for each: a waiter that is cancelled must not take the others with it.
        self.waiters: list[asyncio.Future[OSError | None]] = []
        self.callbacks: list[tuple[Submitted, FailureReplies]] = []
        self.segments: list[Segment] = []
        self.undo: list[Undo] = []
        self.end: Position = (0, 0)
        self.last: Position | None = None
        self.bytes_appended = 0  # by the journal, up to its end

    def settle(self, error: OSError | None) -> None:
        """Tell all that wait how it went."""
        for done, replies in self.callbacks:
            done(None if error is None else replies.reply_for(error))
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(error)


class Journal:
    """Appends records and commits them in groups. It blocks the loop only for writes that its disk does at once."""

    def __init__(
        self,
        disk: Disk,
        *,
        first_chunk: int,
        chunk_size: int,
        head: bytes,
        on_seal: Callable[[int, int], None],
        reached: Position = (0, 0),
    ) -> None:
        self._disk = disk
        self._chunk_size = chunk_size
        self._head = head
        self._on_seal = on_seal
        self._loop = asyncio.get_running_loop()
        self._composers: list[Callable[[], None]] = []
        self._is_due = False  # whether a flush will come without anyone asking for it
        self._is_backing_off = False
        self._is_closing = False
        self._is_closed = False
        self._done: asyncio.Future[None] | None = None  # set while it closes
        self._flushing: Batch | None = None
        self._task: asyncio.Task[None] | None = None  # of the flush in progress, if it was not done at once
        self._batch = Batch()
        self._records = 0  # of the batch being filled
        self.chunk = first_chunk - 1
        self.offset = 0
        self.durable: Position = (first_chunk, 0)
        # The place of the last durable record; not of one with marks of sisters, or two disks would tell each other for ever.
        self.reached = reached
        self.ends: dict[int, int] = {}  # by chunk, how many bytes of it are durable
        self.abandoned: set[int] = set()  # chunks of which nothing became durable; their files, if there are any, only take room
        self._empty_from = first_chunk  # nothing in this chunk and those behind it was durable at the last failure
        self.failures = 0
        self.trouble: OSError | None = None  # why the last flush failed; None if it did not
        self._failures_in_a_row = 0
        self._retry_at = 0.0
        self.bytes_appended = 0
        self.bytes_settled = 0  # of these, those that are on the disk or never will be
        self.records_appended = 0
        self._segment = Segment(self.chunk, begins=True)
        self._start_chunk()

    def append(self, kind: int, blob_id: bytes, body: Content) -> Position:
        """Place a record; it is durable once `commit` resolves. The body must not change until then."""
        length = len(body)
        size = HEADER_SIZE + length if length <= BLOCK_SIZE else record_size(length)
        if self.offset + size > self._chunk_size and self.offset > self._chunk_size >> 4:
            self._start_chunk()
        place = self.chunk, self.offset
        if kind != _SISTERS:
            self._batch.last = place
        if length < LATER_BYTES:
            buffers = self._segment.buffers
            durable = self.durable
            if length <= BLOCK_SIZE and type(body) is bytearray:
                # An entry of a tablet's log: as `encode_start` does, without a call of a Python function.
                buffers.append(record_start(STARTS[kind], blob_id, body, length, self.chunk, self.offset, durable[0], durable[1]))
                buffers.append(body)
            elif isinstance(body, Vector):
                buffers.append(encode_start(kind, blob_id, body, place, durable))
                buffers += body.buffers
            else:
                buffers.append(encode_start(kind, blob_id, body, place, durable))
                buffers.append(body)
        else:
            later, fill = encode_later(kind, blob_id, body, place, self.durable)
            self._segment.buffers += later
            self._segment.finish.append(fill)
        self.offset += size
        self.bytes_appended += size
        self.records_appended += 1
        self._records += 1
        if not self._is_due:
            self._is_due = True
            if self._flushing is None and not self._is_backing_off:
                self._loop.call_soon(self._flush)
        return place

    def before_flush(self, compose: Callable[[], None]) -> None:
        """Call `compose` just before the next flush, which comes at the end of this turn or after the one in progress. On a disk
        that is closed there is none: it is called all the same, and what it submits is refused."""
        if self._is_closed:
            self._loop.call_soon(compose)
            return
        self._composers.append(compose)
        if not self._is_due:
            self._is_due = True
            if self._flushing is None and not self._is_backing_off:
                self._loop.call_soon(self._flush)

    def when_durable(self, done: Submitted, replies: FailureReplies) -> None:
        """Call `done` when the batch being filled is durable, or with the reply for the error that prevented it. It must not
        raise."""
        if self._is_closed:
            self._loop.call_soon(done, replies.reply_for(self.trouble or _closed()))
        else:
            self._batch.callbacks.append((done, replies))

    def commit(self) -> asyncio.Future[OSError | None]:
        """Resolves when all that was appended so far is durable, or to the error that prevented it."""
        waiter: asyncio.Future[OSError | None] = self._loop.create_future()
        if self._is_closed:
            waiter.set_result(self.trouble or _closed())
        elif self._records:
            self._batch.waiters.append(waiter)
        elif self._flushing is not None:
            self._flushing.waiters.append(waiter)
        else:
            waiter.set_result(None)
        return waiter

    def undo_on_failure(self, undo: Undo) -> None:
        """Take a change back if the batch being filled never becomes durable."""
        self._batch.undo.append(undo)

    async def wait_durable(self, place: Position) -> None:
        """Wait while the record at this place is on its way to the disk. It may not have arrived: look again."""
        if place < self.durable or self._is_closed:
            return
        waiter: asyncio.Future[OSError | None] = self._loop.create_future()
        flushing = self._flushing
        batch = flushing if flushing is not None and place < flushing.end else self._batch
        batch.waiters.append(waiter)
        await waiter

    async def close(self) -> None:
        """Flush what is left, give back reserved room and stop."""
        self._is_closing = True
        if self.records_appended and not self._is_closed:
            self._done = self._loop.create_future()
            if self._flushing is None:
                self._start_flush()
            await self._done
        self._is_closed = True
        self._batch.settle(_closed())  # those that came too late
        composers, self._composers = self._composers, []
        for compose in composers:
            self._loop.call_soon(compose)

    def _start_chunk(self, abandoned_from: int = 0) -> None:
        """Begin the next chunk. Those before it, from `abandoned_from` on if that is not 0, were abandoned."""
        if self.offset:
            self._on_seal(self.chunk, self.offset)
            self._segment.ends = True
            self._segment.end = self.offset
        self.chunk += 1
        self._name = chunk_name(self.chunk)
        self._segment = Segment(self.chunk, begins=True)
        self._batch.segments.append(self._segment)
        blob_id = abandoned_id(abandoned_from)
        self._segment.buffers.extend(encode(RecordKind.CHUNK_HEAD, blob_id, self._head, (self.chunk, 0), self.durable))
        self.offset = record_size(len(self._head))

    def _flush(self) -> None:
        """Write what has gathered by the end of a turn, unless a flush is in progress, whose end starts the next."""
        if self._flushing is not None or self._is_backing_off or self._is_closed:
            return
        while self._composers:
            composers, self._composers = self._composers, []
            for compose in composers:
                compose()
        self._is_due = False
        if not self._records:
            return
        if self._failures_in_a_row > 1 and not self._is_closing and self._loop.time() < self._retry_at:
            self._is_backing_off = self._is_due = True
            self._loop.call_at(self._retry_at, self._try_again)
        else:
            self._start_flush()

    def _try_again(self) -> None:
        self._is_backing_off = False
        if not self._is_closed and self._flushing is None:
            self._start_flush()

    def _start_flush(self) -> None:
        """Write the batch, and begin the next one."""
        self._flushing = batch = self._batch
        batch.end = (self.chunk, self.offset)
        batch.bytes_appended = self.bytes_appended
        self._segment.end = self.offset
        self._segment.ends = self._is_closing
        self._batch = Batch()
        self._records = 0
        self._is_due = False
        self._segment = Segment(self.chunk, begins=False)
        self._batch.segments.append(self._segment)
        segment = batch.segments[0]
        if len(batch.segments) > 1 or segment.begins or segment.ends:
            self._task = self._loop.create_task(self._write(batch), name="penstock-journal")
            return
        name = self._name
        try:
            self._disk.append(name, segment.buffers, segment.finish)
            is_done = self._disk.flush_at_once(name)
        except Exception as error:  # noqa: BLE001 - an error that is not the disk's fails these records all the same
            self._finish(batch, _disk_error(error))
            return
        if is_done:
            self._finish(batch, None)
        else:
            self._task = self._loop.create_task(self._wait_for_flush(batch, name), name="penstock-journal")

    async def _wait_for_flush(self, batch: Batch, name: str) -> None:
        error: OSError | None = None
        try:
            await self._disk.flush(name)
        except Exception as caught:  # noqa: BLE001 - as above
            error = _disk_error(caught)
        self._finish(batch, error)

    async def _write(self, batch: Batch) -> None:
        """Flush a batch that begins or ends a chunk."""
        error: OSError | None = None
        try:
            for segment in batch.segments:
                if not segment.buffers and not segment.ends:
                    continue
                name = chunk_name(segment.chunk)
                if segment.begins:
                    self._disk.reserve(name, self._chunk_size)
                if segment.ends:
                    self._disk.reserve(name, 0)
                self._disk.append(name, segment.buffers, segment.finish)
                await self._disk.flush(name)
        except Exception as caught:  # noqa: BLE001 - as above
            error = _disk_error(caught)
        self._finish(batch, error)

    def _finish(self, batch: Batch, error: OSError | None) -> None:
        """The disk has answered: tell those that wait, and start the next flush if there is something for it."""
        was_at_once, self._task = self._task is None, None
        if error is None:
            self._flushing = None
            self.durable = batch.end
            self.bytes_settled = batch.bytes_appended
            self.reached = batch.last or self.reached
            for segment in batch.segments:
                self.ends[segment.chunk] = segment.end
            self.trouble, self._failures_in_a_row = None, 0
            batch.settle(None)
        else:
            self._fail(batch, error)
        if self._flushing is not None:
            return
        if self._is_closing:
            # Also after a failure: whatever is left was told of it, and a disk that fails is not tried again.
            if self._done is not None and not self._done.done():
                if error is not None or (batch.segments[-1].ends and not self._records):
                    self._done.set_result(None)
                else:
                    self._start_flush()
        elif self._is_due or self._records or self._composers:
            if was_at_once:
                self._is_due = True
                self._loop.call_soon(self._flush)  # others have their turn in between
            else:
                self._flush()

    def _fail(self, batch: Batch, error: OSError) -> None:
        """Fail this batch and the one placed behind it in the same chunk: neither is certain to be on the disk."""
        self._flushing = None
        self.failures += 1
        self.bytes_settled = self.bytes_appended
        self.trouble = error
        self._failures_in_a_row += 1
        self._retry_at = self._loop.time() + min(RETRY_S * 2 ** min(self._failures_in_a_row, 16), RETRY_MAX_S)
        behind = self._batch
        self._batch = Batch()
        self._records = 0
        for failed in (behind, batch):
            for action, *arguments in reversed(failed.undo):
                action(*arguments)
            self.abandoned.update(segment.chunk for segment in failed.segments if segment.chunk not in self.ends)
        self._on_seal(self.chunk, self.offset)
        self.offset = 0
        if self.durable[1]:
            self._empty_from = self.durable[0] + 1
        # The log restarts here: whatever is left of the failed tail does not count as damage.
        self.durable = (self.chunk + 1, 0)
        self._start_chunk(self._empty_from if self._empty_from <= self.chunk else 0)
        batch.settle(error)
        behind.settle(error)


def _disk_error(error: Exception) -> OSError:
    found = as_disk_error(error, "journal")
    return found if isinstance(found, OSError) else OSError(errno.EIO, str(found))


def _closed() -> OSError:
    return OSError(errno.EBADF, "the disk is closed")
