"""The log of a KV tablet as it is written: one counter of steps, one entry in flight, one order of completion.

Whatever changes the tablet goes through here: requests that change keys, and appends to the queues of the tablet's owner. All
that arrives in one turn of the event loop, or while an entry is in flight, shares the next entry. An entry is one blob of the log
and the data it refers to, sent out at the same time; it is acknowledged when all of it is durable. If any of it may not be, the
next entry says that this one does not count. After BLOCKED nothing more is written.

     turn of the loop      request, append, append, ...
     its end               compose an entry  ->  submit to the storage
     answer                settle (index, queues)  ->  compose the next entry  ->  acknowledge
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.blob import BlobId, Buffer, Content, Reply, Status, TabletStorage
from penstock.core.errors import (
    ClosedError,
    FencedError,
    InvalidRequestError,
    OutOfSpaceError,
    PenstockError,
    UnavailableError,
)
from penstock.kernels.log_bytes import entry_of_appends
from penstock.kernels.produce_frame import ProducedBatch
from penstock.tablet.blob_contents import blob_contents
from penstock.tablet.boot import DATA, LOG
from penstock.tablet.commands import Command, Request, Result, Write
from penstock.tablet.key_index import BlobRef, Chain, Change, KeyIndex, Overlay, Piece, Value
from penstock.tablet.log_format import APPENDS_START, Append, LogEntry, Place, SnapshotMark, encode_entry
from penstock.tablet.pending import Outcome, Pending
from penstock.tablet.probe import TabletProbe

log = logging.getLogger(__name__)

INLINE_MAX = 1000
COMMIT_BYTES_MAX = 16 << 20
ENTRY_BYTES_MAX = 8 << 20
SHARED_CHANGES_MAX = 4_000  # of requests: with more of them, appends wait for the next entry


class WriteWaiter(Protocol):
    """Receives the outcome of an append; a future is one. It must not raise: others wait behind it."""

    def done(self) -> bool:
        """Whether it has the outcome already, or was cancelled."""
        ...

    def set_result(self, result: Any, /) -> None:
        """The append is durable."""
        ...

    def set_exception(self, exception: PenstockError, /) -> None:
        """The append was refused, or may not be durable."""
        ...


Acknowledgements = list[tuple[WriteWaiter, Any]]
"""Those that wait for an entry, each with its result, which for a batch that a kernel has parsed is its offset alone."""


def acknowledge(acknowledgements: Acknowledgements) -> None:
    """Tell those that wait."""
    for waiter, result in acknowledgements:
        if isinstance(waiter, ProducedBatch):
            batch = waiter  # the compiler knows its methods
            if not batch.is_settled:
                batch.stored_at(result)
        elif not waiter.done():
            waiter.set_result(result)


class Appender(Protocol):
    """A queue of the tablet's owner. It asks for a turn with `Sequencer.request_turn`, and is asked for what it adds then.
    `makes_room` if that adds nothing new, and lets the log be dropped: it may use the space that full disks keep for that."""

    makes_room: bool

    def compose(self, draft: Draft) -> bool:
        """Adds what waits to the next entry. Returns False if it has added nothing."""
        ...

    def settle(self) -> Acknowledgements:
        """Applies what was composed: the entry is durable. Returns the writers to acknowledge."""
        ...

    def fail(self, error: PenstockError) -> None:
        """Drops what was composed, and all that waits behind it: the entry may not be durable, or there will be none."""
        ...


class Draft:
    """The next entry in the making."""

    __slots__ = ("_generation", "_index", "_tablet", "appends", "overlay", "puts", "step")

    def __init__(self, index: KeyIndex, tablet: int, generation: int, step: int) -> None:
        self._index = index
        self._tablet = tablet
        self._generation = generation
        self.overlay: Overlay | None = None
        self.step = step
        self.puts: list[tuple[BlobId, Content]] = []
        self.appends: list[tuple[int, bytes, bytes]] = []  # the fields of an Append each

    def execute(self, commands: Sequence[Command], *, alone: bool = False) -> None:
        """Adds the effect of commands. InvalidRequestError if they cannot be carried out; then they have none, unless they are
        `alone` in the entry."""
        base = self.overlay
        if base is None:
            base = self.overlay = Overlay(self._index)
        own = base if alone else Overlay(base)
        puts: list[tuple[BlobId, Content]] = []
        for command in commands:
            if isinstance(command, Write):
                own.set(command.key, self._stored(command, puts))
            else:
                own.apply(command)
        if own is not base:
            base.absorb(own)
        self.puts += puts

    def changes(self) -> list[Change]:
        """Every key that the entry changes."""
        return [] if self.overlay is None else self.overlay.changes()

    def _stored(self, command: Write, puts: list[tuple[BlobId, Content]]) -> Value:
        """The value of a write: in the log if it is small, otherwise in blobs."""
        _, value, head, inline_max = command
        buffers = value if isinstance(value, tuple) else (value,)
        if sum(map(len, buffers)) <= (INLINE_MAX if inline_max is None else inline_max):
            only = buffers[0] if len(buffers) == 1 else None
            small = only if isinstance(only, bytes) else b"".join(buffers)
            return Chain(head, (small,)) if head else small
        pieces: list[Piece] = []
        for content in blob_contents(buffers):
            cookie = len(self.puts) + len(puts)
            blob = BlobId(self._tablet, DATA, self._generation, self.step, cookie, len(content))
            puts.append((blob, content))
            pieces.append(BlobRef(blob, 0, len(content)))
        return Chain(head, tuple(pieces))


class _Flight:
    """The entry in flight, and who waits for it."""

    __slots__ = ("appenders", "began", "born", "changes", "collected", "requests", "size", "snapshot", "step")

    def __init__(self, step: int, requests: list[tuple[Pending, list[Result]]], appenders: list[Appender]) -> None:
        self.step = step
        self.requests = requests
        self.appenders = appenders
        self.changes: Sequence[Change] = ()
        self.born: Sequence[BlobId] = ()
        self.collected: Place | None = None
        self.snapshot: SnapshotMark | None = None
        self.size = 0
        self.began = 0.0


class Sequencer:
    """Writes the log of one generation of a tablet. `on_settled` hears of durable entries: the blobs written, those that nothing
    refers to any more, and how many blobs, with how many bytes, entries that do not count may have left. `on_broken` hears why no
    more can be written."""

    def __init__(
        self,
        storage: TabletStorage,
        generation: int,
        index: KeyIndex,
        last: Place,
        probe: TabletProbe,
        *,
        on_settled: Callable[[list[BlobId], list[BlobId], tuple[int, int]], None],
        on_broken: Callable[[PenstockError], None],
        answer: Callable[[Request], Any],
    ) -> None:
        self._storage = storage
        self._tablet = storage.info.tablet
        self._generation = generation
        self._index = index
        self._probe = probe
        self._on_settled = on_settled
        self._on_broken = on_broken
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self.settled: Place = last
        self.step = 0
        self.boot: Place | None = last
        self.collected: Place | None = None  # goes into the next entry
        self.snapshot: SnapshotMark | None = None  # goes into the next entry
        self.entries = 0  # durable ones since the tablet started
        self.bytes = 0
        self.entries_due = self.bytes_due = 0  # from how many on `on_settled` hears of entries that change no keys
        self._aborted_from = 0  # the first step that failed since the last durable entry; all after it did, too
        self._abandoned_blobs = self._abandoned_bytes = 0  # of data that failed entries may have left
        self._queue: deque[Pending] = deque()
        self._due: list[Appender] = []
        self._flight: _Flight | None = None
        self._reading: asyncio.Task[None] | None = None  # a request that reads before it changes something
        self._is_scheduled = False
        self._stop_cause: PenstockError | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        # Bound once, not for every entry.
        self._on_turn_end = self._compose_next
        self._on_finished = self._finished

    def submit(self, request: Request, outcome: Outcome) -> None:
        """Carry out a request that changes something, behind all that came before it."""
        self._queue.append(Pending.of(request, outcome))
        self._schedule()

    def request_turn(self, appender: Appender) -> None:
        """Ask an appender for what it adds to the next entry."""
        self._due.append(appender)
        if not self._is_scheduled and self._flight is None and self._reading is None:
            self._is_scheduled = True
            self._storage.at_turn_end(self._on_turn_end)

    @property
    def is_in_doubt(self) -> bool:
        """Whether an entry failed that may count after all, if the tablet restarts before the next entry says that it does
        not."""
        return self._aborted_from != 0

    def stop(self, cause: PenstockError) -> None:
        """Write no more entries. What is in flight comes to its end; all that waits fails."""
        if self._stop_cause is None:
            self._stop_cause = cause
            if self._flight is None and self._reading is None:
                self._fail_waiting(cause)

    async def drain(self) -> None:
        """Wait until nothing is in flight."""
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)
        while self._flight is not None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def _schedule(self) -> None:
        if not self._is_scheduled and self._flight is None and self._reading is None:
            self._is_scheduled = True
            # Not at once: what else this turn of the loop brings goes along.
            self._storage.at_turn_end(self._on_turn_end)

    def _compose_next(self) -> None:
        """Compose the next entry of all that waits, and send it out."""
        self._is_scheduled = False
        if self._flight is not None or self._reading is not None:
            return
        if self._stop_cause is not None:
            self._fail_waiting(self._stop_cause)
            return
        if not self._queue:
            due = self._due
            try:
                self._try_commit([])
            except Exception as error:  # noqa: BLE001 - as below
                self._fail(_Flight(0, [], due), self._break(error))
            return
        group = self._take_group()
        if group[0].asks:
            self._reading = self._loop.create_task(self._read_and_commit(group), name=f"tablet-{self._tablet}-read")
        else:
            self._commit([(pending, [None] * len(pending.request.commands)) for pending in group])

    def _take_group(self) -> list[Pending]:
        group = [self._queue.popleft()]
        size = group[0].size
        while self._queue and size + self._queue[0].size <= COMMIT_BYTES_MAX:
            if self._queue[0].asks:
                break  # what it reads is the state after all those before it
            if self._queue[0].request.makes_room != group[0].request.makes_room:
                break  # what needs room must not keep what makes room from being written
            group.append(self._queue.popleft())
            size += group[-1].size
        return group

    async def _read_and_commit(self, group: list[Pending]) -> None:
        """The first of a group reads; if it cannot, it fails and has no effect."""
        first = group[0]
        requests: list[tuple[Pending, list[Result]]] = [
            (pending, [None] * len(pending.request.commands)) for pending in group[1:]
        ]
        try:
            requests.insert(0, (first, await self._answer(first.request)))
        except PenstockError as error:
            first.fail(error)
        except Exception as error:  # noqa: BLE001 - as above
            first.fail(UnavailableError(f"tablet {self._tablet} could not read: {error!r}"))
        self._reading = None
        if self._stop_cause is None:
            self._commit(requests)
        else:
            self._fail(_Flight(0, requests, []), self._stop_cause)
            self._fail_waiting(self._stop_cause)

    def _commit(self, requests: list[tuple[Pending, list[Result]]]) -> None:
        """Send out one entry for these requests and the appends that are due."""
        due = self._due
        try:
            self._try_commit(requests)
        except Exception as error:  # noqa: BLE001 - whatever it is, everyone that waits must hear of it
            self._fail(_Flight(0, requests, due), self._break(error))

    def _try_commit(self, requests: list[tuple[Pending, list[Result]]]) -> None:
        step = self.step + 1
        draft = Draft(self._index, self._tablet, self._generation, step)
        if requests:
            # One that is wrong must leave no trace among those it is committed with.
            alone = len(requests) == 1 and not self._due
            requests = [item for item in requests if self._stage(item[0], draft, alone=alone)]
        makes_room = bool(requests) and requests[0][0].request.makes_room
        appenders: list[Appender] = []
        if self._due and not makes_room and (not requests or self._has_room(requests, draft)):
            due, self._due = self._due, []
            for appender in due:
                if appender.makes_room and not requests:
                    # By themselves: what needs room must not keep what makes room from being written.
                    self._due = [appender for appender in due if not appender.makes_room]
                    due, makes_room = [appender for appender in due if appender.makes_room], True
                    break
            for appender in due:
                if appender.compose(draft):
                    appenders.append(appender)
        if not requests and not appenders:
            if self._queue or self._due:
                self._schedule()
            return
        flight = _Flight(step, requests, appenders)
        is_plain = draft.overlay is None and not (self._aborted_from or self.boot or self.collected or self.snapshot)
        if is_plain and draft.appends:
            raw: Buffer = entry_of_appends(APPENDS_START, [], draft.appends)
        else:
            raw = self._encode(draft, flight)
        if len(raw) > ENTRY_BYTES_MAX and not appenders:
            self._split(requests)
            return
        self.step = step
        self._flight = flight
        puts = draft.puts
        if puts:
            assert puts[0][0][2:4] == (self._generation, step), "what a commit writes is of its own step"
            flight.born = [blob for blob, _ in puts]
        flight.size = len(raw)
        # As BlobId(…) does, without a call of a Python function for every entry.
        puts.append((tuple.__new__(BlobId, (self._tablet, LOG, self._generation, step, 0, len(raw), 0)), raw))
        flight.began = self._probe.now()
        self._storage.submit(puts, self._on_finished, from_reserve=makes_room)

    def _has_room(self, requests: list[tuple[Pending, list[Result]]], draft: Draft) -> bool:
        """Whether appends may share the entry of some requests: it must not come to be too large."""
        return len(draft.changes()) <= SHARED_CHANGES_MAX and sum(pending.size for pending, _ in requests) <= ENTRY_BYTES_MAX // 4

    def _encode(self, draft: Draft, flight: _Flight) -> Buffer:
        changes = [] if draft.overlay is None else draft.overlay.changes()
        flight.changes = changes
        flight.collected, flight.snapshot = self.collected, self.snapshot
        appends = tuple(map(Append._make, draft.appends))
        # Not as a list: while the storage is away entries fail by the million, and each would be longer than the one before.
        aborted = range(self._aborted_from, flight.step) if self._aborted_from else ()
        sections = (self.boot, aborted, self.collected, self.snapshot, tuple(changes), appends)
        return encode_entry(LogEntry(*sections))

    def _stage(self, pending: Pending, draft: Draft, *, alone: bool) -> bool:
        try:
            draft.execute(pending.request.commands, alone=alone)
        except InvalidRequestError as error:
            pending.fail(error)
            return False
        return True

    def _split(self, requests: list[tuple[Pending, list[Result]]]) -> None:
        """The changes do not fit one entry: each request gets one of its own."""
        if len(requests) == 1:
            requests[0][0].fail(InvalidRequestError("the request changes too many keys at once; split it"))
        else:
            for pending, _ in reversed(requests[1:]):
                self._queue.appendleft(pending)
            self._commit(requests[:1])
            return
        if self._queue or self._due:
            self._schedule()

    def _finished(self, trouble: Reply | None) -> None:
        """The storage has answered: the entry in flight is durable, or may not be."""
        flight, self._flight = self._flight, None
        if flight is None:
            return  # it was failed with the tablet
        probe = self._probe
        probe.commits.note(probe.now() - flight.began)
        try:
            if trouble is not None:
                self._abort(flight, trouble)
                acknowledged: Acknowledgements = []
            else:
                probe.requests += len(flight.requests) + len(flight.appenders)
                acknowledged = self._settle(flight)
            if self._idle_waiters:
                self._wake_idle_waiters()
            if self._stop_cause is not None:
                self._fail_waiting(self._stop_cause)
            elif self._queue or self._due:
                # The next entry goes out before anyone is told of this one, so that the disk is not left idle.
                self._compose_next()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(flight, self._break(error))
            return
        acknowledge(acknowledged)

    def _settle(self, flight: _Flight) -> Acknowledgements:
        """The entry is durable: it counts from now on."""
        place = (self._generation, flight.step)
        assert self.settled < place, "entries count in the order they were written in"
        self.settled = place
        self.boot = None
        self._aborted_from = 0
        if self.collected == flight.collected:
            self.collected = None
        if self.snapshot == flight.snapshot:
            self.snapshot = None
        self.entries += 1
        self.bytes += flight.size
        if flight.changes or flight.born or self._abandoned_blobs:
            dead = self._index.apply(flight.changes)
            # Also what was overwritten within the entry itself.
            dead += [blob for blob in flight.born if blob not in self._index.references]
            abandoned = (self._abandoned_blobs, self._abandoned_bytes)
            self._abandoned_blobs = self._abandoned_bytes = 0
            self._on_settled(list(flight.born), dead, abandoned)
        elif self.entries >= self.entries_due or self.bytes >= self.bytes_due:
            self._on_settled([], [], (0, 0))
        acknowledged: Acknowledgements = [(pending.outcome, results) for pending, results in flight.requests]
        for appender in flight.appenders:
            acknowledged += appender.settle()
        return acknowledged

    def _abort(self, flight: _Flight, trouble: Reply) -> None:
        """The entry may or may not be there: it does not count, and the next one will say so."""
        self._probe.failures += 1
        self._abandoned_blobs += len(flight.born)
        self._abandoned_bytes += sum(blob.size for blob in flight.born)
        self._aborted_from = self._aborted_from or flight.step
        error: PenstockError
        if trouble.status is Status.BLOCKED:
            error = FencedError(f"generation {self._generation} of tablet {self._tablet} was told BLOCKED: a newer one runs")
            self._stop_cause = self._stop_cause or error
            self._on_broken(error)
        elif trouble.status is Status.OUT_OF_SPACE:
            error = OutOfSpaceError(f"tablet {self._tablet} cannot write: {trouble.reason}")
        else:
            error = UnavailableError(f"tablet {self._tablet} cannot write: {trouble.status.value}: {trouble.reason}")
        self._fail(flight, error)

    def _fail(self, flight: _Flight, error: PenstockError) -> None:
        for pending, _ in flight.requests:
            pending.fail(error)
        for appender in flight.appenders:
            appender.fail(error)

    def _break(self, error: Exception) -> PenstockError:
        """An unexpected error: fail all that wait, and write nothing more; a new generation recovers from what is stored."""
        log.error("tablet %d failed", self._tablet, exc_info=error)
        broken = ClosedError(f"tablet {self._tablet} failed: {error!r}; it must be restarted")
        self._stop_cause = self._stop_cause or broken
        self._on_broken(broken)
        if self._flight is not None:
            flight, self._flight = self._flight, None
            self._fail(flight, broken)
        self._wake_idle_waiters()
        self._fail_waiting(broken)
        return broken

    def _wake_idle_waiters(self) -> None:
        while self._idle_waiters:
            waiter = self._idle_waiters.pop()
            if not waiter.done():
                waiter.set_result(None)

    def _fail_waiting(self, cause: PenstockError) -> None:
        queue, self._queue = self._queue, deque()
        due, self._due = self._due, []
        for pending in queue:
            pending.fail(cause)
        for appender in due:
            appender.fail(cause)
