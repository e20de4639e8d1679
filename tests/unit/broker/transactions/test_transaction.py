"""The state machine of a transactional id: what each request makes of each state, and which it refuses."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.broker import TopicPartition
from penstock.broker.transactions import V1 as TRANSACTIONS_V1
from penstock.broker.transactions import V2 as TRANSACTIONS_V2
from penstock.broker.transactions import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    NotInTransactionError,
    Producer,
    ProducerFencedError,
    Transaction,
    TransactionState,
    UnknownProducerError,
)

QUEUE, OTHER = TopicPartition(UUID(int=1), 0), TopicPartition(UUID(int=1), 1)
NEW_ID = 99
LAST_EPOCH = (1 << 15) - 2
OWNER = Producer(7, 0)


def _empty() -> Transaction:
    return Transaction("id", 7).initialised(1000, 10, None, NEW_ID)


def _ongoing() -> Transaction:
    return _empty().added(OWNER, 20, queues=frozenset({QUEUE}))


def _end(
    transaction: Transaction, producer: Producer = OWNER, *, commit: bool = True, version: int = TRANSACTIONS_V1
) -> Transaction:
    return transaction.ended(producer, 30, commit=commit, version=version, new_producer_id=NEW_ID)


def _completed(*, commit: bool = True, version: int = TRANSACTIONS_V1) -> Transaction:
    return _end(_ongoing(), commit=commit, version=version).completed(40)


class TestInitialising:
    def test_the_first_producer_gets_epoch_zero(self) -> None:
        assert _empty().owner == (7, 0)
        assert _empty().state is TransactionState.EMPTY

    def test_each_next_one_gets_the_next_epoch(self) -> None:
        assert _completed().initialised(1000, 50, None, NEW_ID).owner == (7, 1)

    def test_while_an_end_is_carried_out_it_has_to_wait(self) -> None:
        with pytest.raises(ConcurrentTransactionsError):
            _end(_ongoing()).initialised(1000, 50, None, NEW_ID)

    def test_when_the_epochs_are_used_up_it_gets_another_id(self) -> None:
        used_up = replace(_empty(), epoch=LAST_EPOCH)
        assert used_up.needs_producer(None)
        rotated = used_up.initialised(1000, 50, None, NEW_ID)
        assert (rotated.owner, rotated.last_producer_id) == ((NEW_ID, 0), 7)

    def test_a_producer_that_goes_on_gets_the_next_epoch_and_may_repeat_the_request(self) -> None:
        bumped = _completed().initialised(1000, 50, OWNER, NEW_ID)
        assert (bumped.owner, bumped.last_epoch) == ((7, 1), 0)
        assert bumped.initialised(1000, 60, OWNER, NEW_ID).owner == (7, 1)

    def test_a_repeat_is_known_even_if_the_epochs_were_used_up(self) -> None:
        last = Producer(7, LAST_EPOCH)
        rotated = replace(_empty(), epoch=LAST_EPOCH).initialised(1000, 50, last, NEW_ID)
        assert rotated.owner == (NEW_ID, 0)
        assert rotated.initialised(1000, 60, last, NEW_ID + 1).owner == (NEW_ID, 0)

    @pytest.mark.parametrize("expected", [Producer(7, 0), Producer(8, 1), Producer(8, LAST_EPOCH)])
    def test_one_that_was_fenced_may_not_go_on(self, expected: Producer) -> None:
        heir = _completed().initialised(1000, 50, None, NEW_ID)
        with pytest.raises(ProducerFencedError):
            heir.initialised(1000, 60, expected, NEW_ID)

    def test_fencing_aborts_what_is_running_in_an_epoch_that_nobody_has(self) -> None:
        fenced = _ongoing().fenced(50)
        assert (fenced.state, fenced.epoch) == (TransactionState.PREPARE_ABORT, 1)
        after = fenced.completed(60)
        assert after.initialised(1000, 70, None, NEW_ID).owner == (7, 2)
        with pytest.raises(ProducerFencedError):
            after.initialised(1000, 70, OWNER, NEW_ID)


class TestGrowing:
    def test_the_first_partition_begins_a_transaction(self) -> None:
        begun = _ongoing()
        assert (begun.state, begun.started_ms) == (TransactionState.ONGOING, 20)
        grown = begun.added(OWNER, 25, queues=frozenset({OTHER}), groups=frozenset({"g"}))
        assert (grown.queues, grown.groups, grown.started_ms) == (frozenset({QUEUE, OTHER}), frozenset({"g"}), 20)

    def test_what_is_in_it_already_changes_nothing(self) -> None:
        begun = _ongoing()
        assert begun.added(OWNER, 25, queues=frozenset({QUEUE})) is begun

    def test_the_next_transaction_begins_with_nothing_in_it(self) -> None:
        begun = _completed().added(OWNER, 50, queues=frozenset({OTHER}))
        assert (begun.queues, begun.started_ms) == (frozenset({OTHER}), 50)

    def test_only_its_owner_may(self) -> None:
        with pytest.raises(UnknownProducerError):
            _ongoing().added(Producer(8, 0), 25)
        with pytest.raises(ProducerFencedError):
            _ongoing().added(Producer(7, 1), 25)

    def test_it_cannot_grow_while_its_end_is_carried_out(self) -> None:
        with pytest.raises(ConcurrentTransactionsError):
            _end(_ongoing()).added(OWNER, 50, queues=frozenset({OTHER}))

    def test_writes_are_taken_only_for_partitions_of_the_running_transaction(self) -> None:
        assert _ongoing().holds(OWNER, QUEUE)
        _ongoing().check_writes(OWNER, QUEUE)
        for transaction, producer, queue, refusal in (
            (_ongoing(), OWNER, OTHER, NotInTransactionError),
            (_completed(), OWNER, QUEUE, NotInTransactionError),
            (_end(_ongoing()), OWNER, QUEUE, ConcurrentTransactionsError),
            (_ongoing(), Producer(7, 1), QUEUE, ProducerFencedError),
            (_ongoing(), Producer(8, 0), QUEUE, UnknownProducerError),
        ):
            assert not transaction.holds(producer, queue)
            with pytest.raises(refusal):
                transaction.check_writes(producer, queue)


class TestEndingInVersion1:
    @pytest.mark.parametrize("commit", [True, False])
    def test_the_epoch_stays(self, commit: bool) -> None:
        prepared = _end(_ongoing(), commit=commit)
        assert (prepared.is_prepared, prepared.is_commit, prepared.owner) == (True, commit, OWNER)
        done = prepared.completed(40)
        assert (done.is_commit, done.queues, done.started_ms, done.owner) == (commit, frozenset(), -1, OWNER)

    @pytest.mark.parametrize("commit", [True, False])
    def test_the_same_request_once_more_changes_nothing(self, commit: bool) -> None:
        done = _completed(commit=commit)
        assert _end(done, commit=commit) is done

    @pytest.mark.parametrize("commit", [True, False])
    def test_what_has_ended_one_way_cannot_end_the_other(self, commit: bool) -> None:
        for transaction in (_end(_ongoing(), commit=commit), _completed(commit=commit)):
            with pytest.raises(InvalidTransactionStateError):
                _end(transaction, commit=not commit)

    def test_while_it_is_carried_out_the_same_request_has_to_wait(self) -> None:
        with pytest.raises(ConcurrentTransactionsError):
            _end(_end(_ongoing()))

    @pytest.mark.parametrize("commit", [True, False])
    def test_nothing_cannot_be_ended(self, commit: bool) -> None:
        with pytest.raises(InvalidTransactionStateError):
            _end(_empty(), commit=commit)

    def test_a_fenced_producer_cannot_end_anything(self) -> None:
        with pytest.raises(ProducerFencedError):
            _end(_ongoing().fenced(50).completed(60), commit=False)


class TestEndingInVersion2:
    @pytest.mark.parametrize("commit", [True, False])
    def test_the_epoch_rises(self, commit: bool) -> None:
        prepared = _end(_ongoing(), commit=commit, version=TRANSACTIONS_V2)
        assert (prepared.epoch, prepared.owner) == (1, (7, 1))
        assert prepared.completed(40).owner == (7, 1)

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_repeat_with_the_old_epoch_is_known(self, commit: bool) -> None:
        done = _completed(commit=commit, version=TRANSACTIONS_V2)
        assert _end(done, commit=commit, version=TRANSACTIONS_V2) is done
        with pytest.raises(InvalidTransactionStateError):
            _end(done, commit=not commit, version=TRANSACTIONS_V2)
        with pytest.raises(ConcurrentTransactionsError):
            _end(_end(_ongoing(), commit=commit, version=TRANSACTIONS_V2), commit=commit, version=TRANSACTIONS_V2)

    def test_a_repeat_that_comes_after_the_next_has_begun_is_refused(self) -> None:
        following = _completed(version=TRANSACTIONS_V2).added(Producer(7, 1), 50, queues=frozenset({QUEUE}))
        with pytest.raises(ProducerFencedError):
            _end(following, version=TRANSACTIONS_V2)

    def test_an_heir_is_safe_from_repeats_of_the_one_before(self) -> None:
        heir = _completed(version=TRANSACTIONS_V2).initialised(1000, 50, None, NEW_ID)
        for commit in (True, False):
            with pytest.raises(ProducerFencedError):
                _end(heir, Producer(7, 1), commit=commit, version=TRANSACTIONS_V2)

    def test_an_empty_transaction_can_be_aborted_but_not_committed(self) -> None:
        for idle in (_empty(), _completed(), _completed(commit=False)):
            assert _end(idle, commit=False, version=TRANSACTIONS_V2).owner == (7, 1)
        with pytest.raises(InvalidTransactionStateError):
            _end(_empty(), version=TRANSACTIONS_V2)
        with pytest.raises(InvalidTransactionStateError):
            _end(_completed(version=TRANSACTIONS_V2), Producer(7, 1), version=TRANSACTIONS_V2)

    def test_when_the_epochs_are_used_up_the_next_transaction_has_another_id(self) -> None:
        last = Producer(7, LAST_EPOCH)
        used_up = replace(_ongoing(), epoch=LAST_EPOCH)
        assert used_up.needs_producer_after(TRANSACTIONS_V2)
        prepared = _end(used_up, last, version=TRANSACTIONS_V2)
        assert (prepared.producer_id, prepared.epoch, prepared.owner) == (7, LAST_EPOCH + 1, (NEW_ID, 0))
        done = prepared.completed(40)
        assert (done.owner, done.last_producer_id) == ((NEW_ID, 0), 7)
        assert _end(done, last, version=TRANSACTIONS_V2) is done
