"""A run of stored batches in memory, and the marks by which an offset or a time is found in it without reading all of it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from struct import Struct

from penstock.blob import Buffer
from penstock.core.errors import CorruptionError
from penstock.core.record_format import HEADER_SIZE
from penstock.queue.batch import SPAN, is_control_at, max_timestamp_at, span_at
from penstock.queue.errors import InvalidBatchError

MARK_EVERY = 4096
BUFFER_BYTES = 1 << 20  # what is joined into one buffer at most, unless a single batch is larger
JOIN_MAX = 8 << 10  # a smaller buffer is copied for less than it costs to carry it along by itself
PINNED_MAX = 4  # times its own size is what a piece may keep from being freed, being views of larger buffers

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
        """Note a batch that begins at this byte."""
        if not self.offsets or position - self.positions[-1] >= MARK_EVERY:
            self.offsets.append(offset)
            self.positions.append(position)
            self.latest.append(timestamp)
        elif timestamp > self.latest[-1]:
            self.latest[-1] = timestamp

    def extend(self, other: Marks, shift: int) -> None:
        """The marks of a run that follows, whose first byte is at `shift`."""
        begin = 0
        while begin < len(other.offsets) and self.offsets and other.positions[begin] + shift - self.positions[-1] < MARK_EVERY:
            self.latest[-1] = max(self.latest[-1], other.latest[begin])
            begin += 1
        # From here on they are far enough from each other, as they were among themselves.
        self.offsets += other.offsets[begin:]
        self.positions.extend(position + shift for position in other.positions[begin:])
        self.latest += other.latest[begin:]

    def repeat_last(self) -> None:
        """Have the last mark twice."""
        self.offsets.append(self.offsets[-1])
        self.positions.append(self.positions[-1])
        self.latest.append(self.latest[-1])

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

    @property
    def packed_size(self) -> int:
        """Bytes of the stored form."""
        return len(self.offsets) * _MARK.size

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


class Gathered:
    """Buffers as they come: neighbours that are small are joined, large ones stay as they are."""

    __slots__ = ("_buffers", "_small", "_small_bytes")

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._small: list[Buffer] = []
        self._small_bytes = 0

    def add(self, buffer: Buffer) -> None:
        """A buffer that follows."""
        if len(buffer) < JOIN_MAX:
            self.add_small((buffer,), len(buffer))
            return
        self._join()
        self._buffers.append(buffer)

    def add_batch(self, prefix: bytes, data: memoryview) -> memoryview | None:
        """A batch that follows, with another prefix than it came with. If it is large, its records stay as they were received:
        returns them."""
        if len(data) - HEADER_SIZE < JOIN_MAX:
            self.add_small((prefix, data[len(prefix) :]), len(data))
            return None
        self.add_small((prefix, data[len(prefix) : HEADER_SIZE]), HEADER_SIZE)
        self._join()
        records = data[HEADER_SIZE:]
        self._buffers.append(records)
        return records

    def add_small(self, buffers: tuple[Buffer, ...], size: int) -> None:
        """Small buffers of so many bytes that follow, and stay together."""
        if self._small_bytes + size > BUFFER_BYTES:
            self._join()
        self._small += buffers
        self._small_bytes += size

    def buffers(self) -> list[Buffer]:
        """All of them so far."""
        self._join()
        return self._buffers

    def _join(self) -> None:
        if self._small:
            self._buffers.append(self._small[0] if len(self._small) == 1 else b"".join(self._small))
            self._small = []
            self._small_bytes = 0


class Piece:
    """A run of batches held in memory, in buffers that follow one another. The header of a batch is within one of them."""

    __slots__ = ("buffers", "count", "first_offset", "hidden", "marks", "max_timestamp", "min_timestamp", "size", "starts")

    def __init__(
        self, first_offset: int, count: int, buffers: list[Buffer], marks: Marks, timestamps: tuple[int, int], *, hidden: int = 0
    ) -> None:
        self.first_offset = first_offset
        self.count = count
        self.hidden = hidden  # offsets that hold no message
        self.buffers = buffers
        self.marks = marks
        self.min_timestamp, self.max_timestamp = timestamps
        if len(buffers) == 1:
            self.starts = [0]
            self.size = len(buffers[0])
        else:
            self.starts = list(accumulate(map(len, buffers), initial=0))
            self.size = self.starts.pop()

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.first_offset + self.count

    @property
    def held(self) -> int:
        """How many messages it holds."""
        return self.count - max(self.hidden, 0)

    @classmethod
    def parse(cls, data: Buffer, first_offset: int, count: int) -> Piece:
        """A run of batches as it was stored, its marks found by walking it."""
        marks = Marks()
        at = 0
        stamps: list[int] = []
        hidden = 0
        while at < len(data):
            span = span_at(data, at)
            if is_control_at(data, at):
                hidden += span.next_offset - span.base_offset
            stamps.append(max_timestamp_at(data, at))
            marks.add(span.base_offset, at, stamps[-1])
            at += span.size
        if at != len(data):
            raise InvalidBatchError(f"the run of batches from offset {first_offset} does not end where its last batch does")
        return cls(first_offset, count, [data], marks, (min(stamps), max(stamps)), hidden=hidden)

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
        count, hidden = sum(piece.count for piece in pieces), sum(piece.hidden for piece in pieces)
        return cls(pieces[0].first_offset, count, buffers, marks, stamps, hidden=hidden)

    def rewritten(self) -> Piece:
        """A copy with small buffers joined, for storing it again; large buffers are kept as they are."""
        gathered = Gathered()
        for buffer in self.buffers:
            gathered.add(buffer)
        return self._in(gathered.buffers())

    def kept(self) -> Piece:
        """The same as it can be held for long: in buffers of its own if its bytes are views of much larger ones."""
        if len(self.buffers) == 1 and isinstance(self.buffers[0], bytes):
            return self
        pinned: dict[int, int] = {}
        for buffer in self.buffers:
            owner = buffer.obj if isinstance(buffer, memoryview) else buffer
            pinned[id(owner)] = memoryview(owner).nbytes
        if sum(pinned.values()) <= PINNED_MAX * self.size:
            return self
        return self._in([b"".join(self.buffers)])

    def _in(self, buffers: list[Buffer]) -> Piece:
        return Piece(
            self.first_offset, self.count, buffers, self.marks, (self.min_timestamp, self.max_timestamp), hidden=self.hidden
        )

    def find(self, offset: int) -> int:
        """The byte at which the batch with this offset begins."""
        at = self.marks.position_of(offset)
        while True:
            buffer, inside = self._at(at)
            begin = at - inside
            # Most batches lie in the buffer of the one before: there is a mark every few kilobytes, and a hundred small batches
            # may be in between.
            while inside < len(buffer):
                base_offset, length, last_delta = SPAN.unpack_from(buffer, inside)
                if offset <= base_offset + last_delta:
                    return begin + inside
                inside += length + 12
            at = begin + inside
            if at >= self.size:
                raise CorruptionError(f"offset {offset} is in no batch of the piece {self.first_offset} to {self.next_offset}")

    def cut(self, start: int, end: int) -> list[Buffer]:
        """The bytes from one to the other, as views."""
        found: list[Buffer] = []
        for which in range(bisect_right(self.starts, start) - 1, bisect_left(self.starts, end)):
            begin, buffer = self.starts[which], self.buffers[which]
            low, high = max(start - begin, 0), min(end - begin, len(buffer))
            if low < high:
                found.append(buffer if high - low == len(buffer) else memoryview(buffer)[low:high])
        return found

    def batch_with(self, offset: int) -> memoryview:
        """The batch that holds an offset, or follows it."""
        start = self.find(offset)
        buffer, inside = self._at(start)
        end = inside + span_at(buffer, inside).size
        return memoryview(buffer)[inside:end] if end <= len(buffer) else memoryview(self.batch_at(start))

    def batch_at(self, start: int) -> Buffer:
        """The batch that begins at this byte."""
        found = self.cut(start, self.batch_end(start))
        return found[0] if len(found) == 1 else b"".join(found)

    def batch_end(self, start: int) -> int:
        """The end of the batch that begins at this byte."""
        buffer, inside = self._at(start)
        return start + span_at(buffer, inside).size

    def end_within(self, start: int, limit: int) -> int:
        """Where to cut so that the batches from `start` on are at most `limit` bytes; the first of them is there in any case."""
        end = self.marks.end_within(start, limit, self.size)
        if end - start <= limit:
            return end
        end = after = self.batch_end(start)
        while after - start <= limit:
            end = after
            if end == self.size:
                break
            after = self.batch_end(end)
        return end

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

    def batch_since(self, timestamp: int, offset: int) -> tuple[int, Buffer] | None:
        """The first batch with this timestamp or a later one that does not end before an offset, and its base offset."""
        at = self.first_since(timestamp)
        while at is not None and at < self.size:
            end = self.batch_end(at)
            if self.next_offset_at(end) > offset and self.latest_at(at) >= timestamp:
                return self.next_offset_at(at), self.batch_at(at)
            at = end
        return None

    def count_hidden(self, start: int, end: int) -> int:
        """How many offsets between two bytes hold no message."""
        found = 0
        while self.hidden and start < end:
            buffer, inside = self._at(start)
            span = span_at(buffer, inside)
            if is_control_at(buffer, inside):
                found += span.next_offset - span.base_offset
            start += span.size
        return found

    def _at(self, position: int) -> tuple[Buffer, int]:
        which = bisect_right(self.starts, position) - 1
        return self.buffers[which], position - self.starts[which]
