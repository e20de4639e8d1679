"""The rules of dedup: what is new, what was written before and where, what is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock.queue import SequenceError, SourceState, SourceWrite, StaleEpochError
from penstock.queue.sources import RECENT_MAX, RecentBatch, after_write, check_source, known_offset

WRAP = 1 << 31


def _own(seqno: int, epoch: int = 0) -> SourceWrite:
    return SourceWrite(b"source", seqno, epoch)


def _kafka(seqno: int, epoch: int = 0) -> SourceWrite:
    return SourceWrite(b"producer", seqno, epoch, contiguous=True)


def _written(*batches: tuple[SourceWrite, int]) -> SourceState:
    """The state after batches (write, messages), each new, from offset 100 on."""
    state: SourceState | None = None
    offset = 100
    for write, count in batches:
        assert known_offset(state, write, count) is None
        state = after_write(state, write, count, offset)
        offset += count
    assert state is not None
    return state


def test_the_last_batch_of_a_source_is_known_by_its_seqno_and_offset() -> None:
    state = _written((_own(1), 3), (_own(10), 2))
    assert (state.max_seqno, state.last_offset, state.epoch) == (11, 104, 0)


def test_a_resent_batch_is_known_with_its_offset() -> None:
    state = _written((_own(1), 3), (_own(4), 2), (_own(10), 1))
    assert [known_offset(state, _own(seqno), count) for seqno, count in ((1, 3), (4, 2), (10, 1))] == [100, 103, 105]


def test_an_equal_seqno_is_a_duplicate_and_a_higher_one_is_new_gap_or_not() -> None:
    state = _written((_own(5), 1))
    assert known_offset(state, _own(5), 1) == 100
    assert known_offset(state, _own(6), 1) is None
    assert known_offset(state, _own(600), 1) is None
    assert known_offset(_written((_own(5), 5)), _own(9), 1) == -1  # the last of them, cut otherwise


def test_an_older_seqno_that_is_not_remembered_is_a_duplicate_at_an_unknown_offset() -> None:
    state = _written(*((_own(seqno), 1) for seqno in range(1, 8)))
    assert len(state.recent) == RECENT_MAX
    assert known_offset(state, _own(1), 1) == known_offset(state, _own(2), 1) == -1
    assert known_offset(state, _own(3), 1) == 102
    assert known_offset(state, _own(3), 2) == -1  # cut otherwise than it was written


def test_a_batch_that_is_partly_written_is_refused() -> None:
    state = _written((_own(5), 5))
    with pytest.raises(SequenceError, match=r"8\.\.12 .* up to 9; send only the rest"):
        known_offset(state, _own(8), 5)


def test_a_newer_owner_shuts_the_older_out_and_repeats_nothing() -> None:
    state = _written((_own(1), 2), (_own(3, epoch=1), 1))
    assert state.epoch == 1
    with pytest.raises(StaleEpochError, match="epoch 0, but epoch 1"):
        known_offset(state, _own(4, epoch=0), 1)
    assert known_offset(state, _own(1, epoch=1), 2) == 100
    assert known_offset(state, _own(3, epoch=2), 1) == 102
    assert known_offset(state, _own(4, epoch=2), 1) is None


def test_a_producer_leaves_no_gap() -> None:
    state = _written((_kafka(0), 3))
    assert known_offset(state, _kafka(3), 2) is None
    with pytest.raises(SequenceError, match="sequence 4 where 3 comes next"):
        known_offset(state, _kafka(4), 1)


def test_a_producer_that_is_not_known_may_go_on_from_anywhere() -> None:
    """All it wrote may be gone, and what was known of it with that."""
    assert known_offset(None, _kafka(7), 1) is None


def test_a_producer_starts_at_0_in_a_new_epoch() -> None:
    state = _written((_kafka(0), 3), (_kafka(0, epoch=1), 2))
    assert state.recent == (RecentBatch(1, 103, 2),)
    with pytest.raises(SequenceError, match="starts at sequence 0, not 5"):
        known_offset(state, _kafka(5, epoch=2), 1)
    with pytest.raises(StaleEpochError):
        known_offset(state, _kafka(3, epoch=0), 1)
    assert known_offset(state, _kafka(0, epoch=1), 2) == 103


def test_the_numbers_of_a_producer_wrap_within_and_between_batches() -> None:
    state = _written((_kafka(WRAP - 5), 4))
    assert known_offset(state, _kafka(WRAP - 1), 3) is None
    state = after_write(state, _kafka(WRAP - 1), 3, 104)
    assert state.max_seqno == 1
    assert known_offset(state, _kafka(WRAP - 1), 3) == 104
    assert known_offset(state, _kafka(2), 1) is None
    with pytest.raises(SequenceError):
        known_offset(state, _kafka(3), 1)
    fresh = _written((_kafka(WRAP - 2), 2))
    assert known_offset(fresh, _kafka(0), 1) is None


def test_a_producer_remembers_five_batches_and_older_ones_are_duplicates() -> None:
    state = _written(*((_kafka(2 * number), 2) for number in range(7)))
    assert [known_offset(state, _kafka(2 * number), 2) for number in range(2, 7)] == [104, 106, 108, 110, 112]
    assert known_offset(state, _kafka(0), 2) == -1


def test_a_batch_of_a_producer_that_is_partly_written_is_refused_and_not_taken_for_a_duplicate() -> None:
    state = _written(*((_kafka(number), 1) for number in range(10)))
    with pytest.raises(SequenceError):
        known_offset(state, _kafka(8), 5)
    with pytest.raises(SequenceError):
        known_offset(state, _kafka(0), 11)


def test_a_batch_that_was_passed_over_is_not_taken_for_a_duplicate() -> None:
    """The first of a new producer failed, the second came later and was taken: were the first acknowledged when it is sent again,
    it would be lost."""
    state = _written((_kafka(3), 2))
    with pytest.raises(SequenceError, match="not those of a batch it wrote"):
        known_offset(state, _kafka(0), 3)


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (SourceWrite(b"s" * 2049, 1), InvalidRequestError),
        (_own(-1), SequenceError),
        (_own((1 << 63) - 2), SequenceError),
        (_own(1 << 70), SequenceError),
        (_kafka(WRAP), SequenceError),
        (_kafka(-1), SequenceError),
        (_own(1, epoch=1 << 31), InvalidRequestError),
        (_own(1, epoch=-2), InvalidRequestError),
    ],
)
def test_what_cannot_be_stored_is_refused(write: SourceWrite, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_source(write, 3)


def test_what_can_be_stored_is() -> None:
    for write in (SourceWrite(b"s" * 2048, 0), _own((1 << 63) - 3), _kafka(WRAP - 1), _own(1, epoch=(1 << 31) - 1), _own(0, -1)):
        check_source(write, 3)
        state = after_write(None, write, 3, (1 << 63) - 10)
        assert SourceState.unpack(state.pack()) == state


steps = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12)


@given(steps, st.booleans())
def test_every_remembered_batch_is_a_duplicate_at_its_offset_and_the_next_is_new(
    batches: list[tuple[int, int]], contiguous: bool
) -> None:
    state: SourceState | None = None
    seqno = 0
    offset = 50
    sent: list[tuple[SourceWrite, int, int]] = []
    for count, gap in batches:
        write = SourceWrite(b"s", seqno, 0, contiguous)
        assert known_offset(state, write, count) is None
        state = after_write(state, write, count, offset)
        sent.append((write, count, offset))
        seqno += count + (0 if contiguous else gap)
        offset += count
    assert state is not None
    for write, count, place in sent[-RECENT_MAX:]:
        assert known_offset(state, write, count) == place
    for write, count, _ in sent[:-RECENT_MAX]:
        assert known_offset(state, write, count) == -1
    assert known_offset(SourceState.unpack(state.pack()), SourceWrite(b"s", seqno, 0, contiguous), 2) is None
