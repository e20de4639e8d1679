"""The write-ahead log of a VDisk: records are appended to the active chunk; all that arrive during a flush share the next one.

A record has its place as soon as it is appended; it is durable, and readable, when its batch is. After a failed flush the end
of the chunk is unknown, so that batch and the one behind it fail together and writing goes on in a new chunk. A disk that keeps
failing is tried less and less often, at least once a second while there is something to write.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from penstock.blob.disk import Buffer, Disk
from penstock.blob.disk_threads import as_disk_error
from penstock.blob.record import NO_ID, RecordKind, encode, encode_later, record_size
from penstock.blob.vector import Content

CHUNK_SUFFIX = ".chunk"
LATER_BYTES = 256 << 10  # from here on checksums take long enough to be worth leaving to the disk's thread
RETRY_S = 0.01  # after the second failure in a row, and twice as long after each one more
RETRY_MAX_S = 1.0
Position = tuple[int, int]


def chunk_name(number: int) -> str:
    """The file of a chunk."""
    return f"{number:08d}{CHUNK_SUFFIX}"


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
    """Records that become durable together. Waiters get None, or the error of the flush."""

    __slots__ = ("end", "last", "segments", "undo", "waiters")

    def __init__(self) -> None:
        # A future for each: a waiter that is cancelled must not take the others with it.
        self.waiters: list[asyncio.Future[OSError | None]] = []
        self.segments: list[Segment] = []
        self.undo: list[Callable[[], None]] = []
        self.end: Position = (0, 0)
        self.last: Position | None = None

    def settle(self, error: OSError | None) -> None:
        """Deliver the result to all waiters."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(error)


class Journal:
    """Appends records and commits them in groups. One task flushes; nothing here blocks the loop."""

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
        self._wake = asyncio.Event()
        self._closing = False
        self._flushing: Batch | None = None
        self._batch = Batch()
        self.chunk = first_chunk - 1
        self.offset = 0
        self.durable: Position = (first_chunk, 0)
        # The place of the last durable record; not of one with marks of sisters, or two disks would tell each other for ever.
        self.reached = reached
        self.ends: dict[int, int] = {}  # by chunk, how many bytes of it are durable
        self.failures = 0
        self.trouble: OSError | None = None  # why the last flush failed; None if it did not
        self._failures_in_a_row = 0
        self.bytes_appended = 0
        self.records_appended = 0
        self._segment = Segment(self.chunk, begins=True)
        self._start_chunk()
        self._task = self._loop.create_task(self._run(), name="penstock-journal")

    def append(self, kind: int, blob_id: bytes, body: Content) -> Position:
        """Place a record; it is durable once `commit` resolves. The body must not change until then."""
        size = record_size(len(body))
        if self.offset + size > self._chunk_size and self.offset > self._chunk_size >> 4:
            self._start_chunk()
        place = self.chunk, self.offset
        if kind != RecordKind.SISTERS:
            self._batch.last = place
        if len(body) < LATER_BYTES:
            self._segment.buffers += encode(kind, blob_id, body, place, self.durable)
        else:
            buffers, fill = encode_later(kind, blob_id, body, place, self.durable)
            self._segment.buffers += buffers
            self._segment.finish.append(fill)
        self.offset += size
        self.bytes_appended += size
        self.records_appended += 1
        if not self._wake.is_set():
            self._wake.set()
        return place

    def commit(self) -> asyncio.Future[OSError | None]:
        """Resolves when all that was appended so far is durable, or to the error that prevented it."""
        waiter: asyncio.Future[OSError | None] = self._loop.create_future()
        if self._task.done():
            waiter.set_result(self.trouble or _closed())
        elif self._wake.is_set():
            self._batch.waiters.append(waiter)
        elif self._flushing is not None:
            self._flushing.waiters.append(waiter)
        else:
            waiter.set_result(None)
        return waiter

    def undo_on_failure(self, action: Callable[[], None]) -> None:
        """Run `action` if the batch being filled never becomes durable."""
        self._batch.undo.append(action)

    async def wait_durable(self, place: Position) -> None:
        """Wait while the record at this place is on its way to the disk. It may not have arrived: look again."""
        if place < self.durable or self._task.done():
            return
        waiter: asyncio.Future[OSError | None] = self._loop.create_future()
        flushing = self._flushing
        batch = flushing if flushing is not None and place < flushing.end else self._batch
        batch.waiters.append(waiter)
        await waiter

    async def close(self) -> None:
        """Flush what is left, give back reserved room and stop."""
        self._closing = True
        if self.records_appended == 0:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        else:
            self._wake.set()
            await self._task
        self._batch.settle(_closed())  # appended after the last batch was taken

    def _start_chunk(self) -> None:
        if self.offset:
            self._on_seal(self.chunk, self.offset)
            self._segment.ends = True
            self._segment.end = self.offset
        self.chunk += 1
        self._segment = Segment(self.chunk, begins=True)
        self._batch.segments.append(self._segment)
        self._segment.buffers.extend(encode(RecordKind.CHUNK_HEAD, NO_ID, self._head, (self.chunk, 0), self.durable))
        self.offset = record_size(len(self._head))

    async def _run(self) -> None:
        try:
            await self._flush_batches()
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait must hear of it
            self.trouble = _disk_error(error)
            for batch in (self._flushing, self._batch):
                if batch is not None:
                    batch.settle(self.trouble)

    async def _flush_batches(self) -> None:
        while True:
            await self._wake.wait()
            if self._failures_in_a_row > 1 and not self._closing:
                await asyncio.sleep(min(RETRY_S * 2 ** min(self._failures_in_a_row, 16), RETRY_MAX_S))
            self._wake.clear()
            batch = self._take()
            error = await self._write(batch)
            if error is None:
                self._flushing = None
                self.durable = batch.end
                self.reached = batch.last or self.reached
                for segment in batch.segments:
                    self.ends[segment.chunk] = segment.end
                self.trouble, self._failures_in_a_row = None, 0
                batch.settle(None)
            else:
                self._fail(batch, error)
            if self._closing and not self._wake.is_set():
                return

    def _take(self) -> Batch:
        batch = self._batch
        batch.end = (self.chunk, self.offset)
        self._segment.end = self.offset
        self._segment.ends = self._closing
        self._batch = Batch()
        self._segment = Segment(self.chunk, begins=False)
        self._batch.segments.append(self._segment)
        self._flushing = batch
        return batch

    async def _write(self, batch: Batch) -> OSError | None:
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
        except Exception as error:  # noqa: BLE001 - an error that is not the disk's fails these records all the same
            return _disk_error(error)
        return None

    def _fail(self, batch: Batch, error: OSError) -> None:
        """Fail this batch and the one placed behind it in the same chunk: neither is certain to be on the disk."""
        self._flushing = None
        self.failures += 1
        self.trouble = error
        self._failures_in_a_row += 1
        behind = self._batch
        self._batch = Batch()
        self._wake.clear()
        for failed in (behind, batch):
            for action in reversed(failed.undo):
                action()
        self._on_seal(self.chunk, self.offset)
        self.offset = 0
        # The log restarts here: whatever is left of the failed tail does not count as damage.
        self.durable = (self.chunk + 1, 0)
        self._start_chunk()
        batch.settle(error)
        behind.settle(error)


def _disk_error(error: Exception) -> OSError:
    found = as_disk_error(error, "journal")
    return found if isinstance(found, OSError) else OSError(errno.EIO, str(found))


def _closed() -> OSError:
    return OSError(errno.EBADF, "the disk is closed")
