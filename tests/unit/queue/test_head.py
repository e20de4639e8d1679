"""What becomes of the head as batches arrive: few pieces, bodies near 8 MiB, and every byte and offset where it was."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.queue.batch import span_at
from penstock.queue.head import BODY_SIZE, LEVELS, LOW_WATERMARK, HeadPlan, plan_write
from penstock.queue.piece import Piece
from penstock.testing.batches import make_batch

MIB = 1 << 20
PIECES_MAX = 150


def _batch(size: int, offset: int) -> bytes:
    value = size - 75
    raw = make_batch([bytes(value)], base_offset=offset, timestamp=size)
    while len(raw) != size:  # the lengths in it have lengths of their own
        value += size - len(raw)
        raw = make_batch([bytes(value)], base_offset=offset, timestamp=size)
    return raw


class Head:
    """A head and the bodies it has become, kept up by the plans."""

    def __init__(self, low_watermark: int = LOW_WATERMARK) -> None:
        self.low_watermark = low_watermark
        self.head: list[Piece] = []
        self.bodies: list[Piece] = []
        self.written = 0
        self.arrived: list[bytes] = []
        self.next_offset = 0

    def write(self, *sizes: int, body_bytes: int = BODY_SIZE) -> HeadPlan:
        """One cycle with batches of these sizes."""
        held = sum(piece.size for piece in self.head)
        raws: list[bytes] = []
        for size in sizes:
            raws.append(_batch(size, self.next_offset + len(raws)))
        data = b"".join(raws)
        arrived = Piece.parse(data, self.next_offset, len(raws))
        self.next_offset += len(raws)
        self.arrived += raws
        plan = plan_write(self.head, arrived, self.low_watermark, body_bytes)
        self._take(plan)
        self._check_plan(plan, max(body_bytes, held))
        return plan

    def _take(self, plan: HeadPlan) -> None:
        old = {id(piece) for piece in self.head}
        assert 0 <= plan.replaced <= len(self.head)
        gone = self.head[len(self.head) - plan.replaced :]
        del self.head[len(self.head) - plan.replaced :]
        for run in plan.bodies:
            self.bodies.append(Piece.joined(run))
            self.written += sum(piece.size for piece in run if id(piece) not in old)
        if plan.bodies:
            used = {id(piece) for run in plan.bodies for piece in run}
            assert all(id(piece) in used for piece in gone), "an old piece is neither kept nor in a body"
        if plan.piece is not None:
            self.head.append(plan.piece)
            self.written += plan.piece.size

    def _check_plan(self, plan: HeadPlan, body_bytes: int) -> None:
        assert sum(piece.size for piece in self.head) < self.low_watermark
        for body in self.bodies[len(self.bodies) - len(plan.bodies) :]:
            assert body.size <= body_bytes or span_at(body.buffers[0], 0).size == body.size

    def check_everything(self) -> None:
        """All bytes in order, all offsets numbered through, all marks where batches begin."""
        offset = 0
        for piece in [*self.bodies, *self.head]:
            assert piece.first_offset == offset
            at = 0
            starts: dict[int, int] = {}
            while at < piece.size:
                starts[at] = piece.next_offset_at(at)
                assert piece.find(starts[at]) == at
                at = piece.batch_end(at)
            assert [starts[position] for position in piece.marks.positions] == list(piece.marks.offsets)
            offset = piece.next_offset
        assert offset == self.next_offset
        whole = b"".join(buffer for piece in [*self.bodies, *self.head] for buffer in piece.buffers)
        assert whole == b"".join(self.arrived)


def test_a_first_small_batch_is_a_piece_of_its_own() -> None:
    head = Head()
    plan = head.write(100)
    assert (plan.replaced, plan.bodies) == (0, ())
    assert len(head.head) == 1


def test_a_level_that_is_full_moves_up_as_one_piece() -> None:
    head = Head()
    while not head.write(100).replaced:
        assert sum(piece.size for piece in head.head) < LEVELS[0]
    assert len(head.head) == 1
    assert head.head[0].size >= LEVELS[0]


def test_levels_cascade() -> None:
    head = Head()
    for _ in range(3):
        head.write(16_400)
    assert len(head.head) == 3
    for _ in range(10):
        head.write(100)
    assert len(head.head) == 13
    plan = head.write(15_600)
    assert plan.replaced == 13
    assert len(head.head) == 1
    assert head.head[0].size >= LEVELS[1]
    head.check_everything()


def test_what_is_large_already_is_not_rewritten_by_small_ones() -> None:
    head = Head()
    head.write(200_000)
    for _ in range(200):
        head.write(3000)
    assert head.head[0].size < 201_000
    head.check_everything()


def test_a_piece_of_a_higher_level_takes_smaller_ones_along() -> None:
    """Otherwise small ones would be walled in behind it and never join."""
    head = Head()
    for _ in range(5):
        head.write(100)
    assert head.write(3000).replaced == 5
    for _ in range(5):
        head.write(100)
    assert head.write(200_000).replaced == 6
    assert len(head.head) == 1


@pytest.mark.parametrize("size", [81, 500, 2100, 100_000])
def test_batches_of_one_size_leave_few_pieces(size: int) -> None:
    head = Head()
    most = 0
    for _ in range(min(3000, 2 * LOW_WATERMARK // size)):
        head.write(size)
        most = max(most, len(head.head))
    assert most <= PIECES_MAX
    head.check_everything()


@pytest.mark.parametrize("seed", range(6))
def test_batches_of_mixed_sizes_leave_few_pieces(seed: int) -> None:
    draw = Random(seed)
    head = Head(low_watermark=LOW_WATERMARK if seed % 2 else MIB)
    most = 0
    for _ in range(2500):
        head.write(draw.choice([90, 90, 90, 90, 90, 300, 1900, 2100, 2100, 40_000 if draw.random() < 0.2 else 90]))
        most = max(most, len(head.head))
    assert most <= PIECES_MAX
    head.check_everything()


def test_small_ones_walled_in_by_larger_ones_do_not_pile_up() -> None:
    head = Head()
    for _ in range(60):
        for _ in range(20):
            head.write(90)
        head.write(2100)
    for _ in range(5):
        head.write(130 << 10)
        for _ in range(20):
            head.write(90)
    assert len(head.head) <= PIECES_MAX
    head.check_everything()


def test_tiny_batches_are_written_few_times_over() -> None:
    head = Head()
    total = 0
    for _ in range(5000):
        head.write(200)
        total += 1
    accepted = sum(map(len, head.arrived))
    assert head.written <= (len(LEVELS) + 1) * accepted  # on arrival, and once per level
    assert total == head.next_offset


def test_large_batches_are_written_once() -> None:
    head = Head()
    for _ in range(40):
        head.write(MIB)
    assert head.written == sum(map(len, head.arrived))
    assert len(head.bodies) == 40 // 6
    head.check_everything()


def test_at_the_low_watermark_the_head_becomes_a_body() -> None:
    head = Head()
    for _ in range(5):
        assert head.write(MIB).bodies == ()
    plan = head.write(MIB)
    assert len(plan.bodies) == 1
    assert plan.piece is None
    assert (head.head, head.bodies[0].count) == ([], 6)
    assert LOW_WATERMARK <= head.bodies[0].size <= BODY_SIZE


def test_a_write_that_crosses_8_mib_leaves_the_rest_in_the_head() -> None:
    head = Head()
    for _ in range(5):
        head.write(MIB)
    plan = head.write(*[MIB] * 4)
    assert [piece.size <= BODY_SIZE for run in plan.bodies for piece in run] == [
        True
    ] * 6  # five that lie there, and one of new ones
    assert head.bodies[0].count == 8
    assert len(head.head) == 1
    assert head.head[0].count == 1
    head.check_everything()


@pytest.mark.parametrize("before", [0, 3 * MIB])
@pytest.mark.parametrize("size", [BODY_SIZE - 100, BODY_SIZE, BODY_SIZE + 5000, 3 * BODY_SIZE])
def test_a_batch_of_8_mib_or_more_goes_straight_to_a_body(before: int, size: int) -> None:
    head = Head()
    if before:
        head.write(before)
    head.write(size)
    assert head.head == []
    assert head.bodies[-1].count == 1
    assert len(head.bodies) == (2 if before else 1)
    head.check_everything()


def test_a_large_batch_between_small_ones_is_a_body_of_its_own() -> None:
    head = Head()
    head.write(1000, 2 * MIB, 9 * MIB, 1000, 12 * MIB, 500)
    assert [body.count for body in head.bodies] == [2, 1, 1, 1]
    assert [piece.count for piece in head.head] == [1]
    head.check_everything()


@pytest.mark.parametrize("bodies", [1, 2])
def test_n_times_8_mib_and_enough_more_is_written_once_and_leaves_no_head(bodies: int) -> None:
    """The seed: with LowWatermark <= delta < 8 MiB, N * 8 MiB + delta goes to bodies at once, with no compaction."""
    head = Head()
    plan = head.write(*[MIB] * (8 * bodies), *[MIB - 200] * 7)
    assert plan.piece is None
    assert len(plan.bodies) >= bodies + 1
    assert head.head == []
    assert head.written == sum(map(len, head.arrived))
    head.check_everything()


sizes = st.sampled_from([81, 150, 1000, 1990, 2100, 30_000, 127_000, 140_000])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(sizes, min_size=1, max_size=4), min_size=1, max_size=40), st.sampled_from([500, 20_000, 300_000, MIB]))
def test_every_plan_keeps_the_bytes_and_the_offsets(cycles: list[list[int]], low_watermark: int) -> None:
    head = Head(low_watermark)
    for cycle in cycles:
        head.write(*cycle)
    head.check_everything()
    assert len(head.head) <= PIECES_MAX


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(sizes, min_size=1, max_size=4), st.sampled_from([1000, 128 << 10, MIB])), min_size=1))
def test_bodies_may_become_smaller_or_larger_at_any_time(cycles: list[tuple[list[int], int]]) -> None:
    head = Head()
    for cycle, body_bytes in cycles:
        head.write(*cycle, body_bytes=body_bytes)
    head.check_everything()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([1000, MIB, 3 * MIB, 5 * MIB, BODY_SIZE - 79, BODY_SIZE, 9 * MIB]), min_size=1, max_size=5))
def test_every_plan_for_large_batches_keeps_the_bytes_and_the_offsets(cycle: list[int]) -> None:
    head = Head()
    head.write(*cycle)
    head.write(3 * MIB, 2 * MIB)
    head.check_everything()
