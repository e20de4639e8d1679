"""What the disks of a group durably know of each other, so that a disk that lost writes or is an old copy is detected.

Each disk tells its sisters who it is and how far its log has come, whenever it pulls from them, and they keep that (integers
big-endian), in a record of its own kind in the log and in a frame of the checkpoint:

    MARK    order 1 | guid 16 | life 4 | chunk 4 | offset 4

A *life* begins when a disk has learned from a quorum what it must know: a wiped disk begins a new one, with a new guid. A disk
that opens in an earlier life, with another guid in the same life, or with a shorter log than it had told is not what it was: it
is an old copy, or it lost writes that it had called durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from penstock.core.errors import CorruptionError

_MARK = Struct(">B16sIII")
UNTOLD = (0, 0)
"""The place of a disk that syncs nothing: after a loss of power its log may be shorter, and the disk is as good as the others."""


class SisterMark(NamedTuple):
    """Who a disk is, and the place of the last record in its log that was durable when it said so."""

    order: int
    guid: bytes
    life: int = 0
    place: tuple[int, int] = UNTOLD


def went_back(now: SisterMark, known: SisterMark) -> bool:
    """Whether a disk that says this of itself is less than it was when it said `known`. On its first word to a sister after an
    opening a disk names the place where that opening found the end of its log."""
    if now.life != known.life:
        return now.life < known.life
    return now.guid != known.guid or UNTOLD < now.place < known.place


def encode_marks(marks: Iterable[SisterMark]) -> bytes:
    """The stored form of the marks, in order."""
    return b"".join(_MARK.pack(mark.order, mark.guid, mark.life, *mark.place) for mark in marks)


def decode_marks(raw: bytes | memoryview) -> Iterator[SisterMark]:
    """The marks whose stored form is `raw`."""
    if len(raw) % _MARK.size:
        raise CorruptionError(f"marks of sister disks have {len(raw)} bytes, which is no multiple of {_MARK.size}")
    for order, guid, life, chunk, offset in _MARK.iter_unpack(raw):
        yield SisterMark(order, guid, life, (chunk, offset))


class Sisters:
    """What one disk knows of the others. `marks` are those in its index, by order number; its own is there from its second life
    on, and before that its guid is the one it was made with."""

    def __init__(self, order: int, guid: bytes, marks: dict[int, SisterMark]) -> None:
        self._first = SisterMark(order, guid)
        self._marks = marks
        self.is_saved = True

    @property
    def own(self) -> SisterMark:
        """Who this disk is."""
        return self._marks.get(self._first.order, self._first)

    def begin_life(self, guid: bytes, life: int) -> None:
        """Start a new life of this disk."""
        self._marks[self._first.order] = SisterMark(self._first.order, guid, life)

    def hear(self, mark: SisterMark) -> SisterMark | None:
        """Note a sister's mark unless it is older than the known one. Returns the previous mark."""
        known = self._marks.get(mark.order)
        if known is None or (mark.life, mark.guid) != (known.life, known.guid):
            is_news = known is None or not went_back(mark, known)
        else:
            is_news = mark.place > known.place
        if is_news:
            self._marks[mark.order] = mark
            self.is_saved = False
        return known

    def known(self, order: int) -> SisterMark | None:
        """What is known of a sister."""
        return self._marks.get(order)

    def encode(self) -> bytes:
        """The stored form of all that is known."""
        return encode_marks(self._marks.values())
