"""Batches cut out of pieces by the kernel, compiled and as plain Python, against a plain walk over all batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import CorruptionError
from penstock.core.record_format import framed, packed_record
from penstock.kernels import batch_cut
from penstock.queue.piece import Gathered, Marks, Piece
from tests.kernel_forms import uncompiled

FORMS: dict[str, Any] = {"as installed": batch_cut, "uncompiled": uncompiled("batch_cut")}


class Stored(NamedTuple):
    data: bytes
    first: int
    next: int


def _batch(offset: int, count: int, value_bytes: int) -> bytes:
    records = b"".join(packed_record(delta, bytes(value_bytes)) for delta in range(count))
    return framed(records, count, (0, 0), base_offset=offset)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Piece], list[Stored]]:
    """Pieces that follow one another, and all batches in them; some have gaps between them, as compaction leaves them."""
    pieces: list[Piece] = []
    batches: list[Stored] = []
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 3))):
        first_offset, gathered, marks, position = offset, Gathered(), Marks(), 0
        for _ in range(draw(st.integers(1, 12))):
            offset += draw(st.sampled_from([0, 0, 0, 2])) if position else 0
            count = draw(st.integers(1, 3))
            data = _batch(offset, count, draw(st.sampled_from([1, 400, 3000, 9000])))
            gathered.add_batch(data[:16], memoryview(data))
            marks.add(offset, position, 0)
            position += len(data)
            batches.append(Stored(data, offset, offset + count))
            offset += count
        pieces.append(Piece(first_offset, offset - first_offset, gathered.buffers(), marks, (0, 0)))
    return pieces, batches


def _expected(batches: list[Stored], offset: int, size_max: int, until: int, *, at_least_one: bool) -> tuple[bytes, int]:
    """The bytes, and the offset after them."""
    wanted = [batch for batch in batches if batch.next > offset]
    if wanted[0].first >= until:
        return b"", until
    data = b""
    for number, batch in enumerate(wanted):
        is_allowed = not number and at_least_one
        if batch.first >= until or (len(data) + len(batch.data) > size_max and not is_allowed):
            return data, batch.first
        data += batch.data
    return data, wanted[-1].next


@given(logs(), st.data())
def test_a_cut_has_the_batches_that_a_walk_finds(log: tuple[list[Piece], list[Stored]], data: st.DataObject) -> None:
    pieces, batches = log
    offset = data.draw(st.integers(pieces[0].first_offset, pieces[-1].next_offset - 1))
    until = data.draw(st.integers(offset + 1, pieces[-1].next_offset + 2))
    size_max = data.draw(st.sampled_from([0, 1, 500, 4096, 10_000, 30_000, 1 << 20]))
    at_least_one = data.draw(st.booleans())
    expected, next_offset = _expected(batches, offset, size_max, until, at_least_one=at_least_one)
    for form in FORMS.values():
        buffers, size, reached = form.cut_batches(pieces, offset, size_max, until, at_least_one)
        assert b"".join(buffers) == expected
        assert size == len(expected)
        assert reached == next_offset


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_piece_that_is_not_what_it_says_is_reported(form: Any) -> None:
    data = bytearray(_batch(0, 1, 10))
    piece = Piece.parse(bytes(data), 0, 1)
    piece.count = 5
    with pytest.raises(CorruptionError):
        form.cut_batches([piece], 3, 1000, 5, True)
    data[8:12] = bytes(4)
    piece.buffers = [bytes(data)]
    with pytest.raises(CorruptionError):
        form.cut_batches([piece], 0, 1000, 1, True)
    piece.buffers = [bytes(data[:40])]
    with pytest.raises(CorruptionError):
        form.cut_batches([piece], 0, 1000, 1, True)
