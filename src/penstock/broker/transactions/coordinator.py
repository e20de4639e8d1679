"""The transaction coordinator: keeps transactional ids, decides how transactions end, and sees that they do.

Requests for one transactional id are served one after another. A decision is durable before its first marker is written; after a
crash, whatever was decided is carried out. Whoever asks for an end is answered when readers see it, or after a while in any case:
from the decision on it will come.
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
from penstock.broker.transactions.ending import Ending
from penstock.broker.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    RecordConflictError,
    UnknownProducerError,
)
from penstock.broker.transactions.held import Held, Registered
from penstock.broker.transactions.store import TransactionStore, check_id
from penstock.broker.transactions.transaction import NO_PRODUCER, V2, Producer, State, Transaction
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError, PenstockError

log = logging.getLogger(__name__)

EXPIRIES_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """How long transactions may take."""

    timeout_max_s: float = 900.0
    id_expiration_s: float = 7 * 24 * 3600.0  # an id that is not used for so long is forgotten
    check_interval_s: float = 1.0  # how often transactions that take too long are looked for
    expiry_interval_s: float = 600.0
    restart_grace_s: float = 10.0  # what is open at a start gets as long: its producer could not reach the broker
    end_wait_s: float = 5.0  # how long a request waits for markers to be written


class Committed(Enum):
    """What became of a commit with a record."""

    NOW = "now"
    BEFORE = "before"


class Ended(NamedTuple):
    """One transaction to be committed together with others."""

    transactional_id: str
    producer: Producer


class TransactionCoordinator:
    """Every transactional id of this broker. Make it, then `start` it on the loop."""

    def __init__(
        self,
        store: TransactionStore,
        ending: Ending,
        offsets: TransactionalOffsets,
        *,
        new_producer_id: Callable[[], Awaitable[int]],
        clock: Clock,
        ages: Clock,
        options: TransactionOptions,
    ) -> None:
        self._store = store
        self._ending = ending
        self._offsets = offsets
        self._new_producer_id = new_producer_id
        self._clock = clock
        self._ages = ages
        self._options = options
        self._held: dict[str, Held] = {}
        self._ongoing: set[Held] = set()
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._records: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_ms = self._now_ms()
        self._is_stopped = False

    def start(self) -> None:
        """Take up what is stored: carry out what was decided, and look after the rest."""
        for transaction in self._store.load():
            held = self._held[transaction.transactional_id] = Held(transaction)
            self._track_ongoing(held)
            if transaction.is_prepared:
                self._begin_ending(held)
        self._spawn(self._watch_timeouts(), "transaction-timeouts")
        self._spawn(self._watch_expiry(), "transactional-id-expiry")

    async def stop(self) -> None:
        """Leave everything as it is; the next start takes it up."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def epoch(self) -> int:
        """The epoch of the coordinator, as markers carry it."""
        return self._store.epoch

    def marked_by(self, queue: TopicPartition, producer_id: int) -> int | None:
        """The epoch of the coordinator that ended a producer's last transaction in a partition, if that is remembered."""
        return self._ending.marked_by(queue, producer_id)

    @property
    def ongoing(self) -> int:
        """How many transactions are under way."""
        return len(self._ongoing)

    # What producers ask.

    async def initialise(self, transactional_id: str, timeout_ms: int, expected: Producer | None = None) -> Producer:
        """Give a transactional id to a producer. Whoever had it before is fenced, and its running transaction aborted."""
        check_id(transactional_id)
        if not 0 < timeout_ms <= self._options.timeout_max_s * 1000:
            longest = int(self._options.timeout_max_s * 1000)
            raise InvalidTransactionTimeoutError(f"a transaction may take 1 to {longest} ms, not {timeout_ms}")
        held = await self._find_or_make(transactional_id)
        async with held.lock:
            self._check_alive(held)
            await self._wait_if_prepared(held)
            held.transaction.check_expected(expected)
            if held.transaction.state is State.ONGOING:
                await self._decide([(held, held.transaction.fenced(self._now_ms()))])
                expected = None  # it was checked, and the abort has moved the epoch on
            await self._wait_if_prepared(held)
            old = held.transaction
            new_id = await self._new_producer_id() if old.needs_producer(expected) else NO_PRODUCER
            new = old.initialised(timeout_ms, self._now_ms(), expected, new_id)
            await self._store.put([new])
            self._set(held, new)
            return new.owner

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        queues: frozenset[TopicPartition] = frozenset(),
        groups: frozenset[str] = frozenset(),
    ) -> None:
        """Make partitions, or positions of groups, part of the producer's transaction."""
        held = self._find(transactional_id)
        async with held.lock:
            self._check_alive(held)
            await self._add(held, producer, queues, groups)

    async def set_positions(
        self,
        transactional_id: str,
        producer: Producer,
        group: str,
        positions: list[tuple[TopicPartition, Position]],
        *,
        adds_group: bool,
    ) -> None:
        """Set positions of a group when the transaction is committed. `adds_group` makes the group part of it first."""
        held = self._find(transactional_id)
        async with held.lock:
            self._check_alive(held)
            if adds_group:
                await self._add(held, producer, frozenset(), frozenset({group}))
            held.transaction.check_group(producer, group)
            await self._offsets.stage(producer.id, group, positions)

    async def end(self, transactional_id: str, producer: Producer, *, commit: bool, version: int) -> Producer:
        """Commit or abort; who the producer is from then on."""
        held = self._find(transactional_id)
        async with held.lock:
            self._check_alive(held)
            await self._wait_if_prepared(held)
            new = await self._ended(held, producer, commit=commit, version=version)
            if new is not held.transaction:
                await self._decide([(held, new)])
        await held.wait_ended(self._options.end_wait_s)
        return new.owner

    # What the way of a write asks: at once, from memory.

    def check_write(self, transactional_id: str | None, producer: Producer, queue: TopicPartition) -> None:
        """Raise unless the partition is part of the producer's running transaction."""
        held = self._find(transactional_id)
        if not held.transaction.holds(producer, queue):
            held.transaction.check_writes(producer, queue)

    def register(self, transactional_id: str | None, producer: Producer, queue: TopicPartition, then: Registered) -> None:
        """Call `then`, now or later, once the partition is part of the producer's transaction, or with why it cannot be. Calls
        for one partition come in the order in which they were asked for."""
        try:
            held = self._find(transactional_id)
        except PenstockError as error:
            then(error)
            return
        place = (producer, queue)
        if place not in held.adding and held.transaction.holds(producer, queue):
            then(None)
            return
        held.adding.setdefault(place, []).append(then)
        if not held.is_adding:
            held.is_adding = True
            self._spawn(self._add_asked(held), "transaction-add")

    # What is asked about transactions.

    def transaction(self, transactional_id: str) -> Transaction:
        """The state of a transactional id. UnknownProducerError if there is none."""
        return self._find(transactional_id).transaction

    def transactions(self) -> list[Transaction]:
        """Every transactional id there is, by name."""
        return [self._held[name].transaction for name in sorted(self._held)]

    # Several transactions as one.

    def application_record(self, key: str) -> bytes | None:
        """What was committed last under this key; None if nothing was."""
        return self._store.record(key)

    async def commit_together(
        self, ends: Iterable[Ended], record: tuple[str, bytes], *, expected: bytes | None
    ) -> tuple[Committed, dict[str, Producer]]:
        """Commit all of these transactions and set an application's record, all or nothing; an empty value removes it. If the
        record is the one given already, nothing changes: it was done BEFORE. Ids that were initialised and wrote nothing are let
        pass. Who the producers are from then on comes with the answer, by transactional id.

        RecordConflictError if the record is not the one expected, ProducerFencedError if a transaction is not to be had any more;
        then nothing is committed."""
        key, value = record
        ordered = sorted(set(ends))
        if len({one.transactional_id for one in ordered}) < len(ordered):
            raise InvalidRequestError("two producers of one transactional id cannot commit together")
        async with _lock_of(self._records, key), AsyncExitStack() as locks:
            stored = self.application_record(key)
            if (stored or b"") == value:
                return Committed.BEFORE, {}
            if stored != expected:
                raise RecordConflictError(f"the record {key!r} is not the one expected: another has committed under it")
            changes: list[tuple[Held, Transaction]] = []
            owners: dict[str, Producer] = {}
            for transactional_id, producer in ordered:
                held = self._find(transactional_id)
                await locks.enter_async_context(held.lock)
                self._check_alive(held)
                await self._wait_if_prepared(held)
                new = held.transaction
                if new.state is not State.EMPTY or producer != new.owner:
                    new = await self._ended(held, producer, commit=True, version=V2)
                    if new is held.transaction:
                        raise InvalidTransactionStateError(f"the transaction of {transactional_id!r} was committed by itself")
                    changes.append((held, new))
                owners[transactional_id] = new.owner
            await self._decide(changes, record=record)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.end_wait_s):
                for held, _ in changes:
                    await held.ended.wait()
        return Committed.NOW, owners

    # Within.

    def _find(self, transactional_id: str | None) -> Held:
        held = None if transactional_id is None else self._held.get(transactional_id)
        if held is None:
            raise UnknownProducerError(
                f"no producer has initialised the transactional id {transactional_id!r}, or it has expired"
            )
        return held

    async def _find_or_make(self, transactional_id: str) -> Held:
        async with _lock_of(self._making, transactional_id):
            held = self._held.get(transactional_id)
            if held is None:
                held = Held(Transaction(transactional_id, await self._new_producer_id()))
                self._held[transactional_id] = held
            return held

    def _check_alive(self, held: Held) -> None:
        """It may have expired while this request waited for its turn."""
        name = held.transaction.transactional_id
        if self._held.get(name) is not held:
            raise ConcurrentTransactionsError(f"the transactional id {name!r} has just expired; try again")

    async def _wait_if_prepared(self, held: Held) -> None:
        """If its last transaction is still being ended, wait for that; ConcurrentTransactionsError if it takes too long."""
        if held.transaction.is_prepared and not await held.wait_ended(self._options.end_wait_s):
            raise ConcurrentTransactionsError(
                f"the transaction of {held.transaction.transactional_id!r} is still being ended; try again"
            )

    async def _add(self, held: Held, producer: Producer, queues: frozenset[TopicPartition], groups: frozenset[str]) -> None:
        await self._wait_if_prepared(held)
        new = held.transaction.added(producer, self._now_ms(), queues=queues, groups=groups)
        if new is not held.transaction:
            await self._store.put([new])
            self._set(held, new)

    async def _add_asked(self, held: Held) -> None:
        """Add the partitions that writes wait for, all that have gathered at a time."""
        try:
            while held.adding:
                async with held.lock:
                    asked = list(held.adding)
                    for producer in {producer: None for producer, _ in asked}:
                        queues = frozenset(queue for other, queue in asked if other == producer)
                        trouble = await self._try_to_add(held, producer, queues)
                        held.answer(producer, queues, trouble)
        finally:
            held.is_adding = False
            held.answer_all(ConcurrentTransactionsError("the coordinator stopped; try again"))

    async def _try_to_add(self, held: Held, producer: Producer, queues: frozenset[TopicPartition]) -> PenstockError | None:
        try:
            self._check_alive(held)
            await self._add(held, producer, queues, frozenset())
        except PenstockError as error:
            return error
        return None

    async def _ended(self, held: Held, producer: Producer, *, commit: bool, version: int) -> Transaction:
        old = held.transaction
        new_id = await self._new_producer_id() if old.needs_producer_after(version) else NO_PRODUCER
        return old.ended(producer, self._now_ms(), commit=commit, version=version, new_producer_id=new_id)

    async def _decide(self, changes: list[tuple[Held, Transaction]], record: tuple[str, bytes] | None = None) -> None:
        """Make ends durable, in one step, and begin to carry them out. From here on nothing else can become of them."""
        await self._store.put([new for _, new in changes], record=record, makes_room=True)
        for held, new in changes:
            self._set(held, new)
            if new.is_prepared:
                self._begin_ending(held)

    def _set(self, held: Held, transaction: Transaction) -> None:
        transaction.check_follows(held.transaction)
        held.transaction = transaction
        self._track_ongoing(held)

    def _track_ongoing(self, held: Held) -> None:
        if held.transaction.state is State.ONGOING:
            self._ongoing.add(held)
        else:
            self._ongoing.discard(held)

    def _begin_ending(self, held: Held) -> None:
        held.ended.clear()
        if not self._is_stopped:
            # Whoever comes next carries it out. Were it done here too, a late marker could end the transaction after this one.
            self._spawn(self._carry_out(held), "transaction-end")

    async def _carry_out(self, held: Held) -> None:
        decided = held.transaction
        await self._ending.carry_out(decided, self.epoch)
        assert held.transaction is decided, "a decided transaction changed while its markers were written"
        self._set(held, decided.completed(self._now_ms()))
        held.ended.set()
        try:
            # Nobody waits for this: if it is lost, the same end is carried out once more at the next start.
            await self._store.put([held.transaction], makes_room=True)
        except PenstockError as error:
            log.info("that %r has ended is not stored: %s", held.transaction.transactional_id, error)

    async def _watch_timeouts(self) -> None:
        while True:
            await asyncio.sleep(self._options.check_interval_s)
            for held in [held for held in self._ongoing if self._is_late(held.transaction)]:
                await self._abort_late(held)

    def _is_late(self, transaction: Transaction) -> bool:
        due_ms = transaction.deadline_ms
        if transaction.started_ms < self._started_ms:
            due_ms = max(due_ms, self._started_ms + int(self._options.restart_grace_s * 1000))
        return transaction.state is State.ONGOING and self._now_ms() > due_ms

    async def _abort_late(self, held: Held) -> None:
        async with held.lock:
            old = held.transaction
            if not self._is_late(old):
                return
            log.warning("aborting the transaction of %r: it takes more than %d ms", old.transactional_id, old.timeout_ms)
            try:
                await self._decide([(held, old.fenced(self._now_ms()))])
            except PenstockError as error:
                log.warning("the transaction of %r will be aborted later: %s", old.transactional_id, error)

    async def _watch_expiry(self) -> None:
        while True:
            await asyncio.sleep(self._options.expiry_interval_s)
            oldest_ms = int(self._ages.wall() * 1000) - int(self._options.id_expiration_s * 1000)
            late = [name for name, held in self._held.items() if _is_idle(held, oldest_ms)]
            for begin in range(0, len(late), EXPIRIES_AT_ONCE):
                await self._expire(late[begin : begin + EXPIRIES_AT_ONCE], oldest_ms)

    async def _expire(self, names: list[str], oldest_ms: int) -> None:
        idle = [self._held[name] for name in names if name in self._held and _is_idle(self._held[name], oldest_ms)]
        gone = {held.transaction.transactional_id: held for held in idle}
        async with AsyncExitStack() as locks:
            for held in idle:
                await locks.enter_async_context(held.lock)  # free, so this does not wait
            try:
                await self._store.forget(gone)
            except PenstockError as error:
                log.warning("%d transactional ids will expire later: %s", len(gone), error)
                return
            for name in gone:
                del self._held[name]

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_idle(held: Held, oldest_ms: int) -> bool:
    transaction = held.transaction
    is_at_rest = transaction.state not in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return is_at_rest and not held.lock.locked() and transaction.updated_ms < oldest_ms


def _lock_of(locks: WeakValueDictionary[str, asyncio.Lock], key: str) -> asyncio.Lock:
    lock = locks.get(key)
    if lock is None:
        lock = locks[key] = asyncio.Lock()
    return lock
