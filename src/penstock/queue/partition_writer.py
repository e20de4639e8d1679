"""The writer of a partition: it queues batches as they arrive, and appends all that are queued to the next entry of the log.

A small write is an append: its bytes stand in the log entry, and nothing else is changed in the tablet. Keys are made of appends
when the head becomes a body, when a large write comes, and before a snapshot: of all that have none, so that what has keys is
always the front of the partition, and the log the rest. A failed entry fails all that waits behind it, since dedup would
otherwise refuse the failed writes for ever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.blob import Vector
from penstock.core.errors import OutOfSpaceError, PenstockError, UnavailableError
from penstock.core.record_format import TRANSACTIONAL
from penstock.kernels.produce_frame import ProducedBatch
from penstock.queue.append_note import VERSION as NOTE_VERSION
from penstock.queue.append_note import pack_note, pack_plain
from penstock.queue.batch import Batch
from penstock.queue.change_lock import ChangeLock
from penstock.queue.errors import PartitionFullError, SequenceError, WriteQueueFullError
from penstock.queue.partition_append import PartitionAppend, WriteOutcome, WriteResult
from penstock.queue.sources import SourceState, SourceWrite, check_source, known_offset, leaves_gap
from penstock.tablet import acknowledge

if TYPE_CHECKING:
    from penstock.core.clock import Clock
    from penstock.queue.partition import Partition
    from penstock.tablet import Draft

ENTRY_BYTES_MAX = 16 << 20  # of a partition in one entry of the log
NO_LIMIT = 1 << 62
APPEND_BYTES_MAX = 64 << 10  # from here on the data is written to a blob at once, not to the log
PATIENCE_S = 30.0  # the time-out of requests by default: what was sent along with a write that failed has come by then

Write = tuple[Batch | ProducedBatch, SourceWrite | None, WriteOutcome]


class PartitionWriter:
    """Writes of one partition, in the order they came. At most one entry of the log that it adds to is in flight."""

    __slots__ = (
        "_clock",
        "_composing",
        "_current",
        "_held_bytes",
        "_held_messages",
        "_holds_lock",
        "_is_due",
        "_key_waiters",
        "_lock",
        "_partition",
        "_patient_from",
        "_patient_until",
        "_resume_at",
        "_rolls",
        "_sequencer",
        "_waiting",
        "makes_room",
    )

    def __init__(self, partition: Partition, lock: ChangeLock, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self._sequencer = partition.tablet.sequencer
        self._lock = lock
        self._waiting: list[Write] = []
        self._held_bytes = 0  # of all writes without an outcome
        self._held_messages = 0
        self._resume_at: int | None = None  # set while writes are refused
        self._composing: list[Write] = []  # taken, and not in flight yet
        self._current: PartitionAppend | None = None  # in flight
        self._is_due = False  # whether it has asked for a turn, or waits for the lock
        self._holds_lock = False
        self._key_waiters: list[asyncio.Future[None]] = []
        self._rolls = False  # whether the whole head is to become a body
        self.makes_room = False  # whether its next turn only makes keys
        # Until then, producers that have written nothing from that offset on are expected to send failed writes again.
        self._patient_until = 0.0
        self._patient_from = 0

    def expect_retries(self) -> None:
        """Note that writes have failed or were refused until now, here or by an earlier owner of the partition."""
        self._patient_until = self._clock.monotonic() + PATIENCE_S
        self._patient_from = self._partition.end_offset + self._held_messages

    @property
    def in_flight(self) -> tuple[int, int]:
        """Messages and bytes of all writes without an outcome."""
        return self._held_messages, self._held_bytes

    def _admit(self, size: int, bytes_max: int) -> None:
        """Raise WriteQueueFullError unless another write of this size fits the queue. An empty queue takes any write. Once a
        write is refused, all are refused until it would fit and the queue is half empty: otherwise smaller writes that its source
        sent after it would overtake it."""
        held = self._held_bytes
        if held and self._resume_at is None and held + size > bytes_max:
            self._resume_at = min(bytes_max // 2, bytes_max - size)
        if held and self._resume_at is not None and held > self._resume_at:
            self.expect_retries()
            raise WriteQueueFullError(
                f"{held} bytes wait to be written to the partition, and {bytes_max} may; send this again in a moment"
            )
        self._resume_at = None

    def enqueue(self, batch: Batch | ProducedBatch, source: SourceWrite | None, outcome: WriteOutcome) -> None:
        """Queue a checked batch, as `append` does, after checking the limits of the topic. Raises PartitionFullError if they are
        reached, or the error that stopped the tablet if it has stopped."""
        partition = self._partition
        if source is not None:
            check_source(source, batch.messages)
        if partition.tablet.stop_cause is not None:
            partition.tablet.check_open()
        if partition.has_limits:
            try:
                partition.check_limits()
            except PartitionFullError:
                self.expect_retries()
                raise
        self.append(batch, source, outcome, partition.waiting_bytes_max)

    def append(
        self, batch: Batch | ProducedBatch, source: SourceWrite | None, outcome: WriteOutcome, bytes_max: int = NO_LIMIT
    ) -> None:
        """Queue a checked batch behind all earlier ones; `outcome` is set when it is durable. Raises WriteQueueFullError if more
        than `bytes_max` would be queued."""
        if isinstance(batch, ProducedBatch):
            produced = batch  # the compiler knows its fields
            size, messages = len(produced.data), produced.messages
        else:
            size, messages = len(batch.data), batch.messages
        if self._resume_at is not None or self._held_bytes + size > bytes_max:
            self._admit(size, bytes_max)
        self._waiting.append((batch, source, outcome))
        self._held_bytes += size
        self._held_messages += messages
        if not self._is_due and self._current is None:
            self._is_due = True
            self._sequencer.request_turn(self)

    async def make_keys(self, *, roll: bool = False) -> None:
        """Store all that is in the log only under keys of the tablet; with `roll`, make a body of the whole head."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._key_waiters.append(waiter)
        self._rolls = self._rolls or roll
        self.makes_room = True
        if not self._is_due and self._current is None:
            self._is_due = True
            self._sequencer.request_turn(self)
        await waiter

    def compose(self, draft: Draft) -> bool:
        """See Appender: adds all queued writes to the entry, unless another change of the partition is in flight."""
        if not self._holds_lock:
            turn = self._lock.take()
            if turn is not None:
                turn.add_done_callback(self._take_turn)
                return False
            self._holds_lock = True
        self._is_due = False
        partition = self._partition
        rolls, self._rolls = self._rolls, False
        added = self._take_waiting(none=self.makes_room)
        self.makes_room = False
        if self._key_waiters:
            added.key_waiters, self._key_waiters = self._key_waiters, []
        must_key = bool(added.key_waiters) or added.size >= APPEND_BYTES_MAX
        if must_key or partition.head_size + added.size >= partition.watermark:
            has_work = bool(added.size) or partition.has_unkeyed or (rolls and bool(partition.head))
            if has_work:
                added.plan, commands = partition.plan_keys(added, roll=rolls)
                draft.execute(commands)
                if added.known_sums:
                    for _, content in draft.puts:
                        if isinstance(content, Vector):
                            content.known_sums = added.known_sums
        elif has_work := bool(added.size):
            data = added.joined = added.data()
            sources = added.named_sources
            # As `pack_note` does, without a call of a Python function for every entry.
            note = pack_note(added.first_offset, sources) if sources else pack_plain(NOTE_VERSION, added.first_offset, 0)
            draft.appends.append((partition.number, note, data))
        self._current = added
        self._composing = []
        if has_work:
            return True
        # Duplicates alone, or nothing to make keys of.
        acknowledge(self._finish(added))
        return False

    def settle(self) -> list[tuple[WriteOutcome, Any]]:
        """See Appender."""
        added = self._current
        assert added is not None, "only what was composed is settled"
        self._partition.apply(added)
        return self._finish(added)

    def fail(self, error: PenstockError) -> None:
        """See Appender."""
        added, self._current = self._current, None
        waiting, self._waiting, self._composing = self._composing + self._waiting, [], []
        waiters, self._key_waiters = self._key_waiters, []
        if added is not None:
            waiters += added.key_waiters
        self._held_bytes = self._held_messages = 0
        self._is_due = self._rolls = self.makes_room = False
        self.expect_retries()
        told = error
        if isinstance(error, OutOfSpaceError):
            told = PartitionFullError(f"the storage of partition {self._partition.number} is full: {error}")
        outcomes: list[WriteOutcome] = [] if added is None else [outcome for outcome, _ in added.acknowledgements]
        for outcome in (*outcomes, *(outcome for _, _, outcome in waiting)):
            if not outcome.done():
                outcome.set_exception(told)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
        if self._holds_lock:
            self._holds_lock = False
            self._lock.leave(error)

    def _take_waiting(self, *, none: bool) -> PartitionAppend:
        """Assign offsets to the queued writes, as many as fit an entry. An invalid write fails at once, and alone."""
        partition = self._partition
        waiting: list[Write] = []
        if not none:
            count = len(self._waiting) if self._held_bytes <= ENTRY_BYTES_MAX else self._count_fitting()
            waiting = self._waiting
            if count == len(waiting):
                self._waiting = []
            else:
                waiting, self._waiting = waiting[:count], waiting[count:]
            self._composing = waiting
        added = PartitionAppend(partition.end_offset, partition.tablet.generation, is_large=self._held_bytes >= APPEND_BYTES_MAX)
        if waiting and not self._waiting:
            added.taken_bytes, added.taken_messages = self._held_bytes, self._held_messages
        else:
            added.taken_bytes = sum([len(batch.data) for batch, _, _ in waiting])
            added.taken_messages = sum([batch.messages for batch, _, _ in waiting])
        transactions = partition.transactions
        has_open = bool(transactions.open)
        acknowledgements = added.acknowledgements
        for batch, source, outcome in waiting:
            # A write whose client is gone is stored all the same: were it skipped, the next of its source could overtake it.
            if isinstance(batch, ProducedBatch):
                produced = batch
                messages, attributes = produced.messages, produced.attributes
            else:
                messages, attributes = batch.messages, batch.attributes
            state = None
            try:
                if source is not None:
                    state = added.sources.get(source.source) or partition.source(source.source)
                    known = known_offset(state, source, messages)
                    if known is not None:
                        is_offset = isinstance(outcome, ProducedBatch)
                        acknowledgements.append((outcome, known if is_offset else WriteResult(known, duplicate=True)))
                        continue
                if has_open or added.transactions is not None or attributes & TRANSACTIONAL:
                    added.note_transaction(partition.number, batch, transactions)
            except PenstockError as error:
                if not outcome.done():
                    outcome.set_exception(self._judged(error, source, state))
                continue
            if isinstance(outcome, ProducedBatch):
                acknowledgements.append((outcome, added.next_offset))
            else:
                acknowledgements.append((outcome, WriteResult(added.next_offset, duplicate=False)))
            added.add(batch, source, state)
        return added

    def _judged(self, error: PenstockError, source: SourceWrite | None, state: SourceState | None) -> PenstockError:
        """The error to refuse a write with. A producer that is told of a gap starts over in a new epoch, and sends again what it
        does not know to be stored, to all its partitions: what is stored after all would be there twice. So it is told to retry
        instead while an earlier write may be stored, or may be about to be sent again: this one was already on its way then."""
        if not isinstance(error, SequenceError):
            return error
        if self._sequencer.is_in_doubt:
            return UnavailableError(f"an earlier write failed and may be stored all the same; send it again first ({error})")
        if source is not None and leaves_gap(state, source) and self._expects_retry(state):
            return UnavailableError(f"an earlier write may have been refused a moment ago; send it again first ({error})")
        return error

    def _expects_retry(self, state: SourceState | None) -> bool:
        """Whether writes failed a short while ago, and a source in this state has written nothing since."""
        if self._clock.monotonic() >= self._patient_until:
            return False
        return state is None or state.recent[-1].base_offset + state.recent[-1].messages <= self._patient_from

    def _count_fitting(self) -> int:
        """How many queued writes fit one entry; at least one."""
        size = 0
        for count, (batch, _, _) in enumerate(self._waiting):
            size += len(batch.data)
            if count and size > ENTRY_BYTES_MAX:
                return count
        return len(self._waiting)

    def _finish(self, added: PartitionAppend) -> list[tuple[WriteOutcome, Any]]:
        """Go on with the queue, since the entry is durable or there was nothing to write. Returns the writes to acknowledge."""
        self._current = None
        self._held_bytes -= added.taken_bytes
        self._held_messages -= added.taken_messages
        for waiter in added.key_waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._holds_lock:
            self._holds_lock = False
            self._lock.leave()
        if (self._waiting or self._key_waiters) and not self._is_due:
            self._is_due = True
            self._sequencer.request_turn(self)
        return added.acknowledgements

    def _take_turn(self, turn: asyncio.Future[None]) -> None:
        """Ask for a turn again: the previous change is done, and this writer holds the lock."""
        self._holds_lock = not turn.cancelled()
        self._sequencer.request_turn(self)
