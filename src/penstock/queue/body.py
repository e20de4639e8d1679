"""The body of a partition: large blobs that are remembered by their place and size, and read when someone asks."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

from penstock.blob import FilePiece
from penstock.core.errors import CorruptionError
from penstock.queue.cache import BlobCache
from penstock.queue.keys import BODY, DataKey
from penstock.queue.piece import Marks, Piece
from penstock.tablet import KvTablet

MARKS_HELD = 64


class Body(NamedTuple):
    """A body blob as the partition remembers it."""

    partition: int
    first_offset: int
    messages: int
    size: int
    marks_size: int
    min_timestamp: int
    max_timestamp: int

    @property
    def next_offset(self) -> int:
        """The offset after its last."""
        return self.first_offset + self.messages

    @property
    def key(self) -> bytes:
        """Its key in the tablet."""
        return DataKey(self.partition, self.first_offset, self.messages, BODY).pack()


class BodyReader:
    """Reads the bodies of a tablet's partitions, through the node's cache."""

    def __init__(self, tablet: KvTablet, cache: BlobCache) -> None:
        self._tablet = tablet
        self._cache = cache
        self._marks: OrderedDict[bytes, Marks] = OrderedDict()  # of bodies that are read from their files

    def is_warm(self, body: Body) -> bool:
        """Whether the body is in memory."""
        return self._cache.get(self._cache_key(body)) is not None

    def remember(self, body: Body, piece: Piece) -> None:
        """A body was just made of what is in memory: keep it for those who read at the tail."""
        self._cache.put(self._cache_key(body), piece)

    def forget(self, body: Body) -> None:
        """The body is gone."""
        self._cache.drop(self._cache_key(body))

    async def piece(self, body: Body) -> Piece:
        """The body's batches, from the cache or the tablet."""
        cached = self._cache.get(self._cache_key(body))
        if cached is not None:
            return cached
        raw = await self._tablet.read(body.key)
        if raw is None or len(raw) != body.size + body.marks_size:
            raise CorruptionError(f"body blob at offset {body.first_offset} of partition {body.partition} is not whole")
        view = memoryview(raw)
        marks = Marks.unpack(view[body.size :])
        stamps = (body.min_timestamp, body.max_timestamp)
        piece = Piece(body.first_offset, body.messages, [view[: body.size]], marks, stamps)
        self.remember(body, piece)
        return piece

    async def files(self, body: Body, offset: int, limit: int) -> tuple[list[FilePiece], int] | None:
        """A stretch of a body as pieces of open files, from a mark to a mark, and the offset after it; None where there are no
        such files."""
        marks = await self._marks_of(body)
        if marks is None:
            return None
        start = marks.position_of(offset)
        end = marks.end_within(start, limit, body.size)
        pieces = self._tablet.pieces(body.key, start, end - start)
        if pieces is None:
            return None
        after = bisect_right(marks.positions, end - 1)
        return pieces, marks.offsets[after] if after < len(marks.offsets) else body.next_offset

    async def _marks_of(self, body: Body) -> Marks | None:
        marks = self._marks.get(body.key)
        if marks is None:
            raw = await self._tablet.read(body.key, body.size, body.marks_size)
            if raw is None:
                return None
            marks = self._marks[body.key] = Marks.unpack(raw)
            if len(self._marks) > MARKS_HELD:
                self._marks.popitem(last=False)
        return marks

    def _cache_key(self, body: Body) -> tuple[int, int, int, int]:
        return self._tablet.id, self._tablet.generation, body.partition, body.first_offset
