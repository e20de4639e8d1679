"""Open and aborted transactions of a partition: the last stable offset, and what readers of committed data leave out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queue import Aborted, Batch, InvalidBatchError, check_batch
from penstock.queue.transactions import Transactions
from penstock.testing.batches import make_batch, make_marker


def _data(producer: int) -> Batch:
    return check_batch(make_batch([b"v"], attributes=0x10, producer_id=producer, producer_epoch=0, base_sequence=0), 1 << 20)


def _marker(producer: int, *, commit: bool) -> Batch:
    return check_batch(make_marker(commit=commit, producer_id=producer), 1 << 20)


def test_plain_batches_open_nothing() -> None:
    transactions = Transactions()
    assert transactions.note(0, check_batch(make_batch([b"v"]), 1 << 20), 5) == []
    assert transactions.stable_offset(6) == 6


def test_the_stable_offset_is_that_of_the_oldest_open_transaction() -> None:
    transactions = Transactions()
    transactions.note(0, _data(1), 10)
    transactions.note(0, _data(2), 20)
    assert transactions.note(0, _data(1), 30) == []
    assert transactions.stable_offset(40) == 10
    transactions.note(0, _marker(1, commit=True), 40)
    assert transactions.stable_offset(41) == 20
    transactions.note(0, _marker(2, commit=False), 41)
    assert transactions.stable_offset(42) == 42
    assert transactions.aborted == [Aborted(41, 2, 20)]


def test_aborted_transactions_are_found_by_any_offset_they_cover() -> None:
    transactions = Transactions()
    for producer, first, last in ((1, 10, 20), (2, 15, 40), (3, 50, 60)):
        transactions.open[producer] = first
        transactions.note(0, _marker(producer, commit=False), last)
    assert [one.producer_id for one in transactions.aborted_between(0, 10)] == []
    assert [one.producer_id for one in transactions.aborted_between(0, 11)] == [1]
    assert [one.producer_id for one in transactions.aborted_between(20, 50)] == [1, 2]
    assert [one.producer_id for one in transactions.aborted_between(21, 51)] == [2, 3]
    transactions.settle()
    transactions.forget_before(41)
    assert [one.producer_id for one in transactions.aborted] == [3]


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    transactions = Transactions()
    assert transactions.note(0, _marker(1, commit=False), 3) == []
    assert transactions.aborted == []


def test_a_control_batch_that_is_refused_leaves_its_transaction_open() -> None:
    transactions = Transactions()
    transactions.note(0, _data(1), 10)
    wrong = check_batch(make_batch([b""], key=b"\0\0\0\7", attributes=0x30, producer_id=1), 1 << 20)
    with pytest.raises(InvalidBatchError):
        transactions.note(0, wrong, 11)
    assert transactions.stable_offset(12) == 10


def test_a_copy_is_independent() -> None:
    transactions = Transactions()
    transactions.note(0, _data(1), 10)
    twin = transactions.copy()
    twin.note(0, _marker(1, commit=False), 11)
    assert (transactions.open, transactions.aborted) == ({1: 10}, [])
    assert (twin.open, twin.aborted) == ({}, [Aborted(11, 1, 10)])


def test_what_a_write_adds_is_shared_with_later_copies_once_it_is_durable() -> None:
    transactions = Transactions()
    transactions.note(0, _data(1), 10)
    first = transactions.copy()
    first.note(0, _marker(1, commit=False), 11)
    second = first.copy()  # made before the first is durable
    second.note(0, _data(2), 12)
    second.note(0, _marker(2, commit=False), 13)
    assert transactions.aborted_between(0, 100) == []
    first.settle()
    assert first.aborted_between(0, 100) == [Aborted(11, 1, 10)]
    second.settle()
    assert second.aborted_between(0, 100) == [Aborted(11, 1, 10), Aborted(13, 2, 12)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12), st.integers(0, 40), st.integers(0, 40))
def test_a_search_finds_what_a_look_at_everything_finds(spans: list[tuple[int, int]], begin: int, end: int) -> None:
    everything = sorted(Aborted(first + length, number, first) for number, (first, length) in enumerate(spans))
    transactions = Transactions()
    transactions.load(everything)
    expected = [one for one in everything if one.last_offset >= begin and one.first_offset < end]
    assert transactions.aborted_between(begin, end) == expected
    transactions.forget(everything[::3])
    transactions.forget_before(begin)
    kept = [one for at, one in enumerate(everything) if at % 3 and one.last_offset >= begin]
    assert transactions.aborted == kept
    assert transactions.aborted_between(0, end) == [one for one in kept if one.first_offset < end]
