"""Markers: their bytes, and what the marker of a producer's epoch does to what it may write afterwards."""

from __future__ import annotations

import pytest

from penstock.queue import SequenceError, SourceState, SourceWrite, StaleEpochError, check_batch, make_marker, marker_source
from penstock.queue.batch import is_commit_marker
from penstock.queue.sources import after_write, known_offset
from penstock.queue.transaction_ends import TransactionEnds
from penstock.testing.batches import make_marker as make_marker_slowly
from penstock.testing.batches import values_of


def _kafka(seqno: int, epoch: int) -> SourceWrite:
    return SourceWrite(b"producer", seqno, epoch, contiguous=True)


def _marked(state: SourceState | None, epoch: int, offset: int = 200) -> SourceState:
    marker = marker_source(b"producer", epoch)
    assert known_offset(state, marker, 1) is None
    return after_write(state, marker, 1, offset)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_a_control_batch_of_one_record(commit: bool) -> None:
    raw = make_marker(commit=commit, producer_id=7, producer_epoch=3, coordinator_epoch=0x01020304, now_ms=5)
    batch = check_batch(raw, len(raw))
    assert (batch.is_control, batch.is_transactional, batch.producer_id, batch.producer_epoch) == (True, True, 7, 3)
    assert is_commit_marker(batch) is commit
    assert values_of(raw) == [(0, b"\0\0\1\2\3\4")]


@pytest.mark.parametrize("commit", [True, False])
def test_its_bytes_are_those_of_a_batch_made_the_slow_way(commit: bool) -> None:
    quick = make_marker(commit=commit, producer_id=7, producer_epoch=3, coordinator_epoch=0, now_ms=5)
    assert quick == make_marker_slowly(commit=commit, producer_id=7, producer_epoch=3, timestamp=5)


def test_a_marker_in_the_epoch_of_the_data_changes_nothing() -> None:
    state = after_write(None, _kafka(0, 4), 3, 100)
    assert _marked(state, 4) is state


def test_a_marker_of_a_newer_epoch_shuts_the_older_out() -> None:
    state = _marked(after_write(None, _kafka(0, 4), 3, 100), 5)
    assert (state.epoch, state.last_sequence, state.last_offset) == (5, -1, 200)
    with pytest.raises(StaleEpochError):
        known_offset(state, _kafka(3, 4), 1)


def test_after_it_the_epoch_starts_at_sequence_zero() -> None:
    state = _marked(None, 5)
    assert known_offset(state, _kafka(0, 5), 1) is None
    with pytest.raises(SequenceError):
        known_offset(state, _kafka(3, 5), 1)
    with pytest.raises(SequenceError):
        known_offset(state, _kafka((1 << 31) - 1, 5), 1)
    state = after_write(state, _kafka(0, 5), 2, 300)
    assert (state.last_sequence, len(state.recent)) == (1, 1)
    assert known_offset(state, _kafka(0, 5), 2) == 300


def test_the_marker_of_an_older_epoch_is_refused() -> None:
    state = after_write(None, _kafka(0, 4), 3, 100)
    with pytest.raises(StaleEpochError):
        known_offset(state, marker_source(b"producer", 3), 1)


def test_an_epoch_begun_by_a_marker_is_stored_like_this() -> None:
    state = _marked(None, 5)
    assert state.pack().hex() == "01" + "0a" + "ffffffff07" + "c901" + "00"
    assert SourceState.unpack(state.pack()) == state


def test_the_marker_of_a_superseded_coordinator_is_refused_for_producers_whose_transactions_the_next_one_ended() -> None:
    ends = TransactionEnds()
    for producer_id, epoch in ((7, 3), (7, 4), (8, 3)):
        ends.begin(producer_id, epoch)
        ends.finish(producer_id, epoch)
    guard = ends.guard(7)
    with pytest.raises(StaleEpochError, match="coordinator epoch 3, but epoch 4"):
        ends.begin(7, 3)
    assert not guard.is_ended, "the producer's next transaction goes on"
    assert not ends.is_ending(7)
    ends.begin(8, 3)
    assert ends.is_ending(8)
