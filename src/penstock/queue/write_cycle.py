"""One write cycle in the making: the batches it takes, the offsets they get, and all that changes with them in one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.blob import Buffer
from penstock.core.errors import PenstockError
from penstock.core.record_format import CONTROL, ORIGIN_MASK
from penstock.queue import keys
from penstock.queue.batch import Batch, prefix_for
from penstock.queue.body import Body
from penstock.queue.head import HeadPlan, plan_write
from penstock.queue.keys import HEAD, DataKey, Description
from penstock.queue.piece import Gathered, Marks, Piece
from penstock.queue.sources import SourceState, SourceWrite, after_write, known_offset
from penstock.queue.transactions import Transactions
from penstock.tablet import Command, Concat, DeleteRange, Write

# A piece of the head that is no longer is kept in the tablet's log: a lone small message costs no blob of its own.
INLINE_MAX = 4 << 10


class WriteResult(NamedTuple):
    """Where a batch is; the offset of a duplicate is -1 if it is not known any more."""

    base_offset: int
    duplicate: bool


class WriteOutcome(Protocol):
    """Receives the result of a write, as a future does. Its methods must not raise: other writes wait behind this one."""

    def done(self) -> bool:
        """Whether the result was delivered already, or the caller was cancelled."""
        ...

    def set_result(self, result: WriteResult, /) -> None:
        """The write is durable."""
        ...

    def set_exception(self, exception: PenstockError, /) -> None:
        """The write was refused, or may not be durable."""
        ...


class WaitingWrite(NamedTuple):
    """A write in the queue of a partition."""

    batch: Batch
    source: SourceWrite | None
    done: WriteOutcome


class WriteCycle:
    """Takes writes one by one, then says what to commit. Changes nothing of the partition itself."""

    def __init__(
        self,
        number: int,
        end_offset: int,
        leader_epoch: int,
        *,
        transactions: Transactions,
        source_of: Callable[[bytes], SourceState | None],
    ) -> None:
        self._number = number
        self._first_offset = end_offset
        self._leader_epoch = leader_epoch
        self._source_of = source_of
        self.transactions = transactions
        self.next_offset = end_offset
        self.size = 0  # bytes to write
        self.taken_bytes = 0  # of all writes taken in, also those that were wrong or known
        self.waiting: list[tuple[WaitingWrite, WriteResult]] = []
        self._sources: dict[bytes, SourceState] = {}
        self._changes: dict[bytes, bytes | None] = {}
        self._gathered = Gathered()  # joined as it fills, while the cycle before this one is on its way to the disk
        self._marks = Marks()
        self._stamps: list[int] = []
        self.first_own: int | None = None  # the offset of its first batch that another gateway than Kafka's has written
        self.hidden = 0  # offsets that markers take
        self.data_end: int | None = None  # the offset after the last message

    @property
    def messages(self) -> int:
        """How many messages it writes."""
        return self.next_offset - self._first_offset

    def follow(self, source_of: Callable[[bytes], SourceState | None]) -> None:
        """The cycle before this one is durable: what its sources have written is told by the partition from now on."""
        self._source_of = source_of

    def state_of(self, source: bytes) -> SourceState | None:
        """The last writes of a source, as they will be once this cycle is durable."""
        return self._sources.get(source) or self._source_of(source)

    def take(self, waiting: WaitingWrite) -> None:
        """Take a write in; one that is wrong fails at once and alone."""
        batch, source, done = waiting
        self.taken_bytes += len(batch.data)
        # A write whose caller was cancelled is taken all the same: left out, the next one of its source could overtake it.
        try:
            known = None if source is None else self._known(source, batch)
            if known is None:
                for key, value in self.transactions.note(self._number, batch, self.next_offset):
                    self._changes[key] = value
        except PenstockError as error:
            if not done.done():
                done.set_exception(error)
            return
        if known is not None:
            self.waiting.append((waiting, WriteResult(known, duplicate=True)))
            return
        if source is not None:
            state = after_write(self.state_of(source.source), source, batch.messages, self.next_offset)
            self._sources[source.source] = state
        self.waiting.append((waiting, WriteResult(self.next_offset, duplicate=False)))
        self._marks.add(self.next_offset, self.size, batch.max_timestamp)
        self._gathered.add_batch(prefix_for(batch, self.next_offset, self._leader_epoch), batch.data)
        self._stamps.append(batch.max_timestamp)
        if batch.attributes & ORIGIN_MASK and self.first_own is None:
            self.first_own = self.next_offset
        self.size += len(batch.data)
        self.next_offset += batch.messages
        if batch.attributes & CONTROL:
            self.hidden += batch.messages
        else:
            self.data_end = self.next_offset

    def plan(self, head: list[Piece], low_watermark: int, body_bytes: int) -> HeadPlan | None:
        """What the cycle does to the head; None if it has nothing to write."""
        if not self.size:
            return None
        stamps = (min(self._stamps), max(self._stamps))
        arrived = Piece(self._first_offset, self.messages, self._gathered.buffers(), self._marks, stamps, hidden=self.hidden)
        return plan_write(head, arrived, low_watermark, body_bytes)

    def commands(self, head: list[Piece], plan: HeadPlan) -> tuple[Command, ...]:
        """All that changes with this cycle."""
        replaced = head[len(head) - plan.replaced :]
        old = {id(piece): head_key(self._number, piece) for piece in replaced}
        found: list[Command] = []
        for run in plan.bodies:
            found += body_commands(self._number, run, old)
        if not plan.bodies:
            found += (DeleteRange(key, key + b"\0") for key in old.values())
        if plan.piece is not None:
            piece = plan.piece
            description = Description(piece.size, 0, piece.min_timestamp, piece.max_timestamp)
            found.append(Write(head_key(self._number, piece), _content(piece), description.pack(), INLINE_MAX))
        source_prefix = keys.prefix(b"s", self._number)
        found += (Write(source_prefix + source, state.pack()) for source, state in self._sources.items())
        for key, value in self._changes.items():
            found.append(DeleteRange(key, key + b"\0") if value is None else Write(key, value))
        return tuple(found)

    def acknowledge(self) -> None:
        """Tell the writers where their batches are."""
        for waiting, result in self.waiting:
            if not waiting.done.done():
                waiting.done.set_result(result)

    def fail(self, error: PenstockError) -> None:
        """Tell the writers that nothing was written."""
        for waiting, _ in self.waiting:
            if not waiting.done.done():
                waiting.done.set_exception(error)

    def _known(self, source: SourceWrite, batch: Batch) -> int | None:
        return known_offset(self.state_of(source.source), source, batch.messages)


def head_key(number: int, piece: Piece) -> bytes:
    """The key of a piece of the head."""
    return DataKey(number, piece.first_offset, piece.count, HEAD).pack()


def body_of(number: int, piece: Piece) -> Body:
    """A run of batches as the partition remembers it once it is a body."""
    marks_size = piece.marks.packed_size
    stamps = (piece.min_timestamp, piece.max_timestamp)
    return Body(number, piece.first_offset, piece.count, piece.size, marks_size, *stamps, piece.hidden)


def body_commands(number: int, run: tuple[Piece, ...], old: dict[int, bytes]) -> list[Command]:
    """Make a body of pieces: old ones as they lie, new ones written, the marks behind them. All of a body is in blobs, so that it
    can be sent from files: old ones that the log has kept so far are written as well."""
    piece = Piece.joined(run)
    body = body_of(number, piece)
    commands: list[Command] = []
    sources: list[bytes] = []
    fresh: dict[bytes, list[Buffer]] = {}
    written: list[Buffer] | None = None
    for part in run:
        source = old.get(id(part))
        if source is not None and part.size > INLINE_MAX:
            sources.append(source)
            written = None
            continue
        if source is not None:
            commands.append(DeleteRange(source, source + b"\0"))
        if written is None:
            # Under a key of its own only until the body has it, within this very request.
            sources.append(body.key + b"+%d" % len(sources))
            written = fresh[sources[-1]] = []
        written += part.buffers
    commands += (Write(key, tuple(buffers), inline_max=0) for key, buffers in fresh.items())
    marks = body.key + b"+m"
    commands.append(Write(marks, piece.marks.pack()))
    commands.append(Concat((*sources, marks), body.key, body.description.pack()))
    return commands


def _content(piece: Piece) -> tuple[Buffer, ...]:
    return tuple(piece.buffers)
