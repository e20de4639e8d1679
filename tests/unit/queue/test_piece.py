"""Runs of stored batches: found by offset, by time, by size; joined and parsed without a byte changed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import CorruptionError
from penstock.core.record_format import HEADER_SIZE
from penstock.queue import InvalidBatchError
from penstock.queue.batch import PREFIX_SIZE, check_batch
from penstock.queue.piece import BUFFER_BYTES, JOIN_MAX, MARK_EVERY, PINNED_MAX, Gathered, Marks, Piece
from penstock.testing.batches import make_batch

Spec = tuple[int, int, int]
"""Messages, bytes of each, timestamp."""

specs = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 50, 1500, 5000]), st.integers(0, 20)), min_size=1, max_size=12)


def stored(batches: list[Spec], first_offset: int = 0) -> list[tuple[int, int, bytes]]:
    """(base offset, timestamp, bytes) of batches as they are stored."""
    found: list[tuple[int, int, bytes]] = []
    offset = first_offset
    for messages, size, timestamp in batches:
        found.append((offset, timestamp, make_batch([b"v" * size] * messages, timestamp=timestamp, base_offset=offset)))
        offset += messages
    return found


def piece_of(batches: list[Spec], first_offset: int = 0) -> Piece:
    """A piece parsed from its bytes."""
    data = b"".join(raw for _, _, raw in stored(batches, first_offset))
    return Piece.parse(data, first_offset, sum(messages for messages, _, _ in batches))


@given(specs, st.integers(0, 1000))
def test_every_offset_is_found_in_its_batch(batches: list[Spec], first_offset: int) -> None:
    piece = piece_of(batches, first_offset)
    at = 0
    for (base, _, raw), (messages, _, _) in zip(stored(batches, first_offset), batches, strict=True):
        for offset in range(base, base + messages):
            assert piece.find(offset) == at
        assert piece.batch_end(at) == at + len(raw)
        assert piece.next_offset_at(at) == base
        assert piece.cut(at, at + len(raw))[0] == raw
        at += len(raw)
    assert at == piece.size
    assert piece.next_offset_at(at) == piece.next_offset


@given(specs, st.integers(0, 21))
def test_the_first_batch_since_a_time_is_found(batches: list[Spec], timestamp: int) -> None:
    piece = piece_of(batches)
    at = 0
    expected = None
    for _, stamp, raw in stored(batches):
        if stamp >= timestamp and expected is None:
            expected = at
        at += len(raw)
    assert piece.first_since(timestamp) == expected
    stamps = [stamp for _, _, stamp in batches]
    assert (piece.min_timestamp, piece.max_timestamp) == (min(stamps), max(stamps))


@given(st.lists(specs, min_size=1, max_size=4), st.booleans())
def test_joined_pieces_are_the_piece_of_all_their_bytes(runs: list[list[Spec]], rewritten: bool) -> None:
    pieces: list[Piece] = []
    offset = 7
    for run in runs:
        pieces.append(piece_of(run, offset))
        offset = pieces[-1].next_offset
    joined = Piece.joined(pieces)
    if rewritten:
        joined = joined.rewritten()
    whole = piece_of([spec for run in runs for spec in run], 7)
    assert b"".join(joined.buffers) == whole.buffers[0]
    assert (joined.first_offset, joined.count, joined.size) == (whole.first_offset, whole.count, whole.size)
    assert (joined.min_timestamp, joined.max_timestamp) == (whole.min_timestamp, whole.max_timestamp)
    if rewritten:
        assert all(len(one) >= JOIN_MAX or len(other) >= JOIN_MAX for one, other in pairwise(joined.buffers))
    for each in range(7, offset):
        assert joined.find(each) == whole.find(each)
    for timestamp in range(22):
        assert joined.first_since(timestamp) == whole.first_since(timestamp)


@given(specs, st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_stretch_ends_at_a_batch_and_gets_ahead(batches: list[Spec], start_at: int, limit: int) -> None:
    piece = piece_of(batches)
    start = piece.find(min(start_at % piece.next_offset, piece.next_offset - 1))
    end = piece.marks.end_within(start, limit, piece.size)
    starts = {0}
    at = 0
    while at < piece.size:
        at = piece.batch_end(at)
        starts.add(at)
    assert end in starts
    assert end > start
    last_mark = max((position for position in piece.marks.positions if start < position <= start + limit), default=None)
    if start + limit >= piece.size:
        assert end == piece.size
    elif last_mark is not None:
        assert end == last_mark


@given(specs, st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_stretch_is_no_longer_than_was_asked_for_unless_one_batch_is(batches: list[Spec], start_at: int, limit: int) -> None:
    piece = piece_of(batches)
    start = piece.find(start_at % piece.next_offset)
    end = piece.end_within(start, limit)
    assert end - start <= limit or end == piece.batch_end(start)
    assert end == piece.size or piece.find(piece.next_offset_at(end)) == end


def test_marks_are_apart_and_begin_at_the_first_byte() -> None:
    piece = piece_of([(1, 100, stamp) for stamp in range(200)])
    positions = list(piece.marks.positions)
    assert positions[0] == 0
    assert all(after - before >= MARK_EVERY for before, after in pairwise(positions))
    assert len(positions) <= piece.size // MARK_EVERY + 1
    assert list(piece.marks.latest) == sorted(piece.marks.latest)


def test_marks_are_read_back() -> None:
    marks = piece_of([(2, 3000, 5), (1, 3000, 9), (1, 3000, 1)]).marks
    assert len(marks.offsets) > 1
    again = Marks.unpack(marks.pack())
    assert (again.offsets, again.positions, again.latest) == (marks.offsets, marks.positions, marks.latest)


def test_a_run_that_does_not_end_with_its_last_batch_is_refused() -> None:
    raw = make_batch([b"v"])
    with pytest.raises(InvalidBatchError, match="does not end"):
        Piece.parse(raw + make_batch([b"w"], base_offset=1)[:-1], 0, 2)


def test_an_offset_that_no_batch_holds_is_told_not_searched_for_ever() -> None:
    piece = Piece.parse(make_batch([b"v"]), 0, 5)
    assert piece.find(0) == 0
    with pytest.raises(CorruptionError, match="offset 3 is in no batch"):
        piece.find(3)


@given(st.lists(st.sampled_from([1, 100, JOIN_MAX - 80, JOIN_MAX, JOIN_MAX + 1, 50_000]), min_size=1, max_size=40))
def test_batches_are_gathered_with_large_ones_as_they_were_received_and_every_header_whole(sizes: list[int]) -> None:
    gathered = Gathered()
    expected = b""
    received: list[memoryview] = []
    for offset, size in enumerate(sizes):
        raw = make_batch([b"v" * size], base_offset=offset)
        received.append(check_batch(raw, 1 << 20).data)
        gathered.add_batch(raw[:PREFIX_SIZE], received[-1])
        expected += raw
    whole = Piece.parse(expected, 0, len(sizes))
    piece = Piece(0, len(sizes), gathered.buffers(), whole.marks, (0, 0))
    assert b"".join(piece.buffers) == expected
    for offset, data in enumerate(received):
        at = piece.find(offset)
        assert (at, piece.batch_end(at), piece.batch_at(at)) == (whole.find(offset), whole.batch_end(at), bytes(data))
        if len(data) - HEADER_SIZE >= JOIN_MAX:
            rest = piece.cut(at + HEADER_SIZE, piece.batch_end(at))[0]
            assert isinstance(rest, memoryview)
            assert rest.obj is data.obj
    assert all(len(one) >= JOIN_MAX or len(other) >= JOIN_MAX for one, other in pairwise(piece.buffers))


def test_a_header_is_never_divided_where_a_buffer_is_full() -> None:
    gathered = Gathered()
    raw = make_batch([b"v" * 1000])
    for _ in range(2 * BUFFER_BYTES // len(raw)):
        gathered.add_batch(raw[:PREFIX_SIZE], memoryview(raw))
    buffers = gathered.buffers()
    assert len(buffers) > 1
    assert all(len(buffer) % len(raw) == 0 for buffer in buffers)


@pytest.mark.parametrize(("copies", "is_copied"), [(PINNED_MAX - 1, False), (PINNED_MAX, True)])
def test_a_piece_that_is_kept_does_not_hold_on_to_much_larger_buffers(copies: int, is_copied: bool) -> None:
    raw = make_batch([b"v" * 20_000])
    receive_buffer = bytearray(raw * copies + bytes(1))
    gathered = Gathered()
    gathered.add_batch(raw[:PREFIX_SIZE], memoryview(receive_buffer)[: len(raw)])
    piece = Piece(0, 1, gathered.buffers(), Piece.parse(raw, 0, 1).marks, (0, 0))
    kept = piece.kept()
    owners = {id(buffer.obj) for buffer in kept.buffers if isinstance(buffer, memoryview)}
    assert (id(receive_buffer) not in owners) is is_copied
    assert b"".join(kept.buffers) == raw
    assert kept.find(0) == 0


@given(st.lists(specs, min_size=1, max_size=5))
def test_marks_put_behind_others_stay_far_apart_and_tell_the_latest_time_up_to_the_next(runs: list[list[Spec]]) -> None:
    offset = size = 0
    marks = Marks()
    whole: list[tuple[int, int, int]] = []
    for run in runs:
        piece = piece_of(run, offset)
        marks.extend(piece.marks, size)
        at = size
        for base, timestamp, raw in stored(run, offset):
            whole.append((base, at, timestamp))
            at += len(raw)
        offset, size = piece.next_offset, size + piece.size
    found = list(zip(marks.offsets, marks.positions, strict=True))
    assert found[0] == (0, 0)
    assert set(found) <= {(base, at) for base, at, _ in whole}
    assert all(other - one >= MARK_EVERY for one, other in pairwise(marks.positions))
    for (begin, end), latest in zip(pairwise([*marks.positions, size]), marks.latest, strict=True):
        assert latest == max(timestamp for _, at, timestamp in whole if begin <= at < end)
