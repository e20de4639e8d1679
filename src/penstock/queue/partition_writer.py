"""The writer of a partition: it takes batches as they come, and at its turn adds all that wait to the next entry of the log.

A small write is an append: its bytes stand in the log entry, and nothing else is changed in the tablet. Keys are made of appends
when the head becomes a body, when a large write comes, and before a snapshot: of all that have none, so that what has keys is
always the front of the partition, and the log the rest. A failed entry fails all that waits behind it, since dedup would
otherwise refuse the failed writes for ever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.core.errors import OutOfSpaceError, PenstockError, UnavailableError
from penstock.core.record_format import TRANSACTIONAL
from penstock.queue.append_note import VERSION as NOTE_VERSION
from penstock.queue.append_note import pack_note, pack_plain
from penstock.queue.batch import Batch
from penstock.queue.change_lock import ChangeLock
from penstock.queue.errors import PartitionFullError, SequenceError, WriteQueueFullError
from penstock.queue.partition_append import PartitionAppend, WriteOutcome, WriteResult
from penstock.queue.sources import SourceWrite, check_source, known_offset

if TYPE_CHECKING:
    from penstock.queue.partition import Partition
    from penstock.tablet import Draft

ENTRY_BYTES_MAX = 16 << 20  # of a partition in one entry of the log
NO_LIMIT = 1 << 62
APPEND_BYTES_MAX = 64 << 10  # from here on the data is written to a blob at once, not to the log

Write = tuple[Batch, SourceWrite | None, WriteOutcome]


class PartitionWriter:
    """Writes of one partition, in the order they came. At most one entry of the log that it adds to is in flight."""

    __slots__ = (
        "_composing",
        "_current",
        "_held_bytes",
        "_held_messages",
        "_holds_lock",
        "_is_due",
        "_key_waiters",
        "_lock",
        "_partition",
        "_resume_at",
        "_rolls",
        "_sequencer",
        "_waiting",
        "makes_room",
    )

    def __init__(self, partition: Partition, lock: ChangeLock) -> None:
        self._partition = partition
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

    @property
    def in_flight(self) -> tuple[int, int]:
        """Messages and bytes of all writes without an outcome."""
        return self._held_messages, self._held_bytes

    def _admit(self, size: int, bytes_max: int) -> None:
        """Raise WriteQueueFullError unless another write of this size may wait. One alone always may. Once one was refused, all
        are until it would fit and half of the room is free: else smaller ones that its source sent after it would overtake it."""
        held = self._held_bytes
        if held and self._resume_at is None and held + size > bytes_max:
            self._resume_at = min(bytes_max // 2, bytes_max - size)
        if held and self._resume_at is not None and held > self._resume_at:
            raise WriteQueueFullError(
                f"{held} bytes wait to be written to the partition, and {bytes_max} may; send this again in a moment"
            )
        self._resume_at = None

    def enqueue(self, batch: Batch, source: SourceWrite | None, outcome: WriteOutcome) -> None:
        """Write a checked batch as `append` does, within the limits of the topic. PartitionFullError if it is over them, and what
        has stopped the tablet if it does not run any more."""
        partition = self._partition
        if source is not None:
            check_source(source, batch.messages)
        if partition.tablet.stop_cause is not None:
            partition.tablet.check_open()
        if partition.has_limits:
            partition.check_limits()
        self.append(batch, source, outcome, partition.waiting_bytes_max)

    def append(self, batch: Batch, source: SourceWrite | None, outcome: WriteOutcome, bytes_max: int = NO_LIMIT) -> None:
        """Write a checked batch after all that came before it; `outcome` is told when it is durable. WriteQueueFullError if more
        than `bytes_max` would wait."""
        size = len(batch.data)
        if self._resume_at is not None or self._held_bytes + size > bytes_max:
            self._admit(size, bytes_max)
        self._waiting.append((batch, source, outcome))
        self._held_bytes += size
        self._held_messages += batch.messages
        if not self._is_due and self._current is None:
            self._is_due = True
            self._sequencer.request_turn(self)

    async def make_keys(self, *, roll: bool = False) -> None:
        """Make keys of all that has none; with `roll`, a body of the whole head."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._key_waiters.append(waiter)
        self._rolls = self._rolls or roll
        self.makes_room = True
        if not self._is_due and self._current is None:
            self._is_due = True
            self._sequencer.request_turn(self)
        await waiter

    def compose(self, draft: Draft) -> bool:
        """See Appender: all that waits goes into the entry, unless another change of the partition is in flight."""
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
        for outcome, result in self._finish(added):
            if not outcome.done():
                outcome.set_result(result)
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
        """Give offsets to the writes that wait, as many as fit an entry; one that is wrong fails at once and alone."""
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
        acknowledgements = added.acknowledgements
        for batch, source, outcome in waiting:
            # One whose writer has gone is taken all the same: were it left out, the next of its source could overtake it.
            try:
                state = None
                if source is not None:
                    state = added.sources.get(source.source) or partition.source(source.source)
                    known = known_offset(state, source, batch.messages)
                    if known is not None:
                        acknowledgements.append((outcome, WriteResult(known, duplicate=True)))
                        continue
                if batch.attributes & TRANSACTIONAL or (added.transactions or transactions).open:
                    added.note_transaction(partition.number, batch, transactions)
            except PenstockError as error:
                if not outcome.done():
                    outcome.set_exception(self._judged(error))
                continue
            # As WriteResult(…) does, without a call of a Python function for every batch.
            acknowledgements.append((outcome, tuple.__new__(WriteResult, (added.next_offset, False))))
            added.add(batch, source, state)
        return added

    def _judged(self, error: PenstockError) -> PenstockError:
        """Why a write is refused. One that does not follow the last of its source may follow one that failed and counts after
        all: a source that heard of a gap would begin again, and have that one stored twice."""
        if isinstance(error, SequenceError) and self._sequencer.is_in_doubt:
            return UnavailableError(f"an earlier write failed and may be stored all the same; send it again first ({error})")
        return error

    def _count_fitting(self) -> int:
        """How many of the writes at the front fit an entry; one in any case."""
        size = 0
        for count, (batch, _, _) in enumerate(self._waiting):
            size += len(batch.data)
            if count and size > ENTRY_BYTES_MAX:
                return count
        return len(self._waiting)

    def _finish(self, added: PartitionAppend) -> list[tuple[WriteOutcome, Any]]:
        """The entry is durable, or there was nothing to write: go on with what waits. Returns whom to acknowledge."""
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
        """The change before this one is done, and the lock is ours."""
        self._holds_lock = not turn.cancelled()
        self._sequencer.request_turn(self)
