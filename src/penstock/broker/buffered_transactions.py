"""Transactions whose changes are buffered in memory and applied atomically when they are committed.

Until then nothing is stored, so a transaction does not outlive the process. A commit is a transaction of the coordinator, under a
transactional id of a pool that all gateways share: all of it or nothing, whatever crashes when. What a gateway writes is its own
affair; it says how by a `QueueWriter`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from penstock.broker.consumers import Consumers, Position, TopicPartition
from penstock.broker.transactions import (
    V2,
    Producer,
    ProducerFencedError,
    TransactionCoordinator,
    TransactionState,
    UnknownProducerError,
)
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError, PenstockError, UnavailableError

log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS: Final = 60_000
OPEN_MAX: Final = 100_000
BYTES_MAX: Final = 512 << 20  # of all open transactions of a gateway
TIMEOUT_S_MAX: Final = 3600.0
ID_PREFIX: Final = "\1tx:"
OLD_PREFIXES: Final = ("\1yt:", "\1ydb:")  # of pools that gateways had of their own
_OPEN_STATES: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

Check = Callable[[], None]
"""Raises if what a transaction has seen is not so any more."""


class NoSuchTransactionError(InvalidRequestError):
    """The transaction has ended or timed out, or the node was restarted."""

    code = "no_such_transaction"


class TransactionLimitError(InvalidRequestError):
    """Too many transactions are open, or too many bytes are buffered in them."""

    code = "transaction_limit"


class UnsettledPositionsError(UnavailableError):
    """A transaction that is being completed sets the same committed offsets, so their value is not known yet."""

    code = "unsettled_positions"


class Gathered(Protocol):
    """A part of the data to write to a partition."""

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        ...


W = TypeVar("W", bound=Gathered)


class QueueWriter(Protocol[W]):
    """Writes the buffered data of a gateway to a partition."""

    def is_one_batch(self, parts: list[W]) -> bool:
        """Whether the parts are written as one batch, which is atomic without a transaction."""
        ...

    async def write(self, queue: TopicPartition, parts: list[W], producer: Producer | None) -> None:
        """Write the parts in order, as part of the producer's transaction if there is one; durable when this returns."""
        ...


@dataclass(slots=True)
class Changes(Generic[W]):
    """The changes of a transaction."""

    writes: dict[TopicPartition, list[W]] = field(default_factory=dict)
    positions: dict[str, dict[TopicPartition, Position]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of bytes to write."""
        return sum(part.size for parts in self.writes.values() for part in parts)

    def add(self, queue: TopicPartition, parts: Iterable[W]) -> None:
        """Append parts for a partition."""
        self.writes.setdefault(queue, []).extend(parts)

    def set_position(self, name: str, queue: TopicPartition, position: Position) -> None:
        """Set a committed offset, replacing an earlier one."""
        self.positions.setdefault(name, {})[queue] = position

    def position(self, name: str, queue: TopicPartition) -> Position | None:
        """A committed offset set by the transaction."""
        return self.positions.get(name, {}).get(queue)


@dataclass(slots=True)
class BufferedTransaction(Generic[W]):
    """One open transaction."""

    id: str
    timeout_s: float
    expires_s: float
    changes: Changes[W] = field(default_factory=Changes)
    size: int = 0
    is_ending: bool = False


class BufferedCommits:
    """Carries changes of all gateways out, under a pool of transactional ids. One for the broker: positions that several gateways
    set are locked for all."""

    def __init__(self, coordinator: TransactionCoordinator, consumers: Consumers) -> None:
        self._coordinator = coordinator
        self._consumers = consumers
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._ids_made = 0
        # Those that are free, and who their producer is, if that is known.
        self._idle: list[tuple[str, Producer | None]] = []
        self._settling: asyncio.Task[None] | None = None

    def use(self, coordinator: TransactionCoordinator) -> None:
        """Commit by this coordinator, which has just started, from now on. Transactions that earlier commits left open are
        settled in the background: those that were decided are carried out, the others aborted."""
        self._coordinator = coordinator
        left = [
            transaction
            for transaction in coordinator.transactions()
            if transaction.transactional_id.startswith((ID_PREFIX, *OLD_PREFIXES))
        ]
        own = [transaction for transaction in left if transaction.transactional_id.startswith(ID_PREFIX)]
        numbers = (int(transaction.transactional_id.removeprefix(ID_PREFIX)) for transaction in own)
        self._ids_made = max([self._ids_made, *numbers])
        self._idle = [(transaction.transactional_id, None) for transaction in own if transaction.state not in _OPEN_STATES]
        unsettled = [transaction.transactional_id for transaction in left if transaction.state in _OPEN_STATES]
        self._settling = asyncio.create_task(self._settle(unsettled), name="settle-commits")

    async def stop(self) -> None:
        """Stop completing transactions."""
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)
            self._settling = None

    async def _settle(self, transactional_ids: list[str]) -> None:
        for transactional_id in transactional_ids:
            try:
                self._idle.append((transactional_id, await self._coordinator.initialise(transactional_id, COMMIT_TIMEOUT_MS)))
            except PenstockError as error:
                log.warning("the transaction of %r is left to time out: %s", transactional_id, error)

    def lock(self, name: str) -> asyncio.Lock:
        """The lock for committed offsets of one consumer."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def check_settled(self, name: str, queues: Iterable[TopicPartition]) -> None:
        """UnsettledPositionsError if a transaction that has not ended sets one of these positions. To be asked while the lock of
        the name is held."""
        if any(self._consumers.is_unstable(name, queue) for queue in queues):
            raise UnsettledPositionsError("another transaction that is being ended changes the same position; try again")

    async def carry_out(self, changes: Changes[W], writer: QueueWriter[W]) -> None:
        """Apply changes atomically."""
        names = sorted(changes.positions)
        writes = list(changes.writes.items())
        async with AsyncExitStack() as locks:
            for name in names:
                await locks.enter_async_context(self.lock(name))
            for name, positions in changes.positions.items():
                self.check_settled(name, positions)
            for check in changes.checks:
                check()
            if not writes and len(names) == 1:
                await self._consumers.commit(names[0], changes.positions[names[0]].items())
            elif not names and len(writes) == 1 and writer.is_one_batch(writes[0][1]):
                await writer.write(*writes[0], None)
            elif names or writes:
                await self._commit(changes, writer)

    async def _commit(self, changes: Changes[W], writer: QueueWriter[W]) -> None:
        """Write data and set offsets in one transaction of the coordinator."""
        transactional_id, producer = await self._begin(frozenset(changes.writes), frozenset(changes.positions))
        try:
            await asyncio.gather(*(writer.write(queue, parts, producer) for queue, parts in changes.writes.items()))
            for name, positions in changes.positions.items():
                await self._coordinator.set_positions(transactional_id, producer, name, list(positions.items()), adds_group=False)
            await self._end(transactional_id, producer, commit=True)
        except BaseException:
            await self._give_up(transactional_id, producer)
            raise

    async def _begin(self, queues: frozenset[TopicPartition], groups: frozenset[str]) -> tuple[str, Producer]:
        """Begin a transaction over these partitions and positions. An id that expired meanwhile, or that another has taken over,
        is replaced by the next."""
        while self._idle:
            transactional_id, producer = self._idle.pop()
            try:
                if producer is None:
                    producer = await self._coordinator.initialise(transactional_id, COMMIT_TIMEOUT_MS)
                await self._coordinator.add(transactional_id, producer, queues=queues, groups=groups)
            except (ProducerFencedError, UnknownProducerError) as error:
                log.info("the transactional id %r is used no more: %s", transactional_id, error)
            else:
                return transactional_id, producer
        self._ids_made += 1
        transactional_id = f"{ID_PREFIX}{self._ids_made}"
        producer = await self._coordinator.initialise(transactional_id, COMMIT_TIMEOUT_MS)
        await self._coordinator.add(transactional_id, producer, queues=queues, groups=groups)
        return transactional_id, producer

    async def _end(self, transactional_id: str, producer: Producer, *, commit: bool) -> None:
        """End a transaction, and return its id to the pool."""
        after = await self._coordinator.end(transactional_id, producer, commit=commit, version=V2)
        self._idle.append((transactional_id, after))

    async def _give_up(self, transactional_id: str, producer: Producer) -> None:
        """Abort a transaction that failed. If it was decided before that, it is carried out; if it cannot be aborted, it times
        out."""
        try:
            await self._end(transactional_id, producer, commit=False)
        except PenstockError as error:
            log.info("the transaction of %r is left to time out: %s", transactional_id, error)


class BufferedTransactions(Generic[W]):
    """The open transactions of a gateway, and the commits of its changes."""

    def __init__(
        self,
        commits: BufferedCommits,
        writer: QueueWriter[W],
        clock: Clock,
        *,
        bytes_max_each: int = BYTES_MAX,
        open_max: int = OPEN_MAX,
    ) -> None:
        self._commits = commits
        self._writer = writer
        self._clock = clock
        self._bytes_max_each = bytes_max_each
        self._open_max = open_max
        self._open: dict[str, BufferedTransaction[W]] = {}
        self._size = 0

    def start(self, transaction_id: str, timeout_s: float) -> BufferedTransaction[W]:
        """Open a transaction, which expires after its timeout without use."""
        self._forget_expired()
        if len(self._open) >= self._open_max:
            raise TransactionLimitError(f"{self._open_max} transactions are open; commit or abort some first")
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            most = int(TIMEOUT_S_MAX * 1000)
            raise InvalidRequestError(f"the timeout of a transaction is within 1..{most} ms, not {timeout_s * 1000:.0f}")
        transaction = BufferedTransaction[W](transaction_id, timeout_s, self._clock.monotonic() + timeout_s)
        self._open[transaction_id] = transaction
        return transaction

    def find(self, transaction_id: str) -> BufferedTransaction[W]:
        """Look up an open transaction and extend its timeout."""
        self._forget_expired()
        transaction = self._open.get(transaction_id)
        if transaction is None or transaction.is_ending:
            raise NoSuchTransactionError(
                f"No such transaction {transaction_id}: it was committed or aborted, took too long without a ping, or the node "
                f"was started again"
            )
        transaction.expires_s = self._clock.monotonic() + transaction.timeout_s
        return transaction

    def ping(self, transaction_id: str) -> None:
        """Extend the timeout of a transaction."""
        self.find(transaction_id)

    def gather(self, transaction_id: str, changes: Changes[W]) -> None:
        """Add changes to an open transaction. Raises TransactionLimitError, without adding any, if they are too large."""
        transaction = self.find(transaction_id)
        size = changes.size
        if transaction.size + size > self._bytes_max_each:
            raise TransactionLimitError(f"a transaction has at most {self._bytes_max_each} bytes of messages; commit more often")
        if self._size + size > BYTES_MAX:
            raise TransactionLimitError(f"open transactions hold {self._size} bytes; commit or abort some first")
        transaction.size += size
        self._size += size
        for queue, parts in changes.writes.items():
            transaction.changes.add(queue, parts)
        for name, positions in changes.positions.items():
            for queue, position in positions.items():
                transaction.changes.set_position(name, queue, position)
        transaction.changes.checks += changes.checks

    def abort(self, transaction_id: str) -> None:
        """Abort a transaction."""
        self._forget(self.find(transaction_id))

    def discard(self, transaction_id: str) -> None:
        """Drop a transaction unless it has ended or is being committed."""
        transaction = self._open.get(transaction_id)
        if transaction is not None and not transaction.is_ending:
            self._forget(transaction)

    async def commit(self, transaction_id: str) -> None:
        """Commit a transaction; its changes are durable and visible when this returns. It has ended even if this fails."""
        transaction = self.find(transaction_id)
        transaction.is_ending = True
        try:
            await self.carry_out(transaction.changes)
        finally:
            self._forget(transaction)

    async def carry_out(self, changes: Changes[W]) -> None:
        """Apply changes atomically; they are durable and visible when this returns."""
        await self._commits.carry_out(changes, self._writer)

    def _forget(self, transaction: BufferedTransaction[W]) -> None:
        if self._open.pop(transaction.id, None) is not None:
            self._size -= transaction.size

    def _forget_expired(self) -> None:
        now_s = self._clock.monotonic()
        for late in [
            transaction for transaction in self._open.values() if transaction.expires_s < now_s and not transaction.is_ending
        ]:
            self._forget(late)
