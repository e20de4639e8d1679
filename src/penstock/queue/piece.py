"""A run of stored batches in memory, and the marks by which an offset or a time is found in it without reading all of it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from struct import Struct

from penstock.blob import Buffer
from penstock.queue.batch import max_timestamp_at, span_at
from penstock.queue.errors import InvalidBatchError

MARK_EVERY = 4096
BUFFER_BYTES = 1 << 20  # what is stored together at most, unless a single batch is larger

_MARK = Struct(">QIq")


class Marks:
    """Every few kilobytes of a run of batches: which offset begins there, at which byte, and the latest timestamp until the next
    mark."""

    __slots__ = ("latest", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.positions = array("I")
        self.latest = array("q")

    def add(self, offset: int, position: int, timestamp: int) -> None:
        """A batch begins at this byte."""
        if not self.offsets or position - self.positions[-1] >= MARK_EVERY:
            self.offsets.append(offset)
            self.positions.append(position)
            self.latest.append(timestamp)
        elif timestamp > self.latest[-1]:
            self.latest[-1] = timestamp

    def extend(self, other: Marks, shift: int) -> None:
        """The marks of a run that follows, whose first byte is at `shift`."""
        for offset, position, timestamp in zip(other.offsets, other.positions, other.latest, strict=True):
            self.add(offset, position + shift, timestamp)

    def position_of(self, offset: int) -> int:
        """A byte at or before the batch that holds this offset."""
        return self.positions[max(bisect_right(self.offsets, offset) - 1, 0)]

    def last_upto(self, position: int) -> int:
        """The last mark at or before a byte."""
        return self.positions[max(bisect_right(self.positions, position) - 1, 0)]

    def end_within(self, start: int, limit: int, size: int) -> int:
        """The last mark at most `limit` bytes after `start`, or the first after it if there is none."""
        if start + limit >= size:
            return size
        at = bisect_right(self.positions, start + limit) - 1
        if at >= 0 and self.positions[at] > start:
            return self.positions[at]
        after = bisect_right(self.positions, start)
        return self.positions[after] if after < len(self.positions) else size

    def first_since(self, timestamp: int) -> int | None:
        """The byte from which on a batch with this timestamp or a later one is found."""
        for position, latest in zip(self.positions, self.latest, strict=True):
            if latest >= timestamp:
                return position
        return None

    def pack(self) -> bytes:
        """The stored form."""
        rows = zip(self.offsets, self.positions, self.latest, strict=True)
        return b"".join(_MARK.pack(*row) for row in rows)

    @classmethod
    def unpack(cls, raw: Buffer) -> Marks:
        """The marks whose stored form is `raw`."""
        marks = cls()
        for offset, position, timestamp in _MARK.iter_unpack(raw):
            marks.offsets.append(offset)
            marks.positions.append(position)
            marks.latest.append(timestamp)
        return marks


class Piece:
    """A run of batches held in memory. `data` may be in several buffers, each of whole batches."""

    __slots__ = ("buffers", "count", "first_offset", "marks", "max_timestamp", "min_timestamp", "size", "starts")

    def __init__(self, first_offset: int, count: int, buffers: list[Buffer], marks: Marks, timestamps: tuple[int, int]) -> None:
        self.first_offset = first_offset
        self.count = count
        self.buffers = buffers
        self.marks = marks
        self.min_timestamp, self.max_timestamp = timestamps
        self.starts: list[int] = []
        self.size = 0
        for buffer in buffers:
            self.starts.append(self.size)
            self.size += len(buffer)

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.first_offset + self.count

    @classmethod
    def parse(cls, data: Buffer, first_offset: int, count: int) -> Piece:
        """A run of batches as it was stored, its marks found by walking it."""
        marks = Marks()
        at = 0
        stamps: list[int] = []
        while at < len(data):
            span = span_at(data, at)
            stamps.append(max_timestamp_at(data, at))
            marks.add(span.base_offset, at, stamps[-1])
            at += span.size
        if at != len(data):
            raise InvalidBatchError(f"the run of batches from offset {first_offset} does not end where its last batch does")
        return cls(first_offset, count, [data], marks, (min(stamps), max(stamps)))

    @classmethod
    def joined(cls, pieces: Iterable[Piece]) -> Piece:
        """Consecutive pieces as one, in the buffers they are in."""
        pieces = list(pieces)
        if len(pieces) == 1:
            return pieces[0]
        marks = Marks()
        size = 0
        for piece in pieces:
            marks.extend(piece.marks, size)
            size += piece.size
        buffers = [buffer for piece in pieces for buffer in piece.buffers]
        stamps = (min(piece.min_timestamp for piece in pieces), max(piece.max_timestamp for piece in pieces))
        return cls(pieces[0].first_offset, sum(piece.count for piece in pieces), buffers, marks, stamps)

    def rewritten(self) -> Piece:
        """The same with its small buffers joined, as it is stored anew; large ones stay as they are."""
        groups: list[list[Buffer]] = []
        size = 0
        for buffer in self.buffers:
            if not groups or size + len(buffer) > BUFFER_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(buffer)
            size += len(buffer)
        buffers = [group[0] if len(group) == 1 else b"".join(group) for group in groups]
        stamps = (self.min_timestamp, self.max_timestamp)
        return Piece(self.first_offset, self.count, buffers, self.marks, stamps)

    def find(self, offset: int) -> int:
        """The byte at which the batch with this offset begins."""
        at = self.marks.position_of(offset)
        while True:
            buffer, inside = self._at(at)
            span = span_at(buffer, inside)
            if offset < span.next_offset:
                return at
            at += span.size

    def cut(self, start: int, end: int) -> list[Buffer]:
        """The bytes from one to the other, as views."""
        found: list[Buffer] = []
        for begin, buffer in zip(self.starts, self.buffers, strict=True):
            low, high = max(start - begin, 0), min(end - begin, len(buffer))
            if low < high:
                found.append(buffer if high - low == len(buffer) else memoryview(buffer)[low:high])
        return found

    def batch_end(self, start: int) -> int:
        """The end of the batch that begins at this byte."""
        buffer, inside = self._at(start)
        return start + span_at(buffer, inside).size

    def next_offset_at(self, end: int) -> int:
        """The offset that follows the batches before this byte."""
        if end >= self.size:
            return self.next_offset
        buffer, inside = self._at(end)
        return span_at(buffer, inside).base_offset

    def latest_at(self, start: int) -> int:
        """The latest timestamp of the batch that begins at this byte."""
        buffer, inside = self._at(start)
        return max_timestamp_at(buffer, inside)

    def first_since(self, timestamp: int) -> int | None:
        """The byte at which the first batch with this timestamp or a later one begins."""
        at = self.marks.first_since(timestamp)
        while at is not None and at < self.size:
            buffer, inside = self._at(at)
            if max_timestamp_at(buffer, inside) >= timestamp:
                return at
            at += span_at(buffer, inside).size
        return None

    def _at(self, position: int) -> tuple[Buffer, int]:
        which = bisect_right(self.starts, position) - 1
        return self.buffers[which], position - self.starts[which]
