"""One partition: a queue of record batches that is never lost, repeated or reordered (seed 000).

Writes queue up; a cycle takes all that waits, gives it offsets, and commits it with everything that changes with it in one
request to the KV tablet. Only then do the writers learn of it and the readers see it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from penstock.blob import Buffer, FilePiece
from penstock.core.clock import Clock
from penstock.core.errors import CorruptionError, PenstockError, UnavailableError
from penstock.queue import keys
from penstock.queue.arrivals import Arrivals
from penstock.queue.batch import Batch, check_batch
from penstock.queue.body import Body, BodyChange, BodyReader, ReadResult, cut_commands
from penstock.queue.cache import BlobCache
from penstock.queue.change_lock import ChangeLock
from penstock.queue.clean_state import CleanState
from penstock.queue.config import PartitionConfig
from penstock.queue.counting import cut_off, offset_of_last
from penstock.queue.epochs import Epochs
from penstock.queue.errors import BodyReplacedError, OffsetOutOfRangeError, PartitionFullError
from penstock.queue.head import HeadPlan, data_end_of
from penstock.queue.keys import BODY, DataKey, Description, Meta
from penstock.queue.origins import Origins
from penstock.queue.piece import Piece
from penstock.queue.probe import QueueProbe
from penstock.queue.retention import expired_offset
from penstock.queue.sources import SourceState, SourceWrite, check_source
from penstock.queue.transactions import Aborted, Transactions
from penstock.queue.write_cycle import WaitingWrite, WriteCycle, WriteOutcome, WriteResult, body_commands, body_of, head_key
from penstock.queue.writing import Writing
from penstock.tablet import Command, DeleteRange, KvTablet, Request, Write

SOURCES_AT_ONCE = 2000
SWAP_TURNS_MAX = 100
CUT_KEYS_MAX = 4000  # that one request deletes: it fits a log entry, and holds the loop for milliseconds
NEARLY_ALL = 0.9  # of what a reader asked for is enough where a look for more would find little


class Partition:
    """One partition on its tablet. Make it with `load`; it keeps no state of any reader."""

    def __init__(self, tablet: KvTablet, number: int, config: PartitionConfig, cache: BlobCache, clock: Clock) -> None:
        self.tablet = tablet
        self.number = number
        self.config = config
        self._reader = BodyReader(tablet, cache)
        self.damaged_bodies = self._reader.damaged  # those that readers have found so, by first offset
        self._clock = clock
        self.start_offset = 0
        self.end_offset = 0
        self.size = 0
        self.written = 0  # messages since it was loaded
        self._held = 0  # messages of all bodies and pieces, wherever the start is
        self.data_end = 0  # the offset after the last message: only markers follow
        self._bodies: list[Body] = []
        self._head: list[Piece] = []
        self._transactions = Transactions()
        self._epochs = Epochs()
        self.origins = Origins(0)
        self._has_origins = False  # whether they are stored
        self._changing = ChangeLock(tablet, number)  # one request that moves data is in flight at a time
        self._writing = Writing(self, tablet, self._changing)
        self.arrivals = Arrivals(clock)
        self._sources_checked_to = b""
        self.clean = CleanState()
        self.probe = QueueProbe()  # until its tablet gives it another
        self.compacting = asyncio.Lock()  # one pass at a time

    @classmethod
    async def load(cls, tablet: KvTablet, number: int, config: PartitionConfig, *, cache: BlobCache, clock: Clock) -> Partition:
        """Rebuild a partition from its tablet: its meta, the list of its bodies, and the content of its head."""
        partition = cls(tablet, number, config, cache, clock)
        meta = Meta.unpack(tablet.head(keys.prefix(b"m", number)) or Meta(0, 0).pack())
        partition.start_offset, partition.end_offset = meta
        partition.clean = CleanState.unpack(tablet.head(keys.prefix(b"k", number)) or CleanState().pack())
        for key in partition._keys(b"d"):
            await partition._load_data(key)
        for key in partition._keys(b"t"):
            partition._transactions.open[keys.producer_of(key)] = keys.unpack_offset(tablet.head(key) or b"")
        for key in partition._keys(b"a"):
            first_offset = keys.unpack_offset(tablet.head(key) or b"")
            partition._transactions.load((Aborted(keys.last_offset_of(key), keys.producer_of(key), first_offset),))
        for key in partition._keys(b"e"):
            partition._epochs.begin(keys.epoch_of(key), keys.unpack_offset(tablet.head(key) or b""))
        origins = tablet.head(keys.prefix(b"g", number))
        partition.origins = Origins(partition.end_offset) if origins is None else Origins.unpack(origins)
        partition._has_origins = origins is not None
        partition.data_end = data_end_of(partition._head, partition.end_offset)
        return partition

    @property
    def epoch(self) -> int:
        """The leader epoch: the generation of its tablet."""
        return self.tablet.generation

    @property
    def stable_offset(self) -> int:
        """The last stable offset: read_committed consumers may read up to it."""
        return max(self._transactions.stable_offset(self.end_offset), self.start_offset)

    @property
    def message_count(self) -> int:
        """How many messages there are, without markers. Those that are cut off within the first blob are taken to be spread
        evenly there; `count_messages` is exact."""
        return self._held - cut_off((self._bodies or self._head)[:1], self.start_offset)

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp of any message; -1 if there is none."""
        return max((run.max_timestamp for run in self.runs if run.next_offset > self.start_offset), default=-1)

    async def write(self, raw: Buffer, source: SourceWrite | None = None) -> WriteResult:
        """Store a batch; it is durable when this returns. The bytes must not change until then."""
        return await self.append(check_batch(raw, self.config.batch_bytes_max), source)

    async def append(self, batch: Batch, source: SourceWrite | None = None) -> WriteResult:
        """Store a batch that was checked already."""
        done: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        self.enqueue(batch, source, done)
        return await done

    def enqueue(self, batch: Batch, source: SourceWrite | None, done: WriteOutcome) -> None:
        """Queue a checked batch; `done` gets the result once it is stored."""
        if source is not None:
            check_source(source, batch.messages)
        self.tablet.check_open()
        self._check_limits()
        self._writing.admit(len(batch.data), self.config.waiting_bytes_max)
        self._writing.append(WaitingWrite(batch, source, done))

    async def mark(self, raw: Buffer, source: SourceWrite) -> WriteResult:
        """Store the marker that ends a transaction. The topic's limits do not apply: a transaction must be able to end."""
        done: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        self._writing.append(WaitingWrite(check_batch(raw, len(raw)), source, done))
        return await done

    async def read(
        self, offset: int, bytes_max: int, *, until: int | None = None, files: bool | None = False, at_least_one: bool = True
    ) -> ReadResult:
        """Batches from the one that holds `offset`: up to `bytes_max` bytes, with `at_least_one` the first in any case, and none
        that begins from `until` on. An offset before the start is taken as the start; at the end there is nothing yet. With
        `files`, what is not in memory comes as pieces of open files; with None, all that is in files, up to the first that is
        not."""
        offset = max(offset, self.start_offset)
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is after the end of the partition, {self.end_offset}")
        buffers: list[Buffer | FilePiece] = []
        size = tries = 0
        begin, end_offset, stable_offset = offset, self.end_offset, self.stable_offset
        limit = end_offset if until is None else min(until, end_offset)
        while offset < limit and (size < bytes_max or not buffers):
            if offset < self.start_offset:  # trimmed while this read was waiting
                if buffers:
                    break
                offset = self.start_offset
                continue
            run = self._run_at(offset)
            try:
                parts, next_offset = await self._read_run(run, offset, bytes_max - size, limit, files=files)
            except BodyReplacedError:
                tries += 1
                if tries > SWAP_TURNS_MAX:
                    raise
                await asyncio.sleep(0)  # its replacement appears within a turn of the loop
                continue
            except PenstockError:
                if offset >= self.start_offset:
                    raise
                continue
            parts_size = sum([part.length if isinstance(part, FilePiece) else len(part) for part in parts])
            if (buffers or not at_least_one) and size + parts_size > bytes_max:
                break
            if buffers and files is None and parts and not isinstance(parts[0], FilePiece):
                break
            buffers.extend(parts)
            size += parts_size
            offset = next_offset
            if parts and offset < run.next_offset and (isinstance(parts[-1], FilePiece) or size > bytes_max * NEARLY_ALL):
                break  # the next batch is too large, or nearly so: another look is not worth it
        self.probe.read(offset - begin, size)
        return ReadResult(tuple(buffers), size, offset, self.start_offset, end_offset, stable_offset)

    def batch_at_hand(self, offset: int) -> memoryview | None:
        """The batch that holds an offset of the partition, or follows it, if it is in memory; None if it has to be read."""
        run = self._run_at(offset)
        piece = run if isinstance(run, Piece) else self._reader.held(run)
        return None if piece is None else piece.batch_with(offset)

    async def wait_beyond(self, offset: int, timeout_s: float) -> bool:
        """Wait until there is something at `offset` or after it. Returns False after the timeout."""
        return await self.arrivals.wait(lambda: self.end_offset > offset, timeout_s)

    def aborted_between(self, begin: int, end: int) -> list[Aborted]:
        """Aborted transactions with a part in begin <= offset < end."""
        return self._transactions.aborted_between(begin, end)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The last leader epoch up to `epoch` that is known, and the offset it ended at; (-1, -1) if it has not come yet."""
        return self._epochs.end_of(epoch, self.epoch, self.end_offset)

    async def find_time(self, timestamp_ms: int, from_offset: int = 0) -> tuple[int, Buffer] | None:
        """The first batch with this timestamp or a later one and an offset from `from_offset` on, and its base offset; None if
        there is none."""
        for _ in range(SWAP_TURNS_MAX):
            try:
                return await self._find_time(timestamp_ms, max(from_offset, self.start_offset))
            except BodyReplacedError:
                await asyncio.sleep(0)  # its replacement appears within a turn of the loop
        raise UnavailableError(f"partition {self.number} changes while it is searched for a time; ask again")

    async def _find_time(self, timestamp_ms: int, first: int) -> tuple[int, Buffer] | None:
        for run in self.runs:
            if run.max_timestamp < timestamp_ms or run.next_offset <= first:
                continue
            batch = (await self.piece_of(run)).batch_since(timestamp_ms, max(first, self.start_offset))
            if batch is not None:
                return batch
        return None

    def source(self, source: bytes) -> SourceState | None:
        """What a source has written last."""
        raw = self.tablet.head(keys.prefix(b"s", self.number) + source)
        return None if raw is None else SourceState.unpack(raw)

    def sources(self) -> Iterator[tuple[bytes, SourceState]]:
        """Every source that is known, and what it has written last."""
        own = keys.prefix(b"s", self.number)
        for key in self._keys(b"s"):
            yield key[len(own) :], SourceState.unpack(self.tablet.head(key) or b"")

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction."""
        return self._transactions.open.get(producer_id)

    def committed(self, consumer: str) -> int | None:
        """A consumer's position."""
        raw = self.tablet.head(keys.prefix(b"c", self.number) + consumer.encode())
        return None if raw is None else keys.unpack_offset(raw)

    async def commit(self, consumer: str, offset: int) -> None:
        """Set a consumer's position, durably."""
        if not 0 <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(f"position {offset} is not within the partition, which ends at {self.end_offset}")
        key = keys.prefix(b"c", self.number) + consumer.encode()
        await self.tablet.execute(Request((Write(key, keys.pack_offset(offset)),), makes_room=True))

    async def trim(self, offset: int) -> int:
        """Delete everything before an offset. Returns the new start."""
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(f"cannot trim to {offset}: the partition ends at {self.end_offset}")
        async with self._changing:
            if offset > self.start_offset:
                await self._cut_front(offset)
        return self.start_offset

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Its bodies, in order."""
        return tuple(self._bodies)

    @property
    def head(self) -> tuple[Piece, ...]:
        """The pieces of its head, in order."""
        return tuple(self._head)

    @property
    def runs(self) -> list[Body | Piece]:
        """All bodies and the pieces of the head, in order."""
        return [*self._bodies, *self._head]

    @property
    def head_size(self) -> int:
        """Bytes of its head."""
        return sum(piece.size for piece in self._head)

    @property
    def head_since_ms(self) -> int | None:
        """The timestamp of the oldest batch in the head; None if it is empty."""
        return self._head[0].min_timestamp if self._head else None

    async def piece_of(self, run: Body | Piece) -> Piece:
        """The batches of a body or a piece of the head. BodyReplacedError if it is not there any more."""
        return run if isinstance(run, Piece) else await self._reader.piece(run)

    async def body_data(self, body: Body) -> list[Buffer]:
        """All batches of a body, in buffers that follow one another. BodyReplacedError if it is not there any more."""
        return await self._reader.data(body)

    async def roll_head(self) -> None:
        """Make a body of the head as it is, so that compaction can have it."""
        async with self._changing:
            if run := tuple(self._head):
                commands = body_commands(self.number, run, {id(piece): head_key(self.number, piece) for piece in run})
                await self.tablet.execute(Request(tuple(commands)))
                piece = Piece.joined(run)
                self._bodies.append(body := body_of(self.number, piece))
                self._reader.remember(body, piece)
                self._head.clear()

    async def swap(self, gone: Sequence[Body], made: Body | None, change: BodyChange) -> bool:
        """Put a body in place of some neighbours with one request. False, and nothing is done, if any of these is gone
        already."""
        async with self._changing:
            at = bisect_left(self._bodies, gone[0].first_offset, key=lambda body: body.first_offset) if gone else 0
            if self._bodies[at : at + len(gone)] != list(gone):
                return False
            if made is not None and gone:
                fits = gone[0].first_offset <= made.first_offset <= made.next_offset <= gone[-1].next_offset
                assert fits, "a body takes no offsets but those of the ones it replaces"
            await self.tablet.execute(Request(change.commands(self.number, gone), makes_room=True))
            self._bodies[at : at + len(gone)] = [] if made is None else [made]
            self.size += (0 if made is None else made.size) - sum(body.size for body in gone)
            self._held += (0 if made is None else made.held) - sum(body.held for body in gone)
            self.clean = change.clean or self.clean
            self._transactions.forget(change.forgotten)
            for body in gone:
                self._reader.forget(body)
        return True

    async def retain(self, needed_from: int | None = None, now_ms: int | None = None) -> int:
        """Delete whole blobs beyond the topic's retention that no important consumer needs and that end before `needed_from`, and
        sources whose messages are gone. Returns the number of messages deleted."""
        kept = self.config.retention_messages
        counted = None if kept is None else await offset_of_last(self, kept, self.end_offset)
        async with self._changing:
            before = self.message_count
            now_ms = int(self._clock.wall() * 1000) if now_ms is None else now_ms
            expired = expired_offset(self.runs, self.config, start_offset=self.start_offset, size=self.size, now_ms=now_ms)
            needed = self.end_offset if needed_from is None else needed_from
            await self._cut_front(min(max(expired, counted or 0), self._needed_offset(), needed))
            gone = before - self.message_count
        await self._forget_sources()
        return gone

    def _keys(self, kind: bytes) -> list[bytes]:
        own = keys.prefix(kind, self.number)
        return list(self.tablet.keys(own, keys.past(own)))

    async def _load_data(self, key: bytes) -> None:
        own = DataKey.unpack(key)
        description = Description.unpack(self.tablet.head(key) or b"")
        if own.kind == BODY:
            self._bodies.append(Body(self.number, own.first_offset, own.messages, *description))
        else:
            data = await self.tablet.read(key, 0, description.data_size)
            if data is None or len(data) != description.data_size:
                raise CorruptionError(f"head blob {own} of partition {self.number} is not whole")
            self._head.append(Piece.parse(data, own.first_offset, own.messages))
        self._held += (self._bodies[-1] if own.kind == BODY else self._head[-1]).held
        self.size += description.data_size
        self.end_offset = max(self.end_offset, own.first_offset + own.messages)

    def _check_limits(self) -> None:
        """Raise PartitionFullError if what is stored and what is on its way to the disk reach a limit of the topic."""
        config = self.config
        if config.limit_bytes is None and config.limit_messages is None:
            return
        messages, size = self._writing.in_flight()
        size += self.size
        messages += self.message_count
        if config.limit_bytes is not None and size >= config.limit_bytes:
            raise PartitionFullError(f"the partition holds {size} bytes, its limit is {config.limit_bytes}")
        if config.limit_messages is not None and messages >= config.limit_messages:
            raise PartitionFullError(f"the partition holds {messages} messages, its limit is {config.limit_messages}")

    def new_cycle(self, before: WriteCycle | None) -> WriteCycle:
        """A write cycle that follows another, or what is stored."""
        return WriteCycle(
            self.number,
            self.end_offset if before is None else before.next_offset,
            self.tablet.generation,
            transactions=(self._transactions if before is None else before.transactions).copy(),
            source_of=self.source if before is None else before.state_of,
        )

    def plan(self, cycle: WriteCycle) -> tuple[HeadPlan, Request] | None:
        """What a cycle does to the head, and the request that does it; None if it has nothing to write."""
        assert cycle.next_offset - cycle.messages == self.end_offset, "a cycle begins where the partition ends"
        plan = cycle.plan(self._head, self.config.low_watermark, self.config.body_bytes)
        if plan is None:
            return None
        return plan, Request(cycle.commands(self._head, plan) + self._epoch_commands() + self._origin_commands(cycle))

    def _epoch_commands(self) -> tuple[Command, ...]:
        """With its first write, a generation notes where it began."""
        if self._epochs.latest == self.epoch:
            return ()
        return (Write(keys.epoch_key(self.number, self.epoch), keys.pack_offset(self.end_offset)),)

    def _origin_commands(self, cycle: WriteCycle) -> tuple[Command, ...]:
        origins = self.origins.with_own(cycle.first_own)
        return () if self._has_origins and origins == self.origins else (Write(keys.prefix(b"g", self.number), origins.pack()),)

    def advance(self, cycle: WriteCycle, plan: HeadPlan) -> None:
        """Make a cycle that is durable readable."""
        assert cycle.next_offset - cycle.messages == self.end_offset, "nothing was written while the cycle was"
        del self._head[len(self._head) - plan.replaced :]
        for run in plan.bodies:
            piece = Piece.joined(run)
            body = body_of(self.number, piece)
            self._bodies.append(body)
            self._reader.remember(body, piece.kept())
        if plan.piece is not None:
            self._head.append(plan.piece.kept())
        self._transactions = cycle.transactions
        self._transactions.settle()
        self.size += cycle.size
        messages = cycle.messages - cycle.hidden
        self._held += messages
        self.written += messages
        self.data_end = cycle.data_end or self.data_end
        self.probe.wrote(len(cycle.waiting), messages, cycle.size)
        if self._epochs.latest != self.epoch:
            self._epochs.begin(self.epoch, self.end_offset)
        self.origins, self._has_origins = self.origins.with_own(cycle.first_own), True
        self.end_offset = cycle.next_offset
        assert (self._head or self._bodies)[-1].next_offset == self.end_offset, "the last run reaches to the end"
        self.arrivals.tell()

    def _run_at(self, offset: int) -> Body | Piece:
        """What holds an offset; if compaction has left a gap there, what follows it."""
        runs: Sequence[Body | Piece] = self._bodies if self._bodies and offset < self._bodies[-1].next_offset else self._head
        at = max(bisect_right(runs, offset, key=lambda run: run.first_offset) - 1, 0)
        return runs[at] if offset < runs[at].next_offset else runs[at + 1]

    async def _read_run(
        self, run: Body | Piece, offset: int, limit: int, until: int, *, files: bool | None
    ) -> tuple[Sequence[Buffer | FilePiece], int]:
        """Batches from one body or head piece, and the offset after them."""
        if isinstance(run, Body) and files is not False and run.next_offset <= until:
            is_sent_from_file = files is None or not self._reader.is_warm(run)
            span = await self._reader.files(run, offset, limit, only_files=files is None) if is_sent_from_file else None
            if span is not None:
                return span
        piece = await self.piece_of(run)
        start = piece.find(offset)
        if piece.next_offset_at(start) >= until:
            return [], until
        end = piece.end_within(start, limit)
        if piece.next_offset_at(end) > until:
            end = max(piece.find(until), piece.batch_end(start))
        return piece.cut(start, end), piece.next_offset_at(end)

    def _needed_offset(self) -> int:
        """Up to where every important consumer has read."""
        positions = [self.committed(consumer) or 0 for consumer in self.config.important_consumers]
        return min(positions, default=self.end_offset)

    async def _cut_front(self, offset: int) -> None:
        """Delete everything before an offset, in as many requests as it takes. Each leaves the partition cut at some offset on
        the way, so a crash between two of them leaves it whole."""
        while self.start_offset < offset:
            await self._cut_to(self._next_cut(offset))

    def _next_cut(self, offset: int) -> int:
        """How far one request may cut on the way to an offset."""
        if len(self._bodies) > CUT_KEYS_MAX:
            offset = min(offset, self._bodies[CUT_KEYS_MAX - 1].next_offset)
        aborted = self._transactions.nth_aborted(CUT_KEYS_MAX)
        return offset if aborted is None else min(offset, aborted.last_offset)

    async def _cut_to(self, offset: int) -> None:
        assert self.start_offset < offset <= self.end_offset, "a cut moves the start forward, within the partition"
        bodies = [body for body in self._bodies if body.next_offset <= offset]
        pieces = [piece for piece in self._head if piece.next_offset <= offset]
        gone = [body.key for body in bodies] + [head_key(self.number, piece) for piece in pieces]
        first_epoch = self._epochs.kept_from(offset)
        commands = cut_commands(self.number, Meta(offset, self.end_offset), gone, first_epoch)
        await self.tablet.execute(Request(commands, makes_room=True))
        self.start_offset = offset
        del self._bodies[: len(bodies)]
        del self._head[: len(pieces)]
        self.size -= sum(body.size for body in bodies) + sum(piece.size for piece in pieces)
        self._held -= sum(body.held for body in bodies) + sum(piece.held for piece in pieces)
        assert min(self.size, self._held) >= 0, "no more is cut than was there"
        self._transactions.forget_before(offset)
        self._epochs.forget_before(first_epoch)
        for body in bodies:
            self._reader.forget(body)

    async def _forget_sources(self) -> None:
        """Forget sources whose last message is gone from the partition; some are looked at each time, all in turn."""
        own = keys.prefix(b"s", self.number)
        async with self._changing:  # else a source could write again between the check and the delete
            begin = max(own, self._sources_checked_to)
            looked_at = list(islice(self.tablet.keys(begin, keys.past(own)), SOURCES_AT_ONCE + 1))
            self._sources_checked_to = looked_at.pop() if len(looked_at) > SOURCES_AT_ONCE else b""
            states = ((key, SourceState.unpack(self.tablet.head(key) or b"")) for key in looked_at)
            gone = [DeleteRange(key, key + b"\0") for key, state in states if state.last_offset < self.start_offset]
            if gone:
                await self.tablet.execute(Request(tuple(gone), makes_room=True))
