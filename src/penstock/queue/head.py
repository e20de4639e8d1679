"""The head of a partition: its latest batches, in pieces that have keys, and what becomes of these as more get keys. Pure.

Pieces stand in levels by size. When a level has gathered enough to be a piece of the next one, with what has just arrived, it is
rewritten as that: a byte is rewritten once per level at most, no piece stands behind one of a lower level, and they stay few.
From 64 KiB up nothing is rewritten any more: at the low watermark the head becomes a body blob that refers to the pieces as they
lie. Behind them stand the appends that are in the log only; they get keys with the next piece that does.

     level      0          1          2           3
     piece    < 1 KiB   < 16 KiB   < 64 KiB   < low watermark      -> body, up to 8 MiB, or segment.bytes
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from penstock.queue.batch import span_at
from penstock.queue.piece import Marks, Piece

LEVELS = (1 << 10, 16 << 10, 64 << 10)
BODY_SIZE = 8 << 20
LOW_WATERMARK = 6 << 20
_SIZE = attrgetter("size")


class HeadPlan(NamedTuple):
    """What a write does to the head.

    `replaced` old pieces at the end of the head go. `bodies` are runs of pieces, in order, that each become a body blob; in each,
    pieces that are not old are written. `piece` is written as the new last piece of the head, if there is one.
    """

    replaced: int
    bodies: tuple[tuple[Piece, ...], ...]
    piece: Piece | None


def data_end_of(head: list[Piece], end_offset: int) -> int:
    """The offset after the last message of a head, behind which there are only markers; without a head, that is not known, and
    there may be one up to the end."""
    for piece in reversed(head):
        if piece.hidden < piece.count:
            at, next_visible = 0, piece.next_offset
            while piece.hidden and at < piece.size:
                if not piece.count_hidden(at, piece.batch_end(at)):
                    next_visible = piece.next_offset_at(piece.batch_end(at))
                at = piece.batch_end(at)
            return next_visible
    return head[0].first_offset if head else end_offset


def watermark_for(low_watermark: int, body_bytes: int | None) -> int:
    """At how many bytes the head becomes a body, where bodies have at most so many bytes: 8 MiB unless it is said."""
    return min(low_watermark, max((BODY_SIZE if body_bytes is None else body_bytes) * LOW_WATERMARK // BODY_SIZE, 1))


def plan_write(head: list[Piece], arrived: Piece, low_watermark: int = LOW_WATERMARK, body_bytes: int | None = None) -> HeadPlan:
    """How the head takes a piece that has just arrived, where bodies have at most so many bytes: 8 MiB unless it is said."""
    body_bytes = BODY_SIZE if body_bytes is None else body_bytes
    low_watermark = watermark_for(low_watermark, body_bytes)
    held = sum(map(_SIZE, head))
    if held + arrived.size < low_watermark:
        merged = _merge_levels(head, arrived)
        return HeadPlan(len(merged) - 1, (), Piece.joined(merged).rewritten() if len(merged) > 1 else arrived)
    # A head that grew while bodies were allowed to be larger becomes one body all the same: its pieces are never split.
    bodies, rest = _cut_bodies([*head, arrived], low_watermark, max(body_bytes, held))
    return HeadPlan(len(head), bodies, rest)


def _merge_levels(head: list[Piece], arrived: Piece) -> list[Piece]:
    """The arrived piece, and those at the end of the head that are rewritten with it."""
    size = arrived.size
    first = len(head)
    for border in LEVELS:
        # What stands at the end of the head below this border is the level that the new piece joins, or passes and takes along.
        begin, total = first, size
        while begin and (below := head[begin - 1].size) < border:
            total += below
            begin -= 1
        if total < border:
            break
        first, size = begin, total
    return [*head[first:], arrived]


def _cut_bodies(pieces: list[Piece], low_watermark: int, body_bytes: int) -> tuple[tuple[tuple[Piece, ...], ...], Piece | None]:
    """Runs of pieces for bodies of at most so many bytes each, and what is left for the head."""
    bodies: list[tuple[Piece, ...]] = []
    run: list[Piece] = []
    size = 0
    waiting = list(reversed(pieces))
    while waiting:
        piece = waiting.pop()
        if size + piece.size <= body_bytes:
            run.append(piece)
            size += piece.size
            continue
        first, second = _split(piece, body_bytes - size)
        if first is not None:
            run.append(first)
            size += first.size
        if run:
            bodies.append(tuple(run))
            run, size = [], 0
        if second is not None:
            if first is None and second.size > body_bytes and span_at(second.buffers[0], 0).size >= body_bytes:
                # A single batch larger than a body is a body of its own.
                large, second = _split(second, span_at(second.buffers[0], 0).size)
                if large is not None:
                    bodies.append((large,))
            if second is not None:
                waiting.append(second)
    if size >= low_watermark:
        bodies.append(tuple(run))
        return tuple(bodies), None
    assert len(run) <= 1, "only what has just arrived can be left over"
    return tuple(bodies), run[0] if run else None


def _split(piece: Piece, limit: int) -> tuple[Piece | None, Piece | None]:
    """The batches of a piece that fit in `limit` bytes, and the others."""
    end = at = piece.marks.last_upto(limit)
    while at < piece.size:
        at = piece.batch_end(at)
        if at > limit:
            break
        end = at
    if end == 0:
        return None, piece
    if end == piece.size:
        return piece, None
    middle = piece.next_offset_at(end)
    first = _part(piece, 0, end, piece.first_offset, middle)
    second = _part(piece, end, piece.size, middle, piece.next_offset)
    return first, second


def _part(piece: Piece, start: int, end: int, first_offset: int, next_offset: int) -> Piece:
    marks = Marks()
    stamps: list[int] = []
    for offset, position, latest in zip(piece.marks.offsets, piece.marks.positions, piece.marks.latest, strict=True):
        if start <= position < end:
            marks.add(offset, position - start, latest)
            stamps.append(latest)
    if not marks.offsets or marks.positions[0] != 0:
        return Piece.parse(b"".join(piece.cut(start, end)), first_offset, next_offset - first_offset)
    # Timestamps of a stretch that the cut divides are those of all of it: never too early, perhaps too late.
    stretch = (piece.min_timestamp, max(stamps))
    hidden = piece.count_hidden(start, end)
    return Piece(first_offset, next_offset - first_offset, piece.cut(start, end), marks, stretch, hidden=hidden)
