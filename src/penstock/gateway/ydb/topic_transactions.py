"""Transactions of YDB as far as they are about topics: messages and positions that are gathered here and take effect together.

Until they are committed nothing is stored, so a transaction does not outlive the process, nor the session it is of. A commit is a
transaction of the broker's coordinator: all of it or nothing, whatever crashes when."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from random import Random
from struct import Struct
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

from penstock.broker import TRANSACTIONS_V2, Broker, Position, Producer, Queue
from penstock.core.checksum import crc32c
from penstock.core.errors import PenstockError
from penstock.gateway.ydb.commit_ranges import CommitRanges
from penstock.gateway.ydb.protos import Status
from penstock.gateway.ydb.readers import Readers
from penstock.gateway.ydb.statuses import StatusError, bad_request
from penstock.gateway.ydb.written_batch import WrittenBatch
from penstock.queue import WriteResult

log = logging.getLogger(__name__)

SESSIONS_MAX: Final = 10_000
ATTACH_S: Final = 60.0
GATHERED_BYTES_MAX: Final = 64 << 20
COMMIT_TIMEOUT_MS: Final = 60_000
TRANSACTIONAL: Final = 0x10
_OWNER = Struct(">qhi")


class Move:
    """A position that a transaction moves: from where it was when it was asked for, and to where."""

    def __init__(self, committed: int) -> None:
        self.before = committed
        self.ranges = CommitRanges(committed)


@dataclass(slots=True)
class TopicTransaction:
    """One that is open."""

    id: str
    batches: list[tuple[Queue, WrittenBatch]] = field(default_factory=list)
    moves: dict[str, dict[Queue, Move]] = field(default_factory=dict)
    size: int = 0

    def write(self, queue: Queue, batches: list[WrittenBatch]) -> None:
        """Messages behind those that were written before."""
        self.size += sum(len(batch.data) for batch in batches)
        if self.size > GATHERED_BYTES_MAX:
            raise bad_request(f"a transaction has at most {GATHERED_BYTES_MAX} bytes of messages; commit more often")
        self.batches += ((queue, batch) for batch in batches)


class Session:
    """What a client has open."""

    def __init__(self, attach_by: float) -> None:
        self.attach_by: float | None = attach_by  # None: it is attached
        self.open: dict[str, TopicTransaction] = {}
        self.is_over = asyncio.Event()


class TopicTransactions:
    """The sessions of this node and the transactions open in them."""

    def __init__(self, broker: Broker, readers: Readers, random: Random) -> None:
        self._broker = broker
        self._readers = readers
        self._random = random
        self._sessions: dict[str, Session] = {}
        self._idle: list[tuple[str, Producer]] = []  # transactional ids that are free
        self._ids_made = 0
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def open_session(self) -> str:
        """A new session; a client that does not attach itself to it loses it."""
        now = self._broker.clock.monotonic()
        if len(self._sessions) >= SESSIONS_MAX:
            late = [name for name, session in self._sessions.items() if session.attach_by is not None and session.attach_by < now]
            for name in late:
                self.close_session(name)
        if len(self._sessions) >= SESSIONS_MAX:
            raise StatusError(Status.OVERLOADED, f"{SESSIONS_MAX} sessions are open; close some first")
        name = self._new_id()
        self._sessions[name] = Session(now + ATTACH_S)
        return name

    def close_session(self, session: str) -> None:
        """A session is over, and what it has open with it."""
        found = self._sessions.pop(session, None)
        if found is not None:
            found.is_over.set()

    def close(self) -> None:
        """All sessions are over."""
        for name in list(self._sessions):
            self.close_session(name)

    def attach(self, session: str) -> Session:
        """A client stays with its session from now on."""
        found = self._of(session)
        found.attach_by = None
        return found

    def begin(self, session: str) -> TopicTransaction:
        """A new transaction of a session."""
        transaction = TopicTransaction(self._new_id())
        self._of(session).open[transaction.id] = transaction
        return transaction

    def find(self, session: str, transaction_id: str) -> TopicTransaction:
        """An open transaction."""
        found = self._of(session).open.get(transaction_id)
        if found is None:
            raise StatusError(
                Status.NOT_FOUND, f"there is no transaction {transaction_id!r}: it is over, or the node was restarted"
            )
        return found

    def roll_back(self, session: str, transaction_id: str) -> None:
        """Forget a transaction."""
        self._of(session).open.pop(self.find(session, transaction_id).id)

    def move(self, transaction: TopicTransaction, consumer: str, queue: Queue, ranges: list[tuple[int, int]]) -> None:
        """Ranges of a partition are done by a consumer with this transaction. They must follow what is committed."""
        moves = transaction.moves.setdefault(consumer, {})
        if queue not in moves:
            moves[queue] = Move(self._committed(consumer, queue))
        commits = moves[queue].ranges
        for start, end in ranges:
            commits.add(start, end)
        if ranges and commits.committed < max(end for _, end in ranges):
            raise StatusError(
                Status.ABORTED,
                f"partition {queue.partition} is committed up to {commits.committed}; the ranges leave a gap behind it",
            )

    async def commit(self, session: str, transaction_id: str) -> None:
        """Carry a transaction out; it is durable and seen when this returns."""
        transaction = self._of(session).open.pop(self.find(session, transaction_id).id)
        names = sorted(transaction.moves)
        locks = [self._locks.setdefault(name, asyncio.Lock()) for name in names]
        for at, lock in enumerate(locks):
            try:
                await lock.acquire()
            except BaseException:
                _release(locks[:at])
                raise
        try:
            self._check_moves(transaction)
            if not transaction.batches and len(names) == 1:
                await self._broker.consumers.commit(names[0], _positions(transaction.moves[names[0]]))
            elif transaction.batches or names:
                await self._commit(transaction)
        finally:
            _release(locks)
        for name, moves in transaction.moves.items():
            for queue, move in moves.items():
                self._readers.committed(name, queue, move.ranges.committed)

    def _of(self, session: str) -> Session:
        found = self._sessions.get(session)
        if found is None:
            raise StatusError(Status.BAD_SESSION, f"there is no session {session!r}: it is over, or the node was restarted")
        return found

    def _new_id(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def _committed(self, consumer: str, queue: Queue) -> int:
        partition = self._broker.partition(self._broker.catalog.topic_by_id(queue.topic_id), queue.partition)
        position = self._broker.consumers.position(consumer, queue)
        return partition.start_offset if position is None else max(position.offset, partition.start_offset)

    def _check_moves(self, transaction: TopicTransaction) -> None:
        for name, moves in transaction.moves.items():
            for queue, move in moves.items():
                now = self._committed(name, queue)
                if now > move.before:
                    raise StatusError(
                        Status.ABORTED,
                        f"consumer {name!r} was at {move.before} of partition {queue.partition} and is at {now} now",
                    )

    async def _commit(self, transaction: TopicTransaction) -> None:
        coordinator = self._broker.transactions
        transactional_id, producer = await self._producer()
        try:
            queues = frozenset(queue for queue, _ in transaction.batches)
            await coordinator.add(transactional_id, producer, queues=queues, groups=frozenset(transaction.moves))
            await asyncio.gather(*self._written(transaction, producer))
            for name, moves in transaction.moves.items():
                await coordinator.set_positions(transactional_id, producer, name, _positions(moves), adds_group=False)
            after = await coordinator.end(transactional_id, producer, commit=True, version=TRANSACTIONS_V2)
        except BaseException:
            await self._give_up(transactional_id, producer)
            raise
        self._idle.append((transactional_id, after))

    def _written(self, transaction: TopicTransaction, producer: Producer) -> list[asyncio.Future[WriteResult]]:
        """All batches, on their way into their partitions."""
        outcomes: list[asyncio.Future[WriteResult]] = []
        sequences: dict[Queue, int] = {}
        for queue, batch in transaction.batches:
            sequence = sequences.get(queue, 0)
            sequences[queue] = sequence + batch.messages
            outcome: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
            route = self._broker.route(queue.topic_id.bytes, queue.partition)
            self._broker.begin_produce(route, _owned(batch.data, producer, sequence), outcome)
            outcomes.append(outcome)
        return outcomes

    async def _give_up(self, transactional_id: str, producer: Producer) -> None:
        """Whether it was decided or not, whoever takes this id next settles it."""
        try:
            after = await self._broker.transactions.end(transactional_id, producer, commit=False, version=TRANSACTIONS_V2)
            self._idle.append((transactional_id, after))
        except PenstockError as error:
            log.info("the transaction of %r is left to time out: %s", transactional_id, error)

    async def _producer(self) -> tuple[str, Producer]:
        """A transactional id that nobody uses, and its producer."""
        if self._idle:
            return self._idle.pop()
        self._ids_made += 1
        transactional_id = f"\1ydb:{self._ids_made}"
        return transactional_id, await self._broker.transactions.initialise(transactional_id, COMMIT_TIMEOUT_MS)


def _positions(moves: dict[Queue, Move]) -> list[tuple[Queue, Position]]:
    return [(queue, Position(move.ranges.committed)) for queue, move in moves.items()]


def _release(locks: list[asyncio.Lock]) -> None:
    for lock in locks:
        lock.release()


def _owned(batch: bytes, producer: Producer, sequence: int) -> bytes:
    """A batch as part of a transaction of the broker's."""
    made = bytearray(batch)
    made[22] |= TRANSACTIONAL
    _OWNER.pack_into(made, 43, producer.id, producer.epoch, sequence)
    made[17:21] = crc32c(memoryview(made)[21:]).to_bytes(4, "big")
    return bytes(made)
