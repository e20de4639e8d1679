"""The state of a partition in memory, and how an append changes it once it is durable: the same when it is written and when the
log is replayed. It reads small values of its tablet and changes none; writing is for the partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from penstock.core.clock import Clock
from penstock.queue import keys
from penstock.queue.arrivals import Arrivals
from penstock.queue.body import Body, BodyReader
from penstock.queue.cache import BlobCache
from penstock.queue.config import PartitionConfig
from penstock.queue.counting import cut_off
from penstock.queue.epochs import Epoch, Epochs
from penstock.queue.head import HeadPlan, plan_write, watermark_for
from penstock.queue.keying import body_of, plan_commands, state_commands
from penstock.queue.origins import Origins
from penstock.queue.partition_append import PartitionAppend
from penstock.queue.piece import Piece
from penstock.queue.probe import QueueProbe
from penstock.queue.sources import SourceState
from penstock.queue.tail import Tail
from penstock.queue.transactions import Aborted, Transactions
from penstock.tablet import Command, KvTablet, Write


class PartitionState:
    """Bodies, the head and its open tail, sources, transactions and epochs of one partition."""

    def __init__(self, tablet: KvTablet, number: int, config: PartitionConfig, cache: BlobCache, clock: Clock) -> None:
        self.tablet = tablet
        self.number = number
        self.configure(config)
        self._reader = BodyReader(tablet, cache)
        self.start_offset = 0
        self.end_offset = 0
        self.size = 0
        self.written = 0  # messages since it was loaded
        self._held = 0  # messages of all bodies and pieces, wherever the start is
        self.data_end = 0  # the offset after the last message: only markers follow
        self._bodies: list[Body] = []
        self._head: list[Piece] = []
        self.head_size = 0  # bytes of its head
        self.keyed_to = 0  # the offset up to which it has keys; what is behind it is in the log only
        self._keyed_pieces = 0  # of the head
        self._sources: dict[bytes, SourceState] = {}  # those that have written since keys were made last
        self._changes: dict[bytes, bytes | None] = {}  # keys of transactions that changed since then
        self._keyed_epoch = -1  # the latest that has a key
        self._keyed_origins: Origins | None = None
        self.transactions = Transactions()
        self._epochs = Epochs()
        self.origins = Origins(0)
        self.arrivals = Arrivals(clock)
        self.probe = QueueProbe()  # until its tablet gives it another

    @property
    def epoch(self) -> int:
        """The leader epoch: the generation of its tablet."""
        return self.tablet.generation

    @property
    def stable_offset(self) -> int:
        """Up to where readers of committed data may read."""
        return max(self.transactions.stable_offset(self.end_offset), self.start_offset)

    @property
    def message_count(self) -> int:
        """How many messages there are, without markers. Those that are cut off within the first blob are taken to be spread
        evenly there; `count_messages` is exact."""
        return self._held - cut_off((self._bodies or self._head)[:1], self.start_offset)

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp of any message; -1 if there is none."""
        return max((run.max_timestamp for run in self.runs if run.next_offset > self.start_offset), default=-1)

    def aborted_between(self, begin: int, end: int) -> list[Aborted]:
        """Aborted transactions with a part in begin <= offset < end."""
        return self.transactions.aborted_between(begin, end)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The last leader epoch up to `epoch` that is known, and the offset it ended at; (-1, -1) if it has not come yet."""
        return self._epochs.end_of(epoch, self.epoch, self.end_offset)

    def source(self, source: bytes) -> SourceState | None:
        """What a source has written last."""
        state = self._sources.get(source)
        if state is not None:
            return state
        raw = self.tablet.head(keys.prefix(b"s", self.number) + source)
        return None if raw is None else SourceState.unpack(raw)

    def sources(self) -> Iterator[tuple[bytes, SourceState]]:
        """Every source that is known, and what it has written last."""
        own = keys.prefix(b"s", self.number)
        known = {key[len(own) :] for key in self._keys(b"s")} | self._sources.keys()
        for source in sorted(known):
            state = self.source(source)
            if state is not None:
                yield source, state

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction."""
        return self.transactions.open.get(producer_id)

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Its bodies, in order."""
        return tuple(self._bodies)

    @property
    def head(self) -> tuple[Piece, ...]:
        """The pieces of its head, in order."""
        return tuple(self._head)

    @property
    def runs(self) -> list[Body | Piece]:
        """All bodies and the pieces of the head, in order."""
        return [*self._bodies, *self._head]

    @property
    def has_unkeyed(self) -> bool:
        """Whether some of it is in the log only."""
        return self.keyed_to < self.end_offset

    def configure(self, config: PartitionConfig) -> None:
        """Apply a configuration of the topic."""
        self.config = config
        self.batch_bytes_max = config.batch_bytes_max
        self.waiting_bytes_max = config.waiting_bytes_max
        self.has_limits = config.limit_bytes is not None or config.limit_messages is not None
        self.watermark = watermark_for(config.low_watermark, config.body_bytes)  # at how many bytes the head becomes a body

    @property
    def head_since_ms(self) -> int | None:
        """The timestamp of the oldest batch in the head; None if it is empty."""
        return self._head[0].min_timestamp if self._head else None

    def _keys(self, kind: bytes) -> list[bytes]:
        own = keys.prefix(kind, self.number)
        return list(self.tablet.keys(own, keys.past(own)))

    def plan_keys(self, added: PartitionAppend, *, roll: bool = False) -> tuple[HeadPlan, list[Command]]:
        """Plan the keys for an append and for all before it that is in the log only, and return the commands that store them;
        with `roll`, the whole head becomes a body."""
        assert added.first_offset == self.end_offset, "an append begins where the partition ends"
        keyed, unkeyed = self._head[: self._keyed_pieces], self._head[self._keyed_pieces :]
        if added.size:
            unkeyed.append(added.piece())
        config = self.config
        if roll:
            plan = HeadPlan(len(keyed), ((*keyed, *unkeyed),), None)
        elif not unkeyed:  # trimmed before it got keys: only state is left of it
            plan = HeadPlan(0, (), None)
        else:
            plan = plan_write(keyed, Piece.joined(unkeyed), config.low_watermark, config.body_bytes)
        commands = plan_commands(self.number, keyed, plan)
        changes = {key: value for key, value in (self._changes | added.changes).items() if not self._is_past(key)}
        commands += state_commands(self.number, added.next_offset, self._sources | added.sources, changes)
        epochs = self._epochs.since(self._keyed_epoch)
        if added.size and self._epochs.latest != self.epoch:
            epochs.append(Epoch(self.epoch, self.end_offset))
        commands += (Write(keys.epoch_key(self.number, epoch), keys.pack_offset(first)) for epoch, first in epochs)
        origins = self.origins.with_own(added.first_own)
        if origins != self._keyed_origins:
            commands.append(Write(keys.prefix(b"g", self.number), origins.pack()))
        return plan, commands

    def _is_past(self, key: bytes) -> bool:
        """Whether a key is that of an aborted transaction before the start."""
        return key[:1] == b"a" and keys.last_offset_of(key) < self.start_offset

    def apply(self, added: PartitionAppend) -> None:
        """Make an append that is durable readable."""
        assert added.first_offset == self.end_offset, "nothing was written while the append was in flight"
        if added.sources:
            self._sources |= added.sources
        if added.changes:
            self._changes |= added.changes
        if added.transactions is not None:
            self.transactions = added.transactions
            self.transactions.settle()
        messages = added.next_offset - added.first_offset - added.hidden
        if added.size:
            if self._epochs.latest != added.epoch:
                self._epochs.begin(added.epoch, self.end_offset)
            if added.first_own is not None:
                self.origins = self.origins.with_own(added.first_own)
            self.size += added.size
            self._held += messages
            self.written += messages
            self.data_end = added.data_end or self.data_end
            self.end_offset = added.next_offset
        if added.plan is not None:
            self._take_keys(added.plan)
        else:
            last = self._head[-1] if len(self._head) > self._keyed_pieces else None
            tail = last if isinstance(last, Tail) else None
            if tail is None or tail.size + added.size > tail.size_max:
                tail = Tail(added.first_offset)
                self._head.append(tail)
            count = added.next_offset - added.first_offset
            data = added.joined or added.data()
            tail.extend(data, count, added.hidden, added.min_timestamp, added.max_timestamp, added.marks)
            self.head_size += added.size
            assert tail.first_offset + tail.count == self.end_offset, "the tail reaches to the end"
        if added.size:
            self.probe.wrote(len(added.acknowledgements), messages, added.size)
            if self.arrivals.waiting:
                self.arrivals.tell()

    def _take_keys(self, plan: HeadPlan) -> None:
        """Update the head and bodies: all that was written has keys now, by this plan."""
        del self._head[self._keyed_pieces - plan.replaced :]
        for run in plan.bodies:
            piece = Piece.joined(run)
            body = body_of(self.number, piece)
            self._bodies.append(body)
            self._reader.remember(body, piece.kept())
        if plan.piece is not None:
            self._head.append(plan.piece.kept())
        self._keyed_pieces = len(self._head)
        self.head_size = sum(piece.size for piece in self._head)
        self.keyed_to = self.end_offset
        self._sources.clear()
        self._changes.clear()
        self._keyed_epoch = self._epochs.latest
        self._keyed_origins = self.origins
        runs = self._head or self._bodies
        assert not runs or runs[-1].next_offset == self.end_offset, "the last run reaches to the end"

    def _run_at(self, offset: int) -> Body | Piece:
        """The body or piece that holds an offset; if compaction has left a gap there, the next one."""
        runs: Sequence[Body | Piece] = self._bodies if self._bodies and offset < self._bodies[-1].next_offset else self._head
        at = max(bisect_right(runs, offset, key=lambda run: run.first_offset) - 1, 0)
        return runs[at] if offset < runs[at].next_offset else runs[at + 1]

    def _drop_before(self, offset: int) -> None:
        """Forget the data of bodies and pieces that end before an offset."""
        bodies = [body for body in self._bodies if body.next_offset <= offset]
        pieces = [piece for piece in self._head if piece.next_offset <= offset]
        del self._bodies[: len(bodies)]
        del self._head[: len(pieces)]
        self._keyed_pieces = max(self._keyed_pieces - len(pieces), 0)
        cut = sum(piece.size for piece in pieces)
        self.head_size -= cut
        self.size -= sum(body.size for body in bodies) + cut
        self._held -= sum(body.held for body in bodies) + sum(piece.held for piece in pieces)
        assert min(self.size, self._held, self.head_size) >= 0, "no more is cut than was there"
        if not self._bodies and not self._keyed_pieces and self._head and self._head[0].first_offset < offset:
            self._cut_tail(self._head[0], offset)

    def _cut_tail(self, piece: Piece, offset: int) -> None:
        """Forget the batches of a piece before an offset. It has no key, so nothing refers to them."""
        at = piece.find(offset)
        if at:
            kept = Tail.after(piece, at)
            self._head[0] = kept
            self.size -= at
            self.head_size -= at
            self._held -= piece.held - kept.held
