"""The body of a partition: large blobs, of which memory holds only place and size; their data is read on demand."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from penstock.blob import Buffer, FilePiece
from penstock.core.errors import CorruptionError, UnavailableError
from penstock.queue.cache import BlobCache
from penstock.queue.clean_state import CleanState
from penstock.queue.errors import BodyReplacedError
from penstock.queue.keys import BODY, UNCOUNTED, DataKey, Description, Meta, aborted_key, epoch_key, prefix
from penstock.queue.piece import Marks, Piece
from penstock.queue.transactions import Aborted
from penstock.tablet import Command, DeleteRange, KvTablet, Write

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
    hidden: int = UNCOUNTED  # offsets that hold no message

    @property
    def next_offset(self) -> int:
        """The offset after its last."""
        return self.first_offset + self.messages

    @property
    def held(self) -> int:
        """How many messages it holds, or has room for if they were not counted."""
        return self.messages - max(self.hidden, 0)

    @property
    def key(self) -> bytes:
        """Its key in the tablet."""
        return DataKey(self.partition, self.first_offset, self.messages, BODY).pack()

    @property
    def description(self) -> Description:
        """What stands in front of its value."""
        return Description(self.size, self.marks_size, self.min_timestamp, self.max_timestamp, self.hidden)


class ReadResult(NamedTuple):
    """Whole batches from the one that holds the offset asked for, and where the partition stands."""

    batches: tuple[Buffer | FilePiece, ...]
    size: int
    next_offset: int
    start_offset: int
    end_offset: int
    stable_offset: int


class BodyChange(NamedTuple):
    """What changes in the tablet when a body takes the place of others: what makes it, aborted transactions of which nothing is
    left, and how far compaction has come then."""

    made_by: tuple[Command, ...] = ()
    forgotten: tuple[Aborted, ...] = ()
    clean: CleanState | None = None

    def commands(self, partition: int, gone: Sequence[Body]) -> tuple[Command, ...]:
        """All of it, for one request."""
        dropped = [body.key for body in gone]
        dropped += (aborted_key(partition, transaction.last_offset, transaction.producer_id) for transaction in self.forgotten)
        state = () if self.clean is None else (Write(prefix(b"k", partition), self.clean.pack()),)
        return (*(DeleteRange(key, key + b"\0") for key in dropped), *self.made_by, *state)


def cut_commands(partition: int, meta: Meta, gone: Iterable[bytes], first_epoch: int) -> tuple[Command, ...]:
    """The commands that move a partition's start: they delete the data before it and the metadata of that data."""
    aborted, epochs = prefix(b"a", partition), prefix(b"e", partition)
    return (
        Write(prefix(b"m", partition), meta.pack()),
        *(DeleteRange(key, key + b"\0") for key in gone),
        DeleteRange(aborted, aborted_key(partition, meta.start_offset, 0)),
        DeleteRange(epochs, epoch_key(partition, first_epoch)),
    )


class BodyReader:
    """Reads the bodies of a tablet's partitions, through the node's cache."""

    def __init__(self, tablet: KvTablet, cache: BlobCache) -> None:
        self._tablet = tablet
        self._cache = cache
        self._marks: OrderedDict[Hashable, Marks] = OrderedDict()  # of bodies that are read from their files
        self.damaged: dict[int, Body] = {}  # bodies that could not be read and never will be, by first offset

    def is_warm(self, body: Body) -> bool:
        """Whether the body is in memory."""
        return self.held(body) is not None

    def held(self, body: Body) -> Piece | None:
        """The body's batches if they are in memory."""
        return self._cache.get(self._cache_key(body))

    def remember(self, body: Body, piece: Piece) -> None:
        """Cache a body that was just made of pieces in memory, for consumers at the tail."""
        self._cache.put(self._cache_key(body), piece)

    def forget(self, body: Body) -> None:
        """Drop the body from the cache."""
        self.damaged.pop(body.first_offset, None)
        self._cache.drop(self._cache_key(body))

    async def piece(self, body: Body) -> Piece:
        """The body's batches, from the cache or the tablet."""
        cached = self.held(body)
        if cached is not None:
            return cached
        view = memoryview(await self._read(body, 0, body.size + body.marks_size))
        marks = Marks.unpack(view[body.size :])
        stamps = (body.min_timestamp, body.max_timestamp)
        piece = Piece(body.first_offset, body.messages, [view[: body.size]], marks, stamps, hidden=body.hidden)
        self.remember(body, piece)
        return piece

    async def data(self, body: Body) -> list[Buffer]:
        """Reads the body's batches from the cache or the tablet, without adding them to the cache. They stay in the buffers they
        are in: joining megabytes would delay the event loop."""
        cached = self._cache.get(self._cache_key(body))
        return [await self._read(body, 0, body.size)] if cached is None else cached.buffers

    async def files(
        self, body: Body, offset: int, limit: int, *, only_files: bool
    ) -> tuple[Sequence[Buffer | FilePiece], int] | None:
        """A stretch of a body as pieces of open files, from a mark to a mark, and the offset after it; None where there are no
        such files. Unless `only_files`, a stretch that would be longer than `limit` is read and cut between batches instead."""
        marks = await self._marks_of(body)
        start = marks.position_of(offset)
        end = marks.end_within(start, limit, body.size)
        if end - start > limit and not only_files:
            return await self._cut_stretch(body, marks, offset, limit)
        self._check_current(body)  # the marks may have been waited for
        pieces = self._tablet.pieces(body.key, start, end - start)
        if pieces is None:
            return None
        after = bisect_right(marks.positions, end - 1)
        return pieces, marks.offsets[after] if after < len(marks.offsets) else body.next_offset

    async def _cut_stretch(self, body: Body, marks: Marks, offset: int, limit: int) -> tuple[Sequence[Buffer], int]:
        """The batches from the one that holds `offset` up to the next mark: at least one, then up to `limit` bytes."""
        start = marks.position_of(offset)
        after = bisect_right(marks.positions, start)
        is_last = after == len(marks.positions)
        end, next_offset = (body.size, body.next_offset) if is_last else (marks.positions[after], marks.offsets[after])
        first_offset = marks.offsets[after - 1]
        piece = Piece.parse(await self._read(body, start, end - start), first_offset, next_offset - first_offset)
        begin = piece.find(offset)
        end = piece.end_within(begin, limit)
        return piece.cut(begin, end), piece.next_offset_at(end)

    async def _marks_of(self, body: Body) -> Marks:
        key = self._cache_key(body)
        marks = self._marks.get(key)
        if marks is None:
            marks = self._marks[key] = Marks.unpack(await self._read(body, body.size, body.marks_size))
            if len(self._marks) > MARKS_HELD:
                self._marks.popitem(last=False)
        return marks

    async def _read(self, body: Body, begin: int, length: int) -> Buffer:
        self._check_current(body)
        try:
            raw = await self._tablet.read(body.key, begin, length)
        except UnavailableError:
            self._check_current(body)
            raise
        except CorruptionError as error:
            self._check_current(body)
            raise self._damage(body, str(error)) from error
        if raw is None or len(raw) != length:
            raise self._damage(body, "its blob is not whole")
        return raw

    def _damage(self, body: Body, why: str) -> CorruptionError:
        self.damaged[body.first_offset] = body
        return CorruptionError(
            f"offsets {body.first_offset} to {body.next_offset - 1} of partition {body.partition} are damaged: {why}; "
            "penstock topic repair tells what is lost, and gives it up"
        )

    def _check_current(self, body: Body) -> None:
        """Raise BodyReplacedError if compaction has replaced this body under the same key: the description differs then."""
        if self._tablet.head(body.key) != body.description.pack():
            raise BodyReplacedError(f"the body at offset {body.first_offset} of partition {body.partition} is gone; read again")

    def _cache_key(self, body: Body) -> Hashable:
        return self._tablet.id, self._tablet.generation, *body
