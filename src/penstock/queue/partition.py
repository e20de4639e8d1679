"""One partition: a queue of record batches that is never lost, repeated or reordered (seed 000).

Its writer adds what waits to the next entry of the tablet's log. Once that is durable it is applied here: readers see it, and
then the writers are told. What has keys in the tablet is the front of the partition; the pieces behind it are in the log only.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from penstock.blob import BlobId, Buffer, FilePiece
from penstock.core.clock import Clock
from penstock.core.errors import CorruptionError, PenstockError, UnavailableError
from penstock.kernels.batch_cut import cut_batches
from penstock.queue import keys
from penstock.queue.batch import Batch, check_batch
from penstock.queue.body import Body, BodyChange, ReadResult, cut_commands
from penstock.queue.cache import BlobCache
from penstock.queue.change_lock import ChangeLock
from penstock.queue.clean_state import CleanState
from penstock.queue.config import PartitionConfig
from penstock.queue.counting import offset_of_last
from penstock.queue.errors import BodyReplacedError, OffsetOutOfRangeError, PartitionFullError
from penstock.queue.head import data_end_of
from penstock.queue.keying import head_key
from penstock.queue.keys import BODY, DataKey, Description, Meta
from penstock.queue.marker import coordinator_epoch_of
from penstock.queue.origins import Origins
from penstock.queue.partition_append import WriteOutcome, WriteResult
from penstock.queue.partition_state import PartitionState
from penstock.queue.partition_writer import PartitionWriter
from penstock.queue.piece import Piece
from penstock.queue.replay import Appends, replay_appends, unkeyed_appends
from penstock.queue.retention import expired_offset
from penstock.queue.sources import SourceState, SourceWrite
from penstock.queue.transaction_ends import TransactionEnds
from penstock.queue.transactions import Aborted
from penstock.tablet import DeleteRange, KvTablet, Request, Write

SOURCES_AT_ONCE = 2000
SWAP_TURNS_MAX = 100
CUT_KEYS_MAX = 4000  # that one request deletes: it fits a log entry, and holds the loop for milliseconds
NEARLY_ALL = 0.9  # of what a reader asked for is enough where a look for more would find little


class Partition(PartitionState):
    """One partition on its tablet. Make it with `load`; it keeps no state of any reader."""

    def __init__(self, tablet: KvTablet, number: int, config: PartitionConfig, cache: BlobCache, clock: Clock) -> None:
        super().__init__(tablet, number, config, cache, clock)
        self.damaged_bodies = self._reader.damaged  # those that readers or the scrub have found so, by first offset
        self._clock = clock
        self._changing = ChangeLock(tablet, number)  # one change that moves data is in flight at a time
        self.writer = PartitionWriter(self, self._changing, clock)
        self._sources_checked_to = b""
        self.clean = CleanState()
        self.compacting = asyncio.Lock()  # one pass at a time
        self._ends: TransactionEnds | None = None  # most partitions see no transactions

    @classmethod
    async def load(
        cls,
        tablet: KvTablet,
        number: int,
        config: PartitionConfig,
        *,
        cache: BlobCache,
        clock: Clock,
        appends: Appends = (),
    ) -> Partition:
        """Rebuild a partition from its tablet: its meta, the list of its bodies, the content of its head, and the appends of the
        log that have no keys."""
        partition = cls(tablet, number, config, cache, clock)
        meta = Meta.unpack(tablet.head(keys.prefix(b"m", number)) or Meta(0, 0).pack())
        partition.start_offset = meta.start_offset
        partition.clean = CleanState.unpack(tablet.head(keys.prefix(b"k", number)) or CleanState().pack())
        for key in partition._keys(b"d"):
            await partition._load_data(key)
        for key in partition._keys(b"t"):
            partition.transactions.open[keys.producer_of(key)] = keys.unpack_offset(tablet.head(key) or b"")
        for key in partition._keys(b"a"):
            first_offset = keys.unpack_offset(tablet.head(key) or b"")
            partition.transactions.load((Aborted(keys.last_offset_of(key), keys.producer_of(key), first_offset),))
        for key in partition._keys(b"e"):
            partition._epochs.begin(keys.epoch_of(key), keys.unpack_offset(tablet.head(key) or b""))
        partition._keyed_epoch = partition._epochs.latest
        partition._keyed_pieces = len(partition._head)
        raw = tablet.head(keys.prefix(b"l", number))
        logged_from = None if raw is None else keys.unpack_offset(raw)
        unkeyed = unkeyed_appends(appends, logged_from or 0)
        # Appends follow what has keys. The meta may be younger than some of them, so it tells the end only without any.
        first = unkeyed[0].first_offset if unkeyed and logged_from is None else logged_from or 0
        if unkeyed and first < partition.end_offset:
            raise CorruptionError(f"partition {number} has keys up to {partition.end_offset}, and its log goes on at {first}")
        partition.end_offset = max(partition.end_offset, first, 0 if unkeyed else meta.end_offset)
        partition.keyed_to = partition.end_offset
        origins = tablet.head(keys.prefix(b"g", number))
        partition._keyed_origins = None if origins is None else Origins.unpack(origins)
        partition.origins = partition._keyed_origins or Origins(partition.end_offset)
        partition.data_end = data_end_of(partition._head, partition.end_offset)
        replay_appends(partition, unkeyed)
        partition._drop_before(partition.start_offset)
        partition.transactions.forget_before(partition.start_offset)
        partition._forget_gone_sources()
        partition.written = 0
        partition.writer.expect_retries()
        return partition

    @property
    def writes_in_flight(self) -> bool:
        """Whether there are writes without an outcome."""
        return self.writer.in_flight[0] > 0

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
        self.writer.enqueue(batch, source, done)

    async def mark(self, raw: Buffer, source: SourceWrite) -> WriteResult:
        """Store the marker that ends a transaction. The topic's limits do not apply: a transaction must be able to end.
        StaleEpochError if its coordinator, or its producer, was superseded."""
        done: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        batch = check_batch(raw, len(raw))
        self.tablet.check_open()
        ends, decided_by, coordinator_epoch = self.ends, None, coordinator_epoch_of(batch.data)
        ends.begin(batch.producer_id, coordinator_epoch)
        try:
            self.writer.append(batch, source, done)
            result = await done
            decided_by = coordinator_epoch
        finally:
            ends.finish(batch.producer_id, decided_by)
        return result

    @property
    def ends(self) -> TransactionEnds:
        """The ends of transactions here."""
        if self._ends is None:
            self._ends = TransactionEnds()
        return self._ends

    async def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        until: int | None = None,
        files: bool | None = False,
        at_least_one: bool = True,
        is_consumed: bool = True,
    ) -> ReadResult:
        """Batches from the one that holds `offset`: up to `bytes_max` bytes, with `at_least_one` the first in any case, and none
        that begins from `until` on. An offset before the start is taken as the start; at the end there is nothing yet. With
        `files`, what is not in memory comes as pieces of open files; with None, all that is in files, up to the first that is
        not. Metrics do not count a read that is not `is_consumed`."""
        await self.tablet.confirm()
        offset = max(offset, self.start_offset)
        if offset > self.end_offset:
            await self.tablet.confirm_now()  # a reader may start over because of it
            raise OffsetOutOfRangeError(f"offset {offset} is after the end of the partition, {self.end_offset}")
        buffers: list[Buffer | FilePiece] = []
        begin, size, tries, end_offset, stable_offset = offset, 0, 0, self.end_offset, self.stable_offset
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
        if is_consumed:
            self.probe.read(offset - begin, size)
        return ReadResult(tuple(buffers), size, offset, self.start_offset, end_offset, stable_offset)

    def read_at_hand(self, offset: int, bytes_max: int, until: int, at_least_one: bool) -> tuple[list[Buffer], int, int] | None:
        """As `read`, of what is in memory: the buffers, their bytes, and the offset after them; None if a body has to be read.
        The offset is one of the partition, and before `until`."""
        buffers: list[Buffer] = []
        size, begin = 0, offset
        while offset < until:
            head = self._head
            if head and offset >= head[0].first_offset:
                pieces: Sequence[Piece] = head
            else:
                body = self._run_at(offset)
                piece = body if isinstance(body, Piece) else self._reader.held(body)
                if piece is None:
                    if not buffers:
                        return None
                    break
                pieces = (piece,)
            cut, cut_size, next_offset = cut_batches(pieces, offset, bytes_max - size, until, at_least_one and not buffers)
            buffers += cut
            size += cut_size
            offset = next_offset
            if next_offset < pieces[-1].next_offset or pieces is head:
                break
        self.probe.read(offset - begin, size)
        return buffers, size, offset

    def batch_at_hand(self, offset: int) -> memoryview | None:
        """The batch that holds an offset of the partition, or follows it, if it is in memory; None if it has to be read."""
        run = self._run_at(offset)
        piece = run if isinstance(run, Piece) else self._reader.held(run)
        return None if piece is None else piece.batch_with(offset)

    async def wait_beyond(self, offset: int, timeout_s: float) -> bool:
        """Wait until there is something at `offset` or after it. Returns False after the timeout."""
        return await self.arrivals.wait(lambda: self.end_offset > offset, timeout_s)

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

    async def piece_of(self, run: Body | Piece) -> Piece:
        """The batches of a body or a piece of the head. BodyReplacedError if it is not there any more."""
        return run if isinstance(run, Piece) else await self._reader.piece(run)

    def note_lost(self, blobs: AbstractSet[BlobId]) -> None:
        """Adds the bodies that these blobs are part of to the damaged ones, before anyone reads them."""
        for body in self.bodies:
            if not blobs.isdisjoint(self.tablet.blobs(body.key)):
                self.damaged_bodies[body.first_offset] = body

    async def body_data(self, body: Body) -> list[Buffer]:
        """All batches of a body, in buffers that follow one another. BodyReplacedError if it is not there any more."""
        return await self._reader.data(body)

    async def roll_head(self) -> None:
        """Make a body of the head as it is, so that compaction can have it."""
        if self._head:
            await self.writer.make_keys(roll=True)

    async def make_keys(self) -> None:
        """Make keys of all that is in the log only."""
        if self.has_unkeyed:
            await self.writer.make_keys()

    async def swap(self, old_bodies: Sequence[Body], new_body: Body | None, change: BodyChange) -> bool:
        """Put a body in place of some neighbours with one request. False, and nothing is done, if any of these is gone
        already."""
        async with self._changing:
            at = bisect_left(self._bodies, old_bodies[0].first_offset, key=lambda body: body.first_offset) if old_bodies else 0
            if self._bodies[at : at + len(old_bodies)] != list(old_bodies):
                return False
            if new_body is not None and old_bodies:
                fits = old_bodies[0].first_offset <= new_body.first_offset <= new_body.next_offset <= old_bodies[-1].next_offset
                assert fits, "a body takes no offsets but those of the ones it replaces"
            await self.tablet.execute(Request(change.commands(self.number, old_bodies), makes_room=True))
            self._bodies[at : at + len(old_bodies)] = [] if new_body is None else [new_body]
            self.size += (0 if new_body is None else new_body.size) - sum(body.size for body in old_bodies)
            self._held += (0 if new_body is None else new_body.held) - sum(body.held for body in old_bodies)
            self.clean = change.clean or self.clean
            self.transactions.forget(change.forgotten)
            for body in old_bodies:
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
        self.head_size += 0 if own.kind == BODY else description.data_size
        self.end_offset = max(self.end_offset, own.first_offset + own.messages)

    def check_limits(self) -> None:
        """Raise PartitionFullError if what is stored and what is on its way to the disk reach a limit of the topic."""
        config = self.config
        messages, size = self.writer.in_flight
        size += self.size
        messages += self.message_count
        if config.limit_bytes is not None and size >= config.limit_bytes:
            raise PartitionFullError(f"the partition holds {size} bytes, its limit is {config.limit_bytes}")
        if config.limit_messages is not None and messages >= config.limit_messages:
            raise PartitionFullError(f"the partition holds {messages} messages, its limit is {config.limit_messages}")

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
        aborted = self.transactions.nth_aborted(CUT_KEYS_MAX)
        return offset if aborted is None else min(offset, aborted.last_offset)

    async def _cut_to(self, offset: int) -> None:
        assert self.start_offset < offset <= self.end_offset, "a cut moves the start forward, within the partition"
        bodies = [body for body in self._bodies if body.next_offset <= offset]
        pieces = [piece for piece in self._head if piece.next_offset <= offset]
        keyed = [piece for piece in pieces if piece.first_offset < self.keyed_to]
        gone = [body.key for body in bodies] + [head_key(self.number, piece) for piece in keyed]
        first_epoch = self._epochs.kept_from(offset)
        commands = cut_commands(self.number, Meta(offset, self.end_offset), gone, first_epoch)
        await self.tablet.execute(Request(commands, makes_room=True))
        self.start_offset = offset
        self._drop_before(offset)
        self.transactions.forget_before(offset)
        self._epochs.forget_before(first_epoch)
        for body in bodies:
            self._reader.forget(body)

    def _forget_gone_sources(self) -> None:
        """After a replay: forget sources whose last message is gone, as retention has done before. Of one with a key, that would
        bring back what it had written earlier: it stays until retention deletes both."""
        own = keys.prefix(b"s", self.number)
        for source, state in list(self._sources.items()):
            if state.last_offset < self.start_offset and self.tablet.head(own + source) is None:
                del self._sources[source]

    async def _forget_sources(self) -> None:
        """Forget sources whose last message is gone from the partition; some are looked at each time, all in turn."""
        own = keys.prefix(b"s", self.number)
        async with self._changing:  # else a source could write again between the check and the delete
            begin = max(own, self._sources_checked_to)
            looked_at = list(islice(self.tablet.keys(begin, keys.past(own)), SOURCES_AT_ONCE + 1))
            self._sources_checked_to = looked_at.pop() if len(looked_at) > SOURCES_AT_ONCE else b""
            # One that has written since keys were made last is not as its key says.
            forgotten = [source for source, state in self._sources.items() if state.last_offset < self.start_offset]
            settled = (key for key in looked_at if key[len(own) :] not in self._sources)
            states = ((key, SourceState.unpack(self.tablet.head(key) or b"")) for key in settled)
            gone = [key for key, state in states if state.last_offset < self.start_offset]
            gone += (own + source for source in forgotten if self.tablet.head(own + source) is not None)
            if gone:
                await self.tablet.execute(Request(tuple(DeleteRange(key, key + b"\0") for key in gone), makes_room=True))
            for source in forgotten:
                del self._sources[source]
