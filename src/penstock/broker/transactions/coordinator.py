"""The transaction coordinator: stores transactional ids, decides the outcome of transactions, and completes them.

Requests for one transactional id are served one after another. A decision is durable before its first marker is written; after a
crash, whatever was decided is finished. The response to an end comes when readers see it, or after a timeout: once decided, it
will happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from penstock.broker.consumers import Position, TopicPartition
from penstock.broker.transactional_offsets import TransactionalOffsets
from penstock.broker.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    RecordConflictError,
    UnknownProducerError,
)
from penstock.broker.transactions.marker_writer import MarkerWriter
from penstock.broker.transactions.store import TransactionStore, check_id
from penstock.broker.transactions.transaction import NO_PRODUCER, V2, Producer, State, Transaction
from penstock.broker.transactions.transaction_slot import AddCallback, TransactionSlot
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.core.periodic import repeat

log = logging.getLogger(__name__)

EXPIRIES_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """Timeouts of transactions."""

    timeout_max_s: float = 900.0
    id_expiration_s: float = 7 * 24 * 3600.0  # an id that is not used for so long is forgotten
    check_interval_s: float = 1.0  # how often transactions that take too long are looked for
    expiry_interval_s: float = 600.0
    restart_grace_s: float = 10.0  # what is open at a start gets as long: its producer could not reach the broker
    end_wait_s: float = 5.0  # how long a request waits for markers to be written


class CommitOutcome(Enum):
    """The result of `commit_together`: committed now, or committed before."""

    NOW = "now"
    BEFORE = "before"


class TransactionCommit(NamedTuple):
    """One transaction to be committed together with others."""

    transactional_id: str
    producer: Producer


class TransactionCoordinator:
    """All transactional ids of this broker. Create it, then call `start`."""

    def __init__(
        self,
        store: TransactionStore,
        markers: MarkerWriter,
        offsets: TransactionalOffsets,
        *,
        new_producer_id: Callable[[], Awaitable[int]],
        clock: Clock,
        ages: Clock,
        options: TransactionOptions,
    ) -> None:
        self._store = store
        self._markers = markers
        self._offsets = offsets
        self._new_producer_id = new_producer_id
        self._clock = clock
        self._ages = ages
        self._options = options
        self._slots: dict[str, TransactionSlot] = {}
        self._ongoing: set[TransactionSlot] = set()
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._records: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_ms = self._now_ms()
        self._is_stopped = False

    def start(self) -> None:
        """Load what is stored, finish what was decided, and start the tasks for timeouts and expiry."""
        for transaction in self._store.load():
            slot = self._slots[transaction.transactional_id] = TransactionSlot(transaction)
            self._track_ongoing(slot)
            if transaction.is_prepared:
                self._start_finishing(slot)
        aborting = repeat("the check of transaction timeouts", self._options.check_interval_s, self._abort_all_late)
        self._spawn(aborting, "transaction-timeouts")
        expiring = repeat("the expiry of transactional ids", self._options.expiry_interval_s, self._expire_idle)
        self._spawn(expiring, "transactional-id-expiry")

    async def stop(self) -> None:
        """Cancel all tasks. The next start continues from what is stored."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def epoch(self) -> int:
        """The epoch of the coordinator, as markers carry it."""
        return self._store.epoch

    @property
    def ongoing(self) -> int:
        """How many transactions are open."""
        return len(self._ongoing)

    # Requests of producers.

    async def initialise(self, transactional_id: str, timeout_ms: int, expected: Producer | None = None) -> Producer:
        """Give a transactional id to a producer. The previous producer is fenced, and its open transaction aborted."""
        check_id(transactional_id)
        if not 0 < timeout_ms <= self._options.timeout_max_s * 1000:
            longest = int(self._options.timeout_max_s * 1000)
            raise InvalidTransactionTimeoutError(f"a transaction may take 1 to {longest} ms, not {timeout_ms}")
        slot = await self._find_or_make(transactional_id)
        async with slot.lock:
            self._check_alive(slot)
            await self._wait_if_prepared(slot)
            slot.transaction.check_expected(expected)
            if slot.transaction.state is State.ONGOING:
                await self._decide([(slot, slot.transaction.fenced(self._now_ms()))])
                expected = None  # it was checked, and the abort has moved the epoch on
            await self._wait_if_prepared(slot)
            old = slot.transaction
            new_id = await self._new_producer_id() if old.needs_producer(expected) else NO_PRODUCER
            new = old.initialised(timeout_ms, self._now_ms(), expected, new_id)
            await self._store.put([new])
            self._set(slot, new)
            return new.owner

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        queues: frozenset[TopicPartition] = frozenset(),
        groups: frozenset[str] = frozenset(),
    ) -> None:
        """Add partitions, or committed offsets of groups, to the producer's transaction."""
        slot = self._find(transactional_id)
        async with slot.lock:
            self._check_alive(slot)
            await self._add(slot, producer, queues, groups)

    async def set_positions(
        self,
        transactional_id: str,
        producer: Producer,
        group: str,
        positions: list[tuple[TopicPartition, Position]],
        *,
        adds_group: bool,
    ) -> None:
        """Stage offsets of a group for the commit of the transaction. `adds_group` adds the group to it first."""
        slot = self._find(transactional_id)
        async with slot.lock:
            self._check_alive(slot)
            if adds_group:
                await self._add(slot, producer, frozenset(), frozenset({group}))
            slot.transaction.check_group(producer, group)
            await self._offsets.stage(producer.id, group, positions)

    async def end(self, transactional_id: str, producer: Producer, *, commit: bool, version: int) -> Producer:
        """Commit or abort. Returns the producer with its next epoch."""
        slot = self._find(transactional_id)
        async with slot.lock:
            self._check_alive(slot)
            await self._wait_if_prepared(slot)
            new = await self._ended(slot, producer, commit=commit, version=version)
            if new is not slot.transaction:
                await self._decide([(slot, new)])
        await slot.wait_ended(self._options.end_wait_s)
        return new.owner

    # Checks on the path of a write, in memory.

    def check_write(self, transactional_id: str | None, producer: Producer, queue: TopicPartition) -> None:
        """Raise unless the partition is part of the producer's running transaction."""
        slot = self._find(transactional_id)
        if not slot.transaction.holds(producer, queue):
            slot.transaction.check_writes(producer, queue)

    def register(self, transactional_id: str | None, producer: Producer, queue: TopicPartition, then: AddCallback) -> None:
        """Call `then`, now or later, once the partition is part of the producer's transaction, or with why it cannot be. Calls
        for one partition come in the order in which they were asked for."""
        try:
            slot = self._find(transactional_id)
        except PenstockError as error:
            then(error)
            return
        place = (producer, queue)
        if place not in slot.adding and slot.transaction.holds(producer, queue):
            then(None)
            return
        slot.adding.setdefault(place, []).append(then)
        if not slot.is_adding:
            slot.is_adding = True
            self._spawn(self._add_pending(slot), "transaction-add")

    async def admit(self, transactional_id: str | None, producer: Producer, queue: TopicPartition, *, adds: bool) -> None:
        """Return once the partition is part of the producer's transaction and the storage has confirmed that this node still
        coordinates it: another one may have ended the transaction, which this one would not know. `adds` makes the partition
        part of the transaction. Raises why the write cannot be admitted."""
        admitted: asyncio.Future[PenstockError | None] = asyncio.get_running_loop().create_future()
        if adds:
            self.register(transactional_id, producer, queue, admitted.set_result)
            await self._store.confirm()
        else:
            await self._store.confirm()
            self.check_write(transactional_id, producer, queue)
            admitted.set_result(None)
        trouble = await admitted
        if trouble is not None:
            raise trouble

    # The state of transactions.

    def transaction(self, transactional_id: str) -> Transaction:
        """The state of a transactional id. UnknownProducerError if there is none."""
        return self._find(transactional_id).transaction

    def transactions(self) -> list[Transaction]:
        """Every transactional id there is, by name."""
        return [self._slots[name].transaction for name in sorted(self._slots)]

    # Several transactions as one.

    def application_record(self, key: str) -> bytes | None:
        """The last committed record under this key; None if there is none."""
        return self._store.record(key)

    async def commit_together(
        self, ends: Iterable[TransactionCommit], record: tuple[str, bytes], *, expected: bytes | None
    ) -> tuple[CommitOutcome, dict[str, Producer]]:
        """Commit all of these transactions and set an application's record, all or nothing; an empty value removes it. If the
        record is the one given already, nothing changes: it was done BEFORE. Ids that were initialised and wrote nothing are
        skipped. Returns also the producers' next epochs, by transactional id.

        RecordConflictError if the record is not the one expected, ProducerFencedError if a producer was fenced;
        then nothing is committed."""
        key, value = record
        ordered = sorted(set(ends))
        if len({commit.transactional_id for commit in ordered}) < len(ordered):
            raise InvalidRequestError("two producers of one transactional id cannot commit together")
        async with _lock_of(self._records, key), AsyncExitStack() as locks:
            stored = self.application_record(key)
            if (stored or b"") == value:
                return CommitOutcome.BEFORE, {}
            if stored != expected:
                raise RecordConflictError(f"the record {key!r} is not the one expected: another has committed under it")
            changes: list[tuple[TransactionSlot, Transaction]] = []
            owners: dict[str, Producer] = {}
            for transactional_id, producer in ordered:
                slot = self._find(transactional_id)
                await locks.enter_async_context(slot.lock)
                self._check_alive(slot)
                await self._wait_if_prepared(slot)
                new = slot.transaction
                if new.state is not State.EMPTY or producer != new.owner:
                    new = await self._ended(slot, producer, commit=True, version=V2)
                    if new is slot.transaction:
                        raise InvalidTransactionStateError(f"the transaction of {transactional_id!r} was committed by itself")
                    changes.append((slot, new))
                owners[transactional_id] = new.owner
            await self._decide(changes, record=record)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.end_wait_s):
                for slot, _ in changes:
                    await slot.ended.wait()
        return CommitOutcome.NOW, owners

    def _find(self, transactional_id: str | None) -> TransactionSlot:
        slot = None if transactional_id is None else self._slots.get(transactional_id)
        if slot is None:
            raise UnknownProducerError(
                f"no producer has initialised the transactional id {transactional_id!r}, or it has expired"
            )
        return slot

    async def _find_or_make(self, transactional_id: str) -> TransactionSlot:
        async with _lock_of(self._making, transactional_id):
            slot = self._slots.get(transactional_id)
            if slot is None:
                slot = TransactionSlot(Transaction(transactional_id, await self._new_producer_id()))
                self._slots[transactional_id] = slot
            return slot

    def _check_alive(self, slot: TransactionSlot) -> None:
        """Raise if the transactional id expired while this request waited for the lock."""
        name = slot.transaction.transactional_id
        if self._slots.get(name) is not slot:
            raise ConcurrentTransactionsError(f"the transactional id {name!r} has just expired; try again")

    async def _wait_if_prepared(self, slot: TransactionSlot) -> None:
        """If its last transaction is still being ended, wait for that; ConcurrentTransactionsError if it takes too long."""
        if slot.transaction.is_prepared and not await slot.wait_ended(self._options.end_wait_s):
            raise ConcurrentTransactionsError(
                f"the transaction of {slot.transaction.transactional_id!r} is still being ended; try again"
            )

    async def _add(
        self, slot: TransactionSlot, producer: Producer, queues: frozenset[TopicPartition], groups: frozenset[str]
    ) -> None:
        await self._wait_if_prepared(slot)
        new = slot.transaction.added(producer, self._now_ms(), queues=queues, groups=groups)
        if new is not slot.transaction:
            await self._store.put([new])
            self._set(slot, new)

    async def _add_pending(self, slot: TransactionSlot) -> None:
        """Add all partitions that writes wait for, in one request."""
        try:
            while slot.adding:
                async with slot.lock:
                    adding = list(slot.adding)
                    for producer in {producer: None for producer, _ in adding}:
                        queues = frozenset(queue for other, queue in adding if other == producer)
                        error = await self._try_to_add(slot, producer, queues)
                        slot.notify(producer, queues, error)
        finally:
            slot.is_adding = False
            slot.fail_all(ConcurrentTransactionsError("the coordinator stopped; try again"))

    async def _try_to_add(
        self, slot: TransactionSlot, producer: Producer, queues: frozenset[TopicPartition]
    ) -> PenstockError | None:
        try:
            self._check_alive(slot)
            await self._add(slot, producer, queues, frozenset())
        except PenstockError as error:
            return error
        return None

    async def _ended(self, slot: TransactionSlot, producer: Producer, *, commit: bool, version: int) -> Transaction:
        old = slot.transaction
        new_id = await self._new_producer_id() if old.needs_producer_after(version) else NO_PRODUCER
        return old.ended(producer, self._now_ms(), commit=commit, version=version, new_producer_id=new_id)

    async def _decide(self, changes: list[tuple[TransactionSlot, Transaction]], record: tuple[str, bytes] | None = None) -> None:
        """Store decisions in one request, and start to write their markers. They cannot change from here on."""
        await self._store.put([new for _, new in changes], record=record, makes_room=True)
        for slot, new in changes:
            self._set(slot, new)
            if new.is_prepared:
                self._start_finishing(slot)

    def _set(self, slot: TransactionSlot, transaction: Transaction) -> None:
        transaction.check_follows(slot.transaction)
        slot.transaction = transaction
        self._track_ongoing(slot)

    def _track_ongoing(self, slot: TransactionSlot) -> None:
        if slot.transaction.state is State.ONGOING:
            self._ongoing.add(slot)
        else:
            self._ongoing.discard(slot)

    def _start_finishing(self, slot: TransactionSlot) -> None:
        slot.ended.clear()
        if not self._is_stopped:
            # After a stop the next start does it. If both did, a late marker could end the next transaction.
            self._spawn(self._finish(slot), "transaction-end")

    async def _finish(self, slot: TransactionSlot) -> None:
        decided = slot.transaction
        await self._markers.finish(decided, self.epoch)
        assert slot.transaction is decided, "a decided transaction changed while its markers were written"
        self._set(slot, decided.completed(self._now_ms()))
        slot.ended.set()
        try:
            # No request waits for this: if it is lost, the next start finishes the transaction once more.
            await self._store.put([slot.transaction], makes_room=True)
        except PenstockError as error:
            log.info(
                "the end of %r is not stored, and is repeated at the next start: %s",
                slot.transaction.transactional_id,
                error,
            )

    async def _abort_all_late(self) -> None:
        for slot in [slot for slot in self._ongoing if self._is_late(slot.transaction)]:
            await self._abort_late(slot)

    def _is_late(self, transaction: Transaction) -> bool:
        due_ms = transaction.deadline_ms
        if transaction.started_ms < self._started_ms:
            due_ms = max(due_ms, self._started_ms + int(self._options.restart_grace_s * 1000))
        return transaction.state is State.ONGOING and self._now_ms() > due_ms

    async def _abort_late(self, slot: TransactionSlot) -> None:
        async with slot.lock:
            old = slot.transaction
            if not self._is_late(old):
                return
            log.warning("aborting the transaction of %r: it takes more than %d ms", old.transactional_id, old.timeout_ms)
            try:
                await self._decide([(slot, old.fenced(self._now_ms()))])
            except PenstockError as error:
                log.warning("the transaction of %r will be aborted later: %s", old.transactional_id, error)

    async def _expire_idle(self) -> None:
        oldest_ms = int(self._ages.wall() * 1000) - int(self._options.id_expiration_s * 1000)
        late = [name for name, slot in self._slots.items() if _is_idle(slot, oldest_ms)]
        for begin in range(0, len(late), EXPIRIES_AT_ONCE):
            await self._expire(late[begin : begin + EXPIRIES_AT_ONCE], oldest_ms)

    async def _expire(self, names: list[str], oldest_ms: int) -> None:
        idle = [self._slots[name] for name in names if name in self._slots and _is_idle(self._slots[name], oldest_ms)]
        gone = {slot.transaction.transactional_id: slot for slot in idle}
        async with AsyncExitStack() as locks:
            for slot in idle:
                await locks.enter_async_context(slot.lock)  # free, so this does not wait
            try:
                await self._store.forget(gone)
            except PenstockError as error:
                log.warning("%d transactional ids will expire later: %s", len(gone), error)
                return
            for name in gone:
                del self._slots[name]

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_idle(slot: TransactionSlot, oldest_ms: int) -> bool:
    transaction = slot.transaction
    is_at_rest = transaction.state not in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return is_at_rest and not slot.lock.locked() and transaction.updated_ms < oldest_ms


def _lock_of(locks: WeakValueDictionary[str, asyncio.Lock], key: str) -> asyncio.Lock:
    lock = locks.get(key)
    if lock is None:
        lock = locks[key] = asyncio.Lock()
    return lock
