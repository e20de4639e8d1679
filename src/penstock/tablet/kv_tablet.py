"""The KV tablet: keys and values on BlobStorage, changed by atomic requests, owned by one generation at a time.

Beside its keys a tablet keeps queues for its owner: what is appended to one is in the log only, until the owner makes keys of it.
The sequencer writes the log; here are the start of a generation, reads, snapshots and garbage collection. On BLOCKED, the tablet
stops at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from penstock.blob import GENERATION_MAX, BlobId, FilePiece, Reply, Status, TabletStorage
from penstock.core.errors import (
    ClosedError,
    FencedError,
    OutOfSpaceError,
    PenstockError,
    UnavailableError,
)
from penstock.tablet.boot import PAGES, BootState, read_state, salvage_state
from penstock.tablet.commands import (
    Command,
    GetStatus,
    Read,
    ReadRange,
    Request,
    Result,
    TabletStatus,
)
from penstock.tablet.garbage import Garbage
from penstock.tablet.key_index import Chain, Change, KeyIndex, Value, refs_of, value_size
from penstock.tablet.log_format import Append, Place, SnapshotMark, encode_change, encode_page
from penstock.tablet.pending import QUESTIONS, Outcome
from penstock.tablet.probe import TabletProbe
from penstock.tablet.sequencer import Sequencer
from penstock.tablet.value_reader import ValueReader

log = logging.getLogger(__name__)

PAGE_BYTES = 1 << 20


KeyMaker = Callable[[], Awaitable[None]]
KeysOf = Callable[[KeyIndex, list[tuple[Place, Append]]], Iterable[Change]]
"""Makes keys of the appends of a damaged log, beside the keys that are there."""


@dataclass(frozen=True, slots=True)
class KvOptions:
    """When a tablet takes snapshots and collects garbage."""

    snapshot_entries: int = 10_000  # of log, at least, between two snapshots
    snapshot_bytes: int = 32 << 20  # as above, and never less than twice the size of the last snapshot
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
        self.stop_cause: PenstockError | None = None
        self.appends: dict[int, list[tuple[Place, Append]]] = _by_queue(state.appends)  # of the log, until their owner has them
        self.key_makers: list[KeyMaker] = []  # asked before each snapshot to make keys of what is in the log only
        self._reader = ValueReader(storage, generation, state.index)
        self._garbage = Garbage(storage, generation, state.barrier, state.index.references)
        self._maintenance_due = asyncio.Event()
        self._maintenance_timed = False  # whether a little garbage is waited with for no longer than it may
        self._maintaining = asyncio.Lock()  # one snapshot or collection at a time
        # Of the log: what the snapshot covers, counted as the sequencer counts, so that the rest is what a boot would replay.
        self._covered_entries = -state.entries_replayed
        self._covered_bytes = 0
        self._snapshot_size = 0
        self.sequencer = Sequencer(
            storage,
            generation,
            state.index,
            state.last,
            probe,
            on_settled=self._note_settled,
            on_broken=self._stop,
            answer=self._answers,
        )
        self._count_log_from(self._covered_entries, 0)
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
        keys_of: KeysOf | None = None,
    ) -> KvTablet:
        """Start this generation: block the older ones, read the state, and note durably where they ended. FencedError if a newer
        one runs, UnavailableError if the storage cannot answer now, DamagedTabletError if part of the state is lost, unless that
        is to be given up; then `keys_of` makes keys of the appends that are left. With `first` there is no state, and it is
        written at once."""
        confirmations = storage.confirmations
        started_at = 0.0 if confirmations is None else confirmations.now()
        _check(await storage.block(generation, 1 + random.getrandbits(63)), "the older generations cannot be blocked")
        state = BootState() if first is not None else await read_state(storage, generation, give_up=give_up)
        if give_up and state.losses and keys_of is not None:
            state.index.load(keys_of(state.index, state.appends))
            state.index.count_references()
            state.appends = []
        tablet = cls(storage, generation, state, options or KvOptions(), probe or TabletProbe())
        tablet._is_new = first is not None
        begun: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        tablet.sequencer.submit(Request((), makes_room=True) if first is None else first, begun)
        try:
            await begun
        except (UnavailableError, OutOfSpaceError) as error:
            tablet.sequencer.stop(error)
            if first is not None:
                raise
            raise UnavailableError(f"tablet {storage.info.tablet} cannot write its log now; start it again later") from error
        if confirmations is not None and tablet.stop_cause is None:
            confirmations.add(storage.log_group, tablet, started_at)
        tablet._tasks = [asyncio.create_task(tablet._maintain(), name=f"tablet-{storage.info.tablet}-maintenance")]
        if state.losses:
            log.warning("tablet %d goes on without what is lost: %s", storage.info.tablet, "; ".join(state.losses))
            await tablet.take_snapshot()  # the damaged log before it is not needed any more
        return tablet

    @classmethod
    async def look_into(cls, storage: TabletStorage, keys_of: KeysOf) -> tuple[KvTablet, list[str]]:
        """A tablet that is not started and can only be read, as far as its state is sound; and what of that is lost."""
        state = await salvage_state(storage)
        state.index.load(keys_of(state.index, state.appends))
        state.appends = []
        return cls(storage, GENERATION_MAX, state, KvOptions(), TabletProbe()), state.losses

    @property
    def log_group(self) -> int:
        """The storage group of its log, which confirms that it runs here."""
        return self._storage.log_group

    @property
    def log_entries(self) -> int:
        """How many entries of the log a boot would replay."""
        return self.sequencer.entries - self._covered_entries

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
        self.sequencer.submit(request, done)

    def head(self, key: bytes) -> bytes | None:
        """What a key keeps in memory: a small value, or the head of a long one. None if there is no such key."""
        value = self.index.values.get(key)
        return value.head if isinstance(value, Chain) else value

    def size(self, key: bytes) -> int:
        """The bytes of a value, its head not counted; 0 if there is no such key."""
        value = self.index.values.get(key)
        return 0 if value is None else value_size(value)

    def blobs(self, key: bytes) -> Iterator[BlobId]:
        """The blobs that a value lies in; none if it is kept in memory, or there is no such key."""
        return (ref.blob for ref in refs_of(self.index.values.get(key)))

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

    async def confirm(self) -> None:
        """Return when what is in memory may be told: no other node has started a newer generation a moment ago. UnconfirmedError
        if that is not known in time, FencedError if one has."""
        confirmations = self._storage.confirmations
        if confirmations is not None and confirmations.now() >= confirmations.until:
            await confirmations.check((self._storage.log_group,))
            self.check_open()

    async def confirm_now(self) -> None:
        """The same by a confirmation that begins now, for what a client decides something by."""
        if self._storage.confirmations is not None:
            await self._storage.confirmations.confirm((self._storage.log_group,))
            self.check_open()

    def supersede(self) -> None:
        """Stop at once because a newer generation was started elsewhere."""
        number = self._storage.info.tablet
        self._stop(FencedError(f"generation {self.generation} of tablet {number} is blocked: another node has started it"))

    async def stop(self) -> None:
        """Finish what is in flight and stop."""
        self._stop(ClosedError(f"tablet {self._storage.info.tablet} was stopped"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.sequencer.drain()

    def check_open(self) -> None:
        """Raise what the tablet was stopped for, if it was."""
        if self.stop_cause is not None:
            raise self.stop_cause

    def _stop(self, cause: PenstockError) -> None:
        if self.stop_cause is None:
            self.stop_cause = cause
            self.stopped.set()
            if self._storage.confirmations is not None:
                self._storage.confirmations.remove(self._storage.log_group, self)
            self._maintenance_due.set()
            self.sequencer.stop(cause)

    def _note_settled(self, born: list[BlobId], dead: list[BlobId], abandoned: tuple[int, int]) -> None:
        """An entry is durable: account for its blobs, and see whether a snapshot or a collection is due."""
        garbage = self._garbage
        for blob in born:
            garbage.born(blob)
        if dead:
            garbage.died(dead)
        if abandoned[0]:
            garbage.abandoned(*abandoned)
        if self._is_snapshot_due() or (garbage.waiting and (not self._maintenance_timed or self._is_garbage_due())):
            self._maintenance_due.set()

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
                return TabletStatus(
                    self.generation, self.sequencer.step, len(index.values), index.value_bytes, len(index.references)
                )
        return None

    async def _maintain(self) -> None:
        """Background task: delete leftovers of earlier generations, then collect garbage and take snapshots when due."""
        leftovers_known = self._is_new
        while self.stop_cause is None:
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
        while not self._is_garbage_due() and not self._is_snapshot_due() and self.stop_cause is None:
            self._maintenance_timed = bool(self._garbage.waiting)
            try:
                async with asyncio.timeout(self.options.idle_garbage_s if self._maintenance_timed else None):
                    await self._maintenance_due.wait()
            except TimeoutError:
                return
            self._maintenance_due.clear()

    def _count_log_from(self, entries: int, size: int) -> None:
        """The snapshot covers so many entries of the log, with so many bytes."""
        self._covered_entries, self._covered_bytes = entries, size
        self.sequencer.entries_due = entries + self.options.snapshot_entries
        self.sequencer.bytes_due = size + self.options.snapshot_bytes

    def _is_garbage_due(self) -> bool:
        return self._garbage.waiting >= self.options.garbage_blobs or self._garbage.dead_bytes >= self.options.garbage_bytes

    def _is_snapshot_due(self) -> bool:
        entries = self.log_entries
        if entries >= self.options.snapshot_entries and entries >= len(self.index.values) // 2:
            return True
        log_bytes = self.sequencer.bytes - self._covered_bytes
        return log_bytes >= self.options.snapshot_bytes and log_bytes >= 2 * self._snapshot_size

    async def collect_garbage(self) -> None:
        """Have BlobStorage delete blobs that no key refers to."""
        async with self._maintaining:
            self.check_open()
            _check(await self._garbage.collect(self.sequencer.settled), "garbage cannot be collected")
            self.sequencer.collected = self._garbage.barrier

    async def shorten_log(self, entries_max: int) -> None:
        """Take a snapshot if a boot would replay more entries than this."""
        if self.log_entries > entries_max:
            await self.take_snapshot()

    async def take_snapshot(self) -> None:
        """Write out all keys, so that the log before them can be deleted. Requests continue meanwhile: a page may hold changes
        made after the snapshot began, and replaying the log over it gives the same state."""
        async with self._maintaining:
            await self._write_snapshot()

    async def _write_snapshot(self) -> None:
        # The place is taken first: what is appended while keys are made is in the log after it, and is replayed.
        taken_at = self.sequencer.settled
        entries, size = self.sequencer.entries, self.sequencer.bytes
        for maker in self.key_makers:
            await maker()
        pages: list[BlobId] = []
        total = 0
        for raw in self._pages():
            blob = BlobId(self._storage.info.tablet, PAGES, self.generation, taken_at[1], len(pages), len(raw))
            _check(await self._storage.put(blob, raw, from_reserve=True), "a snapshot cannot be written")
            pages.append(blob)
            total += len(raw)
        self.sequencer.snapshot = SnapshotMark(taken_at, self._garbage.barrier, tuple(pages))
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self.submit(Request((), makes_room=True), done)
        await done
        self._count_log_from(entries, size)
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


def _by_queue(appends: list[tuple[Place, Append]]) -> dict[int, list[tuple[Place, Append]]]:
    by_queue: dict[int, list[tuple[Place, Append]]] = {}
    for place, append in appends:
        by_queue.setdefault(append.queue, []).append((place, append))
    return by_queue


def _check(reply: Reply, what: str) -> None:
    if reply.status in (Status.BLOCKED, Status.ALREADY):
        raise FencedError(f"{what}: a newer generation of the tablet runs ({reply.reason})")
    if reply.status is Status.OUT_OF_SPACE:
        raise OutOfSpaceError(f"{what}: {reply.reason}")
    if reply.status is not Status.OK:
        raise UnavailableError(f"{what}: {reply.status.value}: {reply.reason}")
