"""Tablet transactions: rows, pushes and advances that are gathered here and take effect together when they are committed.

Until then nothing is stored, so a transaction does not outlive the process, as it does not outlive a proxy of the seed's. A
commit is a transaction of the broker's coordinator: all of it or nothing, whatever crashes when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from uuid import UUID
from weakref import WeakValueDictionary

from penstock.broker import (
    TRANSACTIONS_V2,
    Broker,
    Position,
    Producer,
    ProducerFencedError,
    Queue,
    Route,
    Topic,
    UnknownProducerError,
)
from penstock.broker.namespace import object_id
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.record_format import Writer
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import GENERIC, LOCK_CONFLICT, NO_SUCH_TRANSACTION, YtError
from penstock.gateway.yt.row_batch import make_row_batch
from penstock.queue import SourceWrite, WriteResult, check_batch

log = logging.getLogger(__name__)

TRANSACTION_TYPE = 5
TIMEOUT_DEFAULT_MS = 30_000
TIMEOUT_MAX_MS = 3600_000
COMMIT_TIMEOUT_MS = 60_000
ID_PREFIX = "\1yt:"

Check = Callable[[], None]
"""Raises if what a transaction has seen is not so any more."""


@dataclass(slots=True)
class Changes:
    """What is to take effect together."""

    rows: dict[Queue, list[EncodedRows]] = field(default_factory=dict)
    positions: dict[str, dict[Queue, Position]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def add_rows(self, queue: Queue, rows: list[EncodedRows]) -> None:
        """Rows behind those that were added before."""
        self.rows.setdefault(queue, []).extend(rows)

    def set_position(self, name: str, queue: Queue, position: Position) -> None:
        """A position, in place of the one that was set before."""
        self.positions.setdefault(name, {})[queue] = position

    def position(self, name: str, queue: Queue) -> Position | None:
        """A position that was set."""
        return self.positions.get(name, {}).get(queue)


@dataclass(slots=True)
class TabletTransaction:
    """One that is open."""

    id: str
    timeout_s: float
    expires_s: float
    changes: Changes = field(default_factory=Changes)
    is_ending: bool = False


class TabletTransactions:
    """The open transactions of this cluster."""

    def __init__(self, broker: Broker, *, clock: Clock, random: Random) -> None:
        self._broker = broker
        self._clock = clock
        self._random = random
        self._open: dict[str, TabletTransaction] = {}
        self._idle: list[tuple[str, Producer]] = []  # transactional ids that are free
        self._ids_made = 0
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def start(self, timeout_ms: int) -> TabletTransaction:
        """A new one."""
        self._forget_expired()
        most = self._broker.options.limits.yt_transactions
        if len(self._open) >= most:
            raise YtError(GENERIC, f"{most} transactions are open; commit or abort some first, or raise yt_transactions_max")
        if not 0 < timeout_ms <= TIMEOUT_MAX_MS:
            raise YtError(GENERIC, f"the timeout of a transaction is within 1..{TIMEOUT_MAX_MS} ms, not {timeout_ms}")
        number = self._random.getrandbits(128)
        transaction = TabletTransaction(
            object_id(TRANSACTION_TYPE, number), timeout_ms / 1000, self._clock.monotonic() + timeout_ms / 1000
        )
        self._open[transaction.id] = transaction
        return transaction

    def find(self, transaction_id: str) -> TabletTransaction:
        """An open one, which lives on for its timeout."""
        self._forget_expired()
        found = self._open.get(transaction_id)
        if found is None or found.is_ending:
            raise YtError(
                NO_SUCH_TRANSACTION,
                f"No such transaction {transaction_id}: it was committed or aborted, took too long without a ping, or the node "
                f"was started again",
                {"transaction_id": transaction_id},
            )
        found.expires_s = self._clock.monotonic() + found.timeout_s
        return found

    def ping(self, transaction_id: str) -> None:
        """Let it live on."""
        self.find(transaction_id)

    def abort(self, transaction_id: str) -> None:
        """Forget it."""
        self._open.pop(self.find(transaction_id).id)

    async def commit(self, transaction_id: str) -> None:
        """Carry it out."""
        transaction = self.find(transaction_id)
        transaction.is_ending = True
        try:
            await self.carry_out(transaction.changes)
        finally:
            self._open.pop(transaction_id, None)

    async def recover(self) -> None:
        """Settle what commits of the process before this one have left: what was decided is carried out, all else aborted."""
        for left in self._broker.transactions.transactions():
            if not left.transactional_id.startswith(ID_PREFIX):
                continue
            self._ids_made = max(self._ids_made, int(left.transactional_id.removeprefix(ID_PREFIX)))
            try:
                producer = await self._broker.transactions.initialise(left.transactional_id, COMMIT_TIMEOUT_MS)
            except PenstockError as error:
                log.warning("the transaction of %r will be settled later: %s", left.transactional_id, error)
            else:
                self._idle.append((left.transactional_id, producer))

    def check_settled(self, name: str, queues: Iterable[Queue]) -> None:
        """An error if a transaction that is not yet ended sets one of these positions: what they will be is not known. To be
        asked while the lock of the name is held."""
        if any(self._broker.consumers.is_unstable(name, queue) for queue in queues):
            raise YtError(LOCK_CONFLICT, "another transaction that is being ended changes the same row; try again")

    async def carry_out(self, changes: Changes) -> None:
        """Make changes, all of them or none; they are durable and seen when this returns."""
        names = sorted(changes.positions)
        async with AsyncExitStack() as locks:
            for name in names:
                await locks.enter_async_context(self.lock(name))
            for name, positions in changes.positions.items():
                self.check_settled(name, positions)
            for check in changes.checks:
                check()
            if not changes.rows and len(names) == 1:
                await self._broker.consumers.commit(names[0], changes.positions[names[0]].items())
            elif not names and len(changes.rows) == 1:
                queue, rows = next(iter(changes.rows.items()))
                await self.write(queue, rows)
            elif names or changes.rows:
                await self._commit(changes)

    async def write(self, queue: Queue, rows: list[EncodedRows], source: SourceWrite | None = None) -> WriteResult:
        """Store rows in one partition, by themselves."""
        return await self._write(queue, rows, None, source)

    def lock(self, name: str) -> asyncio.Lock:
        """What keeps two changes of one consumer or producer session apart."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    # Within.

    def _forget_expired(self) -> None:
        now_s = self._clock.monotonic()
        late = [one.id for one in self._open.values() if one.expires_s < now_s and not one.is_ending]
        for transaction_id in late:
            del self._open[transaction_id]

    async def _commit(self, changes: Changes) -> None:
        coordinator = self._broker.transactions
        transactional_id, producer = await self._begin(changes)
        try:
            writes: list[Awaitable[WriteResult]] = [
                self._write(queue, rows, Writer(producer.id, producer.epoch, 0), None) for queue, rows in changes.rows.items()
            ]
            await asyncio.gather(*writes)
            for name, positions in changes.positions.items():
                await coordinator.set_positions(transactional_id, producer, name, list(positions.items()), adds_group=False)
            after = await coordinator.end(transactional_id, producer, commit=True, version=TRANSACTIONS_V2)
        except BaseException:
            # Whether it was decided or not, the next who takes this id over settles it.
            await self._give_up(transactional_id, producer)
            raise
        self._idle.append((transactional_id, after))

    async def _give_up(self, transactional_id: str, producer: Producer) -> None:
        try:
            coordinator = self._broker.transactions
            after = await coordinator.end(transactional_id, producer, commit=False, version=TRANSACTIONS_V2)
            self._idle.append((transactional_id, after))
        except PenstockError as error:
            log.info("the transaction of %r is left to time out: %s", transactional_id, error)

    async def _begin(self, changes: Changes) -> tuple[str, Producer]:
        """Begin a transaction that reaches all that changes, under an id that nobody uses; one that was idle for too long may be
        known no more."""
        coordinator = self._broker.transactions
        queues, groups = frozenset(changes.rows), frozenset(changes.positions)
        while self._idle:
            transactional_id, producer = self._idle.pop()
            try:
                await coordinator.add(transactional_id, producer, queues=queues, groups=groups)
            except (ProducerFencedError, UnknownProducerError) as error:
                log.info("the transactional id %r is used no more: %s", transactional_id, error)
            else:
                return transactional_id, producer
        self._ids_made += 1
        transactional_id = f"{ID_PREFIX}{self._ids_made}"
        producer = await coordinator.initialise(transactional_id, COMMIT_TIMEOUT_MS)
        await coordinator.add(transactional_id, producer, queues=queues, groups=groups)
        return transactional_id, producer

    async def _write(
        self, queue: Queue, rows: list[EncodedRows], writer: Writer | None, source: SourceWrite | None
    ) -> WriteResult:
        topic = self._topic(queue.topic_id)
        partition = self._broker.partition(topic, queue.partition)
        weights = self._broker.weights
        await weights.load(partition)
        weight = sum(part.weight for part in rows)
        stored: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        raw = make_row_batch(rows, weights.add(partition, weight), int(self._clock.wall() * 1000), writer)
        try:
            if source is None:
                self._broker.begin_produce(Route.to(topic, partition), raw, stored)
            else:
                partition.enqueue(check_batch(raw, partition.config.batch_bytes_max), source, stored)
        except PenstockError:
            weights.add(partition, -weight)
            raise
        # If it fails from here on, others may be queued behind it already: their weights count it, and go on rising.
        return await stored

    def _topic(self, topic_id: UUID) -> Topic:
        return self._broker.catalog.topic_by_id(topic_id)
