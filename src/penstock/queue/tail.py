"""The open end of a partition: a piece of the head that grows with each small append, until it is large enough to be closed."""

from __future__ import annotations

from penstock.kernels.log_bytes import copy_into, grown
from penstock.queue.piece import MARK_EVERY, Marks, Piece

TAIL_BYTES_MAX = 128 << 10
_ROOM_MIN = 4 << 10


class Tail(Piece):
    """A piece that grows. Its room is taken in doubling steps and never shrinks or moves under a reader: what was read from it
    stays as it is."""

    __slots__ = ("_marked_at", "_room", "size_max")

    def __init__(self, first_offset: int) -> None:
        self._room = bytearray(_ROOM_MIN)
        self._marked_at = -MARK_EVERY  # the byte of its last mark
        self.size_max = TAIL_BYTES_MAX  # what it may grow to, unless its first append is larger
        super().__init__(first_offset, 0, [memoryview(self._room)[:0]], Marks(), (0, -1))

    @classmethod
    def after(cls, piece: Piece, start: int) -> Tail:
        """The batches of a piece from a byte on."""
        parsed = Piece.parse(b"".join(piece.cut(start, piece.size)), piece.next_offset_at(start), 0)
        tail = cls(parsed.first_offset)
        marks = zip(parsed.marks.offsets, parsed.marks.positions, parsed.marks.latest, strict=True)
        count = piece.next_offset - parsed.first_offset
        tail.extend(bytes(parsed.buffers[0]), count, parsed.hidden, parsed.min_timestamp, parsed.max_timestamp, list(marks))
        return tail

    def extend(  # noqa: PLR0917 - compiled, keywords make it slower
        self, data: bytes, count: int, hidden: int, earliest: int, latest: int, marks: list[tuple[int, int, int]]
    ) -> None:
        """Add batches with so many offsets, `hidden` of them without a message, and timestamps between two. `marks` are those of
        each batch: its first offset, where in the data it begins, and its latest timestamp."""
        size = self.size
        end = size + len(data)
        if end > len(self._room):
            self._room = grown(self._room, size, max(end, min(2 * len(self._room), TAIL_BYTES_MAX)))
        copy_into(self._room, size, data)
        self.buffers[0] = memoryview(self._room)[:end]
        if size:
            self.min_timestamp = min(self.min_timestamp, earliest)
            self.max_timestamp = max(self.max_timestamp, latest)
        else:
            self.min_timestamp, self.max_timestamp = earliest, latest
        marked = self.marks.latest
        for offset, position, timestamp in marks:
            # Most batches need no mark of their own; of these, every one comes by here.
            if size + position - self._marked_at >= MARK_EVERY:
                self.marks.add(offset, size + position, timestamp)
                self._marked_at = size + position
            elif timestamp > marked[-1]:
                marked[-1] = timestamp
        self.size = end
        self.count += count
        self.hidden += hidden
