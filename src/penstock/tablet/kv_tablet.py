"""The KV tablet: keys and values on BlobStorage, changed by atomic requests, owned by one generation at a time.

Requests that arrive while a commit is in flight are committed together by the next. A commit is one log entry and the data it
refers to, written in parallel; it is acknowledged when all of it is durable. If any part may not be, the next entry declares this
one aborted. When the storage answers BLOCKED, the tablet stops at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.blob import GENERATION_MAX, BlobId, Content, FilePiece, Reply, Status, TabletStorage
from penstock.core.errors import (
    ClosedError,
    FencedError,
    InvalidRequestError,
    OutOfSpaceError,
    PenstockError,
    UnavailableError,
)
from penstock.tablet.blob_contents import blob_contents
from penstock.tablet.boot import DATA, LOG, PAGES, BootState, read_state, salvage_state
from penstock.tablet.commands import (
    Command,
    GetStatus,
    Read,
    ReadRange,
    Request,
    Result,
    TabletStatus,
    Write,
)
from penstock.tablet.garbage import Garbage
from penstock.tablet.key_index import BlobRef, Chain, KeyIndex, Overlay, Piece, Value
from penstock.tablet.log_format import LogEntry, Place, SnapshotMark, encode_change, encode_entry, encode_page
from penstock.tablet.pending import QUESTIONS, Outcome, Pending
from penstock.tablet.probe import TabletProbe
from penstock.tablet.value_reader import ValueReader

log = logging.getLogger(__name__)

INLINE_MAX = 1000
COMMIT_BYTES_MAX = 16 << 20
ENTRY_BYTES_MAX = 8 << 20
PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KvOptions:
    """When a tablet takes snapshots and collects garbage."""

    snapshot_entries: int = 2_000  # of log, at least, between two snapshots
    snapshot_bytes: int = 16 << 20  # as above, and never less than twice the size of the last snapshot
    garbage_bytes: int = 32 << 20  # dead data that is worth a collection
    garbage_blobs: int = 2_000  # as above
    idle_garbage_s: float = 5.0  # how long less than that may wait


class KvTablet:
    """One KV tablet of one generation. Make it with `boot`; once it has stopped, it stays so."""

    def __init__(self, storage: TabletStorage, generation: int, state: BootState, options: KvOptions, probe: TabletProbe) -> None:
        self._storage = storage
        self._probe = probe
        self.generation = generation
        self.index: KeyIndex = state.index
        self.options = options
        self.stopped = asyncio.Event()
        self._stop_cause: PenstockError | None = None
        self._settled: Place = state.last
        self._step = 0
        self._boot: Place | None = state.last
        self._aborted: list[int] = []
        self._abandoned: list[BlobId] = []
        self._collected: Place | None = None
        self._snapshot: SnapshotMark | None = None
        self._reader = ValueReader(storage, generation, state.index)
        self._garbage = Garbage(storage, generation, state.barrier, state.index.references)
        self._queue: deque[Pending] = deque()
        self._wake = asyncio.Event()
        self._maintenance_due = asyncio.Event()
        self._maintenance_timed = False  # whether the wait for more garbage has a timeout
        self._maintaining = asyncio.Lock()  # one snapshot or collection at a time
        self._log_entries = state.entries_replayed
        self._log_bytes = 0
        self._snapshot_size = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_new = False  # whether there was no generation before it

    @classmethod
    async def boot(
        cls,
        storage: TabletStorage,
        generation: int,
        *,
        random: Random,
        options: KvOptions | None = None,
        probe: TabletProbe | None = None,
        first: Request | None = None,
        give_up: bool = False,
    ) -> KvTablet:
        """Start this generation: block the older ones, read the state, and note durably where they ended. FencedError if a newer
        one runs, UnavailableError if the storage cannot answer now, DamagedTabletError if part of the state is lost, unless that
        is to be given up. With `first` there is no state, and it is written at once."""
        _check(await storage.block(generation, 1 + random.getrandbits(63)), "the older generations cannot be blocked")
        state = BootState() if first is not None else await (salvage_state if give_up else read_state)(storage)
        tablet = cls(storage, generation, state, options or KvOptions(), probe or TabletProbe())
        tablet._is_new = first is not None
        begun: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        await tablet._commit([] if first is None else [Pending.of(first, begun)])
        if first is not None:
            await begun
        if tablet._stop_cause is not None:
            raise tablet._stop_cause
        if tablet._boot is not None:
            raise UnavailableError(f"tablet {storage.info.tablet} cannot write its log now; start it again later")
        tablet._tasks = [
            asyncio.create_task(tablet._run(), name=f"tablet-{storage.info.tablet}"),
            asyncio.create_task(tablet._maintain(), name=f"tablet-{storage.info.tablet}-maintenance"),
        ]
        if state.losses:
            log.warning("tablet %d goes on without what is lost: %s", storage.info.tablet, "; ".join(state.losses))
            await tablet.take_snapshot()  # the damaged log before it is not needed any more
        return tablet

    @classmethod
    async def look_into(cls, storage: TabletStorage) -> tuple[KvTablet, list[str]]:
        """A tablet that is not started and can only be read, as far as its state is sound; and what of that is lost."""
        state = await salvage_state(storage)
        return cls(storage, GENERATION_MAX, state, KvOptions(), TabletProbe()), state.losses

    @property
    def id(self) -> int:
        """The tablet's number."""
        return self._storage.info.tablet

    async def execute(self, request: Request) -> list[Result]:
        """Carry out a request; one result for each of its commands (None for a change)."""
        self.check_open()
        if request.generation is not None and request.generation != self.generation:
            raise FencedError(f"the request is for generation {request.generation}, the tablet is in {self.generation}")
        if all(type(command) in QUESTIONS for command in request.commands):
            return await self._answers(request)
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self.submit(request, done)
        return await done

    def submit(self, request: Request, done: Outcome) -> None:
        """Queue a request that changes something; `done` gets its outcome."""
        self.check_open()
        self._queue.append(Pending.of(request, done))
        if not self._wake.is_set():
            self._wake.set()

    def head(self, key: bytes) -> bytes | None:
        """What a key keeps in memory: a small value, or the head of a long one. None if there is no such key."""
        value = self.index.values.get(key)
        return value.head if isinstance(value, Chain) else value

    def keys(self, begin: bytes, end: bytes | None) -> Iterator[bytes]:
        """Keys with begin <= key < end as they are now."""
        return self.index.keys(begin, end)

    async def read(self, key: bytes, offset: int = 0, length: int | None = None) -> bytes | memoryview | None:
        """A range of a value; None if there is no such key."""
        try:
            return await self._reader.value(key, offset, length)
        except FencedError as error:
            self._stop(error)
            raise

    def pieces(self, key: bytes, offset: int, length: int) -> list[FilePiece] | None:
        """The same as pieces of open files, where all of it can be had so."""
        return self._reader.pieces(key, offset, length)

    def break_down(self, reason: str) -> None:
        """Stop at once because the tablet's user cannot continue; a new generation must recover from what is stored."""
        log.error("tablet %d is stopped: %s", self._storage.info.tablet, reason)
        self._stop(ClosedError(f"tablet {self._storage.info.tablet} was stopped: {reason}; it must be restarted"))

    async def stop(self) -> None:
        """Finish what is in flight and stop."""
        self._stop(ClosedError(f"tablet {self._storage.info.tablet} was stopped"))
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check_open(self) -> None:
        """Raise what the tablet was stopped for, if it was."""
        if self._stop_cause is not None:
            raise self._stop_cause

    def _stop(self, cause: PenstockError) -> None:
        if self._stop_cause is None:
            self._stop_cause = cause
            self.stopped.set()
            self._wake.set()
            self._maintenance_due.set()

    async def _run(self) -> None:
        while self._stop_cause is None:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and self._stop_cause is None:
                await self._commit_safely(self._take_group())
        left, self._queue = self._queue, deque()
        for pending in left:
            pending.fail(self._stop_cause)

    async def _commit_safely(self, group: list[Pending]) -> None:
        """Commit; on an unexpected error fail all waiting requests and write nothing more."""
        try:
            await self._commit(group)
        except BaseException as error:
            broken = ClosedError(f"tablet {self._storage.info.tablet} failed: {error!r}; it must be restarted")
            self._stop(broken)
            for pending in (*group, *self._queue):
                pending.fail(broken)
            self._queue.clear()
            raise

    def _take_group(self) -> list[Pending]:
        group = [self._queue.popleft()]
        size = group[0].size
        while self._queue and size + self._queue[0].size <= COMMIT_BYTES_MAX:
            if self._queue[0].asks:
                break  # what it reads is the state after all those before it
            if self._queue[0].request.makes_room != group[0].request.makes_room:
                break  # a request that needs space must not block one that frees space
            group.append(self._queue.popleft())
            size += group[-1].size
        return group

    async def _commit(self, group: list[Pending]) -> None:
        """Write one log entry for a group of requests and the data it refers to, and deliver the outcome to each."""
        step = self._step = self._step + 1
        overlay = Overlay(self.index)
        puts: list[tuple[BlobId, Content]] = []
        answers = await self._answers_of_first(group) if group and group[0].asks else []
        asking = group if answers is not None else group[1:]
        # A request that is wrong must not affect those it is committed with; alone, it needs no overlay of its own.
        alone = len(asking) == 1
        staged = [
            pending_request
            for pending_request in asking
            if self._stage(pending_request, overlay if alone else Overlay(overlay), overlay, puts)
        ]
        if group and not staged:
            self._step -= 1
            return
        changes = overlay.changes()
        entry = LogEntry(self._boot, tuple(self._aborted), self._collected, self._snapshot, tuple(changes))
        raw = encode_entry(entry)
        if len(raw) > ENTRY_BYTES_MAX:
            self._step -= 1
            await self._split(staged)
            return
        puts.append((BlobId(self._storage.info.tablet, LOG, self.generation, step, 0, len(raw)), raw))
        assert puts[0][0][2:4] == (self.generation, step), "what a commit writes is of its own step"
        from_reserve = not group or group[0].request.makes_room
        began = self._probe.now()
        trouble = _worst(await self._storage.put_all(puts, from_reserve=from_reserve))
        self._probe.commits.note(self._probe.now() - began)
        self._probe.requests += len(staged)
        if trouble is not None:
            self._probe.failures += 1
            self._abandoned += (blob for blob, _ in puts[:-1])
            self._abort(step, trouble, staged)
            return
        self._settle(entry, step, [blob for blob, _ in puts[:-1]])
        self._log_bytes += len(raw)
        for pending in staged:
            pending.succeed(answers if answers and pending is group[0] else [None] * len(pending.request.commands))

    async def _split(self, group: list[Pending]) -> None:
        """The changes of the group do not fit one log entry: commit the requests one by one."""
        if len(group) == 1:
            group[0].fail(InvalidRequestError("the request changes too many keys at once; split it"))
        else:
            for pending in group:
                await self._commit([pending])

    async def _answers_of_first(self, group: list[Pending]) -> list[Result] | None:
        """Run the reads of the group's first request, the only one that may have any. Returns None if they fail, and with them
        the request."""
        try:
            return await self._answers(group[0].request)
        except PenstockError as error:
            group[0].fail(error)
            return None

    def _stage(self, pending: Pending, own: Overlay, overlay: Overlay, puts: list[tuple[BlobId, Content]]) -> bool:
        """Check a request and lay its changes over those before it; False if it is wrong, and then it has no effect."""
        own_puts: list[tuple[BlobId, Content]] = []
        try:
            for command in pending.request.commands:
                if isinstance(command, Write):
                    own.set(command.key, self._written(command, len(puts), own_puts))
                else:
                    own.apply(command)
        except InvalidRequestError as error:
            pending.fail(error)
            return False
        if own is not overlay:
            overlay.absorb(own)
        puts.extend(own_puts)
        return True

    def _written(self, command: Write, first_cookie: int, puts: list[tuple[BlobId, Content]]) -> Value:
        """The value of a write: kept here if it is small, otherwise in blobs."""
        _, value, head, inline_max = command
        buffers = value if isinstance(value, tuple) else (value,)
        if sum(map(len, buffers)) <= (INLINE_MAX if inline_max is None else inline_max):
            only = buffers[0] if len(buffers) == 1 else None
            small = only if isinstance(only, bytes) else b"".join(buffers)
            return Chain(head, (small,)) if head else small
        pieces: list[Piece] = []
        for content in blob_contents(buffers):
            cookie = first_cookie + len(puts)
            blob = BlobId(self._storage.info.tablet, DATA, self.generation, self._step, cookie, len(content))
            puts.append((blob, content))
            pieces.append(BlobRef(blob, 0, len(content)))
        return Chain(head, tuple(pieces))

    def _settle(self, entry: LogEntry, step: int, born: list[BlobId]) -> None:
        """The entry is durable: it counts from now on."""
        assert self._settled < (self.generation, step), "entries count in the order they were written in"
        self._settled = (self.generation, step)
        self._boot = None
        self._aborted.clear()
        if self._collected == entry.collected:
            self._collected = None
        if self._snapshot == entry.snapshot:
            self._snapshot = None
        dead = self.index.apply(entry.changes)
        for blob in born:
            self._garbage.born(blob)
        if dead or born:
            # Also what was overwritten within the entry itself.
            self._garbage.died(dead)
            self._garbage.died(blob for blob in born if blob not in self.index.references)
        if self._abandoned:  # by aborted entries
            self._garbage.abandoned(self._abandoned)
            self._abandoned.clear()
        self._log_entries += 1
        first_garbage = self._garbage.waiting and not self._maintenance_timed
        if first_garbage or self._is_garbage_due() or self._is_snapshot_due():
            self._maintenance_due.set()

    def _abort(self, step: int, trouble: Reply, staged: list[Pending]) -> None:
        """The entry may or may not be stored: it is aborted, and the next entry says so."""
        self._aborted.append(step)
        tablet = self._storage.info.tablet
        error: PenstockError
        if trouble.status is Status.BLOCKED:
            error = FencedError(f"generation {self.generation} of tablet {tablet} was told BLOCKED: a newer one runs")
            self._stop(error)
        elif trouble.status is Status.OUT_OF_SPACE:
            error = OutOfSpaceError(f"tablet {tablet} cannot write: {trouble.reason}")
        else:
            error = UnavailableError(f"tablet {tablet} cannot write: {trouble.status.value}: {trouble.reason}")
        for pending in staged:
            pending.fail(error)

    async def _answers(self, request: Request) -> list[Result]:
        return [await self._answer(command) for command in request.commands]

    async def _answer(self, command: Command) -> Result:
        match command:
            case Read():
                return await self._reader.read(command)
            case ReadRange():
                return await self._reader.read_range(command)
            case GetStatus():
                index = self.index
                return TabletStatus(self.generation, self._step, len(index.values), index.value_bytes, len(index.references))
        return None

    async def _maintain(self) -> None:
        """Background task: delete leftovers of earlier generations, then collect garbage and take snapshots when due."""
        leftovers_known = self._is_new
        while self._stop_cause is None:
            try:
                if not leftovers_known:
                    leftovers_known = await self._garbage.find_leftovers(self.index.references) is Status.OK
                if leftovers_known and self._garbage.waiting:
                    await self.collect_garbage()
                if self._is_snapshot_due():
                    await self.take_snapshot()
                if leftovers_known:
                    await self._wait_for_maintenance()
                else:  # no garbage can be collected before the leftovers are known
                    await asyncio.sleep(self.options.idle_garbage_s)
            except FencedError as error:
                self._stop(error)
            except (UnavailableError, OutOfSpaceError) as error:
                log.warning("tablet %d: snapshots and garbage collection will be retried: %s", self._storage.info.tablet, error)
                await asyncio.sleep(self.options.idle_garbage_s)

    async def _wait_for_maintenance(self) -> None:
        """Sleep until enough garbage or log has piled up, or a little garbage has waited for `idle_garbage_s`."""
        self._maintenance_due.clear()
        while not self._is_garbage_due() and not self._is_snapshot_due() and self._stop_cause is None:
            self._maintenance_timed = bool(self._garbage.waiting)
            try:
                async with asyncio.timeout(self.options.idle_garbage_s if self._maintenance_timed else None):
                    await self._maintenance_due.wait()
            except TimeoutError:
                return
            self._maintenance_due.clear()

    def _is_garbage_due(self) -> bool:
        return self._garbage.waiting >= self.options.garbage_blobs or self._garbage.dead_bytes >= self.options.garbage_bytes

    def _is_snapshot_due(self) -> bool:
        enough_entries = self._log_entries >= max(self.options.snapshot_entries, len(self.index.values) // 2)
        return enough_entries or self._log_bytes >= max(self.options.snapshot_bytes, 2 * self._snapshot_size)

    async def collect_garbage(self) -> None:
        """Have BlobStorage delete blobs that no key refers to."""
        async with self._maintaining:
            self.check_open()
            _check(await self._garbage.collect(self._settled), "garbage cannot be collected")
            self._collected = self._garbage.barrier

    async def take_snapshot(self) -> None:
        """Write out all keys, so that the log before them can be deleted. Requests continue meanwhile: a page may hold changes
        made after the snapshot began, and replaying the log over it gives the same state."""
        async with self._maintaining:
            await self._write_snapshot()

    async def _write_snapshot(self) -> None:
        taken_at = self._settled
        entries, size = self._log_entries, self._log_bytes
        pages: list[BlobId] = []
        total = 0
        for raw in self._pages():
            blob = BlobId(self._storage.info.tablet, PAGES, self.generation, taken_at[1], len(pages), len(raw))
            _check(await self._storage.put(blob, raw, from_reserve=True), "a snapshot cannot be written")
            pages.append(blob)
            total += len(raw)
        self._snapshot = SnapshotMark(taken_at, self._garbage.barrier, tuple(pages))
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self.submit(Request((), makes_room=True), done)
        await done
        self._log_entries -= entries
        self._log_bytes -= size
        self._snapshot_size = total
        _check(await self._garbage.drop_log(taken_at), "the log before a snapshot cannot be dropped")

    def _pages(self) -> Iterator[bytes]:
        """Snapshot pages of about a megabyte, each of the keys as they are when it is made."""
        after: bytes | None = b""
        while after is not None:
            page: list[tuple[bytes, Value]] = []
            size = 0
            begin, after = after, None
            for key in self.index.keys(begin, None):
                if size >= PAGE_BYTES:
                    after = key
                    break
                value = self.index.values[key]
                page.append((key, value))
                size += len(encode_change((key, value)))
            yield encode_page(page)


def _worst(replies: list[Reply]) -> Reply | None:
    """The reply that decides: BLOCKED before all, then any other that is not OK."""
    troubles = [reply for reply in replies if reply.status is not Status.OK]
    return min(troubles, key=lambda reply: reply.status is not Status.BLOCKED, default=None)


def _check(reply: Reply, what: str) -> None:
    if reply.status in (Status.BLOCKED, Status.ALREADY):
        raise FencedError(f"{what}: a newer generation of the tablet runs ({reply.reason})")
    if reply.status is Status.OUT_OF_SPACE:
        raise OutOfSpaceError(f"{what}: {reply.reason}")
    if reply.status is not Status.OK:
        raise UnavailableError(f"{what}: {reply.status.value}: {reply.reason}")
