"""One transactional id as a state machine. Pure: every step gives the next state, or an error and no change.

     Empty ----> Ongoing ----> PrepareCommit ----> CompleteCommit --.
       ^            |                                               |--> Ongoing, or Empty when a producer initialises
       |            '--------> PrepareAbort -----> CompleteAbort ---'
       '-- a producer initialises and gets a higher epoch, which fences the one before

What is prepared is decided: it is stored before the first marker is written, and from then on can only be completed. Producers
speak one of two versions of the protocol. In version 1 they keep their epoch from transaction to transaction. In version 2
(KIP-890) the epoch rises with the end of each, so that a late message of one can never become part of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from penstock.broker.consumers import TopicPartition
from penstock.broker.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    NotInTransactionError,
    ProducerFencedError,
    UnknownProducerError,
)

NO_PRODUCER = -1
NO_EPOCH = -1
EPOCH_MAX = (1 << 15) - 1
NOT_STARTED = -1
V1, V2 = 1, 2


class State(Enum):
    """The state of a transactional id, with Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
NEXT_STATES = {
    State.EMPTY: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
}
COMMITS = frozenset({State.PREPARE_COMMIT, State.COMPLETE_COMMIT})


class Producer(NamedTuple):
    """A producer id with its epoch."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id: its producer, and its current or last transaction."""

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_producer_id: int = NO_PRODUCER  # the previous producer id, whose epochs are used up
    last_epoch: int = NO_EPOCH  # the previous epoch, which the producer still uses if the last response got lost
    next_producer_id: int = NO_PRODUCER  # while prepared, if the next transaction needs another
    timeout_ms: int = 0
    state: State = State.EMPTY
    version: int = V1  # the protocol in which the last transaction was ended
    queues: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NOT_STARTED
    updated_ms: int = 0

    def __post_init__(self) -> None:
        is_open = self.state is State.ONGOING or self.is_prepared
        assert is_open or not (self.queues or self.groups), f"{self.state.value}, but it has partitions or groups"
        assert self.is_prepared or self.next_producer_id == NO_PRODUCER, f"{self.state.value}, but the next producer id is chosen"
        assert self.state is not State.ONGOING or self.started_ms != NOT_STARTED, "a running transaction has no start"
        assert NO_EPOCH <= self.epoch <= EPOCH_MAX, f"epoch {self.epoch}"

    def check_follows(self, before: Transaction) -> None:
        """Assert that this state can come after another of the same transactional id."""
        assert self.transactional_id == before.transactional_id
        assert self.state in NEXT_STATES[before.state], f"{before.state.value} is followed by {self.state.value}"
        is_same_producer = self.producer_id == before.producer_id
        assert not is_same_producer or self.epoch >= before.epoch, f"epoch {before.epoch} is followed by {self.epoch}"
        is_decided = before.is_prepared or self.state is State.ONGOING
        assert not is_decided or is_same_producer or self.producer_id == before.next_producer_id, "the producer id changed"

    @property
    def is_prepared(self) -> bool:
        """Whether its outcome is decided and not completed yet."""
        return self.state in PREPARED

    @property
    def is_commit(self) -> bool:
        """Whether its outcome is a commit."""
        return self.state in COMMITS

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no more epochs to give out; the last one is for fencing."""
        return self.epoch >= EPOCH_MAX - 1

    @property
    def owner(self) -> Producer:
        """The producer that may begin the next transaction."""
        if self.next_producer_id != NO_PRODUCER:
            return Producer(self.next_producer_id, 0)
        return Producer(self.producer_id, self.epoch)

    @property
    def deadline_ms(self) -> int:
        """When the open transaction times out."""
        return self.started_ms + self.timeout_ms

    def holds(self, producer: Producer, queue: TopicPartition) -> bool:
        """Whether the producer may write to this queue as part of the transaction."""
        return self.state is State.ONGOING and producer == (self.producer_id, self.epoch) and queue in self.queues

    # InitProducerId.

    def needs_producer(self, expected: Producer | None) -> bool:
        """Whether `initialised` needs a new producer id."""
        return self.is_exhausted and (expected is None or expected.epoch == self.epoch)

    def check_expected(self, expected: Producer | None) -> None:
        """ProducerFencedError unless the producer with this id and epoch may continue."""
        if expected is None or self.epoch == NO_EPOCH:
            return
        is_last = expected.id == self.last_producer_id and expected.epoch >= EPOCH_MAX - 1
        if expected.id != self.producer_id and not is_last:
            raise self._fenced(expected)
        if expected.epoch != self.epoch and (expected.epoch != self.last_epoch or self.state is State.ONGOING):
            raise self._fenced(expected)

    def initialised(self, timeout_ms: int, now_ms: int, expected: Producer | None, new_producer_id: int) -> Transaction:
        """Returns the state after InitProducerId: a producer takes over, or continues after an error, and all before it are
        fenced. `new_producer_id` is used if `needs_producer`."""
        self.check_expected(expected)
        if self.is_prepared:
            raise self._concurrent()
        if self.state is State.ONGOING:
            raise InvalidTransactionStateError("the transaction that is running must be fenced first")
        own = replace(self, state=State.EMPTY, timeout_ms=timeout_ms, started_ms=NOT_STARTED, updated_ms=now_ms)
        if self.needs_producer(expected):
            last_epoch = NO_EPOCH if expected is None else self.epoch
            return replace(own, producer_id=new_producer_id, epoch=0, last_producer_id=self.producer_id, last_epoch=last_epoch)
        if expected is None:
            return replace(own, epoch=self.epoch + 1, last_epoch=NO_EPOCH)
        if self.epoch not in (NO_EPOCH, expected.epoch):
            return own  # a retry: the response got lost
        return replace(own, epoch=self.epoch + 1, last_epoch=self.epoch)

    def fenced(self, now_ms: int) -> Transaction:
        """Returns the state after the coordinator aborts the open transaction and fences its producer."""
        if self.state is not State.ONGOING:
            raise InvalidTransactionStateError(f"there is nothing to abort: {self.transactional_id!r} is {self.state.value}")
        return replace(self, state=State.PREPARE_ABORT, epoch=self.epoch + 1, last_epoch=NO_EPOCH, updated_ms=now_ms)

    # AddPartitionsToTxn, AddOffsetsToTxn.

    def added(
        self,
        producer: Producer,
        now_ms: int,
        *,
        queues: frozenset[TopicPartition] = frozenset(),
        groups: frozenset[str] = frozenset(),
    ) -> Transaction:
        """Returns the state with more partitions or groups; the first addition begins the transaction."""
        self._check_owner(producer)
        if self.is_prepared:
            raise self._concurrent()
        if self.state is State.ONGOING:
            if queues <= self.queues and groups <= self.groups:
                return self
            return replace(self, queues=self.queues | queues, groups=self.groups | groups, updated_ms=now_ms)
        return replace(
            self, state=State.ONGOING, queues=queues, groups=groups, started_ms=now_ms, updated_ms=now_ms, last_epoch=NO_EPOCH
        )

    def check_writes(self, producer: Producer, queue: TopicPartition) -> None:
        """Whether the producer may write to a queue now, as part of the transaction."""
        self._check_running(producer)
        if queue not in self.queues:
            raise NotInTransactionError(
                f"partition {queue.partition} was not added to the transaction of {self.transactional_id!r}"
            )

    def check_group(self, producer: Producer, group: str) -> None:
        """Whether the producer may set positions of a group as part of the transaction."""
        self._check_running(producer)
        if group not in self.groups:
            raise NotInTransactionError(f"group {group!r} was not added to the transaction of {self.transactional_id!r}")

    # EndTxn.

    def needs_producer_after(self, version: int) -> bool:
        """Whether `ended` needs a new producer id."""
        return version >= V2 and self.is_exhausted and not self.is_prepared

    def ended(self, producer: Producer, now_ms: int, *, commit: bool, version: int, new_producer_id: int) -> Transaction:
        """Returns the state after EndTxn: decided, with the markers still to be written. Returns itself if it is done already."""
        is_repeat = self._is_repeat(producer, version)
        if not is_repeat:
            self._check_owner(producer)
        match self.state:
            case State.ONGOING if not is_repeat:
                return self._prepared(now_ms, commit=commit, version=version, new_producer_id=new_producer_id)
            case State.PREPARE_COMMIT | State.PREPARE_ABORT:
                if commit is self.is_commit:
                    raise self._concurrent()
            case State.COMPLETE_COMMIT | State.COMPLETE_ABORT:
                if commit is self.is_commit and (is_repeat or version < V2):
                    return self
                if version >= V2 and not commit and not is_repeat:
                    return self._prepared(now_ms, commit=False, version=version, new_producer_id=new_producer_id)
            case State.EMPTY if not is_repeat:
                if version >= V2 and not commit:
                    return self._prepared(now_ms, commit=False, version=version, new_producer_id=new_producer_id)
            case _:
                raise self._fenced(producer)
        outcome = "commit" if commit else "abort"
        raise InvalidTransactionStateError(
            f"cannot {outcome}: the transaction of {self.transactional_id!r} is {self.state.value}"
        )

    def completed(self, now_ms: int) -> Transaction:
        """Returns the state after all markers are written and all offsets committed or dropped."""
        owner = self.owner
        is_next = owner.id != self.producer_id
        return replace(
            self,
            state=State.COMPLETE_COMMIT if self.is_commit else State.COMPLETE_ABORT,
            producer_id=owner.id,
            epoch=owner.epoch,
            last_producer_id=self.producer_id if is_next else self.last_producer_id,
            next_producer_id=NO_PRODUCER,
            queues=frozenset(),
            groups=frozenset(),
            started_ms=NOT_STARTED,
            updated_ms=now_ms,
        )

    def _prepared(self, now_ms: int, *, commit: bool, version: int, new_producer_id: int) -> Transaction:
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        if version < V2:
            return replace(self, state=state, version=version, updated_ms=now_ms)
        return replace(
            self,
            state=state,
            version=version,
            epoch=self.epoch + 1,
            last_epoch=self.epoch,
            next_producer_id=new_producer_id if self.is_exhausted else NO_PRODUCER,
            updated_ms=now_ms,
        )

    def _is_repeat(self, producer: Producer, version: int) -> bool:
        """Whether this is a retry by a producer that missed the response with its next epoch."""
        if version < V2 or self.version < V2 or self.last_epoch != producer.epoch:
            return False
        if producer.id == self.producer_id:
            return self.epoch == producer.epoch + 1
        return producer.id == self.last_producer_id and producer.epoch == EPOCH_MAX - 1 and self.epoch == 0

    def _check_running(self, producer: Producer) -> None:
        self._check_owner(producer)
        if self.is_prepared:
            raise self._concurrent()
        if self.state is not State.ONGOING:
            raise NotInTransactionError(f"no transaction of {self.transactional_id!r} is running: it is {self.state.value}")

    def _check_owner(self, producer: Producer) -> None:
        if producer.id != self.producer_id:
            raise UnknownProducerError(f"{self.transactional_id!r} belongs to producer {self.producer_id}, not {producer.id}")
        if producer.epoch != self.epoch:
            raise self._fenced(producer)

    def _fenced(self, producer: Producer) -> ProducerFencedError:
        return ProducerFencedError(
            f"producer {producer.id} in epoch {producer.epoch} lost {self.transactional_id!r}: a newer one has it, "
            f"or its transaction took more than {self.timeout_ms} ms"
        )

    def _concurrent(self) -> ConcurrentTransactionsError:
        return ConcurrentTransactionsError(f"the transaction of {self.transactional_id!r} is being ended; try again")
