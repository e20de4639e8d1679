"""Sessions of YDB's query service, and the topic transactions that are open in them. A session lives as long as its client is
attached to it, and its transactions no longer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from struct import Struct
from typing import Final
from uuid import UUID

from penstock.broker import Broker, Position, TopicPartition
from penstock.broker.buffered_transactions import BufferedTransaction, BufferedTransactions, Changes
from penstock.broker.transactions import Producer
from penstock.core.record_format import KIND_BYTE, PRODUCER_AT, TRANSACTIONAL, seal_batch
from penstock.gateway.ydb.commit_ranges import CommitRanges
from penstock.gateway.ydb.protos import Status
from penstock.gateway.ydb.readers import Readers
from penstock.gateway.ydb.statuses import StatusError
from penstock.gateway.ydb.written_batch import WrittenBatch
from penstock.queue import WriteResult

SESSIONS_MAX: Final = 10_000
ATTACH_S: Final = 60.0
TRANSACTION_IDLE_S: Final = 900.0
GATHERED_BYTES_MAX: Final = 64 << 20
_OWNER = Struct(">qhi")


class OffsetChange:
    """A committed offset that a transaction changes: its value before, and the ranges to commit."""

    def __init__(self, committed: int) -> None:
        self.before = committed
        self.ranges = CommitRanges(committed)


@dataclass(slots=True)
class TopicTransaction:
    """An open transaction."""

    buffered: BufferedTransaction[WrittenBatch]
    moves: dict[tuple[str, TopicPartition], OffsetChange] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its id."""
        return self.buffered.id


class QuerySession:
    """The session of a client."""

    def __init__(self, attach_by: float) -> None:
        self.attach_by: float | None = attach_by  # None: it is attached
        self.open: dict[str, TopicTransaction] = {}
        self.is_over = asyncio.Event()


class QuerySessions:
    """The sessions of this node and the transactions open in them."""

    def __init__(self, broker: Broker, readers: Readers, random: Random) -> None:
        self._broker = broker
        self._readers = readers
        self._random = random
        self._sessions: dict[str, QuerySession] = {}
        self._buffered = BufferedTransactions(
            broker.commits, _BatchWriter(broker), broker.clock, bytes_max_each=GATHERED_BYTES_MAX
        )

    def open_session(self) -> str:
        """Open a session. It expires unless the client attaches to it."""
        now = self._broker.clock.monotonic()
        if len(self._sessions) >= SESSIONS_MAX:
            expired = [
                name for name, session in self._sessions.items() if session.attach_by is not None and session.attach_by < now
            ]
            for name in expired:
                self.close_session(name)
        if len(self._sessions) >= SESSIONS_MAX:
            raise StatusError(Status.OVERLOADED, f"{SESSIONS_MAX} sessions are open; close some first")
        name = self._new_id()
        self._sessions[name] = QuerySession(now + ATTACH_S)
        return name

    def close_session(self, session: str) -> None:
        """Close a session and roll back its transactions."""
        closed = self._sessions.pop(session, None)
        if closed is not None:
            for transaction in closed.open.values():
                self._buffered.discard(transaction.id)
            closed.is_over.set()

    def close(self) -> None:
        """Close all sessions."""
        for name in list(self._sessions):
            self.close_session(name)

    def attach(self, session: str) -> QuerySession:
        """Attach a client to its session."""
        attached = self._session(session)
        attached.attach_by = None
        return attached

    def begin(self, session: str) -> TopicTransaction:
        """Begin a transaction."""
        owner = self._session(session)
        transaction = TopicTransaction(self._buffered.start(self._new_id(), TRANSACTION_IDLE_S))
        owner.open[transaction.id] = transaction
        return transaction

    def find(self, session: str, transaction_id: str) -> TopicTransaction:
        """Find an open transaction."""
        transaction = self._session(session).open.get(transaction_id)
        if transaction is None:
            raise StatusError(
                Status.NOT_FOUND, f"there is no transaction {transaction_id!r}: it has ended, or the node was restarted"
            )
        self._buffered.find(transaction_id)
        return transaction

    def roll_back(self, session: str, transaction_id: str) -> None:
        """Roll a transaction back."""
        self._session(session).open.pop(self.find(session, transaction_id).id)
        self._buffered.discard(transaction_id)

    def write(self, transaction: TopicTransaction, queue: TopicPartition, batches: list[WrittenBatch]) -> None:
        """Add batches to a transaction; they are written when it commits."""
        self._buffered.gather(transaction.id, Changes({queue: batches}))

    def move(self, transaction: TopicTransaction, consumer: str, queue: TopicPartition, ranges: list[tuple[int, int]]) -> None:
        """Commit ranges of a partition with a transaction. They must continue the committed offset."""
        changes = Changes[WrittenBatch]()
        move = transaction.moves.get((consumer, queue))
        if move is None:
            move = transaction.moves[consumer, queue] = OffsetChange(self._committed(consumer, queue))
            seen = move
            changes.checks.append(lambda: self._check_move(consumer, queue, seen))
        for start, end in ranges:
            move.ranges.add(start, end)
        changes.set_position(consumer, queue, Position(move.ranges.committed))
        self._buffered.gather(transaction.id, changes)
        if ranges and move.ranges.committed < max(end for _, end in ranges):
            raise StatusError(
                Status.ABORTED,
                f"partition {queue.partition} is committed up to {move.ranges.committed}; the ranges leave a gap behind it",
            )

    async def commit(self, session: str, transaction_id: str) -> None:
        """Commit a transaction; it is durable and visible when this returns."""
        transaction = self._session(session).open.pop(self.find(session, transaction_id).id)
        await self._buffered.commit(transaction.id)
        for (name, queue), move in transaction.moves.items():
            self._readers.committed(name, queue, move.ranges.committed)

    def _session(self, name: str) -> QuerySession:
        session = self._sessions.get(name)
        if session is None:
            raise StatusError(Status.BAD_SESSION, f"there is no session {name!r}: it has ended, or the node was restarted")
        return session

    def _new_id(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def _committed(self, consumer: str, queue: TopicPartition) -> int:
        partition = self._broker.partition(self._broker.catalog.topic_by_id(queue.topic_id), queue.partition)
        position = self._broker.consumers.position(consumer, queue)
        return partition.start_offset if position is None else max(position.offset, partition.start_offset)

    def _check_move(self, consumer: str, queue: TopicPartition, move: OffsetChange) -> None:
        now = self._committed(consumer, queue)
        if now > move.before:
            raise StatusError(
                Status.ABORTED, f"consumer {consumer!r} was at {move.before} of partition {queue.partition} and is at {now} now"
            )


class _BatchWriter:
    """Writes batches of messages."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def is_one_batch(self, parts: list[WrittenBatch]) -> bool:
        """Whether there is one part; each part is a batch."""
        return len(parts) == 1

    async def write(self, queue: TopicPartition, parts: list[WrittenBatch], producer: Producer | None) -> None:
        """Produce all batches to their partition, and wait until they are stored."""
        outcomes: list[asyncio.Future[WriteResult]] = []
        sequence = 0
        for batch in parts:
            outcome: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
            data = batch.data if producer is None else _with_producer(batch.data, producer, sequence)
            self._broker.begin_produce(self._broker.route(queue.topic_id.bytes, queue.partition), data, outcome)
            outcomes.append(outcome)
            sequence += batch.messages
        await asyncio.gather(*outcomes)


def _with_producer(batch: bytes, producer: Producer, sequence: int) -> bytes:
    """The batch with the producer of a broker transaction."""
    data = bytearray(batch)
    data[KIND_BYTE] |= TRANSACTIONAL
    _OWNER.pack_into(data, PRODUCER_AT, producer.id, producer.epoch, sequence)
    seal_batch(data)
    return bytes(data)
