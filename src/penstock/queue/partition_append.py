"""What one log entry adds to a partition: batches with the offsets they get, and all that changes with them. Pure.

It is collected when the entry is composed, and applied to the partition when the entry is durable; if the entry fails, it is
dropped and nothing has changed. At boot the same is collected from the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.blob import Buffer
from penstock.core.errors import PenstockError
from penstock.core.record_format import CONTROL, LENGTH_FROM, ORIGIN_MASK
from penstock.kernels.block_sums import records_sum
from penstock.kernels.log_bytes import set_place
from penstock.kernels.produce_frame import ProducedBatch
from penstock.queue.append_note import NamedSource
from penstock.queue.batch import PREFIX_SIZE, Batch
from penstock.queue.piece import Gathered, Marks, Piece
from penstock.queue.sources import SourceState, SourceWrite, after_write, is_producer_source
from penstock.queue.transactions import Transactions

if TYPE_CHECKING:
    from penstock.queue.head import HeadPlan

_PREFIX = Struct(">qii")
_NONE: dict[Any, Any] = {}  # never added to: most appends have no sources and change no transactions


class WriteResult(NamedTuple):
    """Where a batch is; the offset of a duplicate is -1 if it is not known any more."""

    base_offset: int
    duplicate: bool


class WriteOutcome(Protocol):
    """Receives the outcome of a write; a future is one. Its methods must not raise, since other writes are acknowledged next."""

    def done(self) -> bool:
        """Whether the outcome is set, or the write was cancelled."""
        ...

    def set_result(self, result: WriteResult, /) -> None:
        """The write is durable."""
        ...

    def set_exception(self, exception: PenstockError, /) -> None:
        """The write was refused, or may not be durable."""
        ...


class PartitionAppend:
    """Batches in the order of their offsets. `is_large` keeps long batches in the buffers they came in."""

    __slots__ = (
        "_buffers",
        "_gathered",
        "acknowledgements",
        "batches",
        "changes",
        "data_end",
        "epoch",
        "first_offset",
        "first_own",
        "hidden",
        "joined",
        "key_waiters",
        "known_sums",
        "marks",
        "max_timestamp",
        "min_timestamp",
        "named_sources",
        "next_offset",
        "plan",
        "size",
        "sources",
        "taken_bytes",
        "taken_messages",
        "transactions",
    )

    def __init__(self, first_offset: int, epoch: int, *, is_large: bool = False) -> None:
        self.first_offset = self.next_offset = first_offset
        self.epoch = epoch  # the leader epoch that its batches are stored with
        self.size = 0
        self.batches = 0
        self.hidden = 0  # offsets that markers take
        self.data_end: int | None = None  # the offset after the last message
        self.first_own: int | None = None  # the offset of the first batch that another gateway than Kafka's has written
        self.min_timestamp = self.max_timestamp = 0
        self.marks: list[tuple[int, int, int]] = []  # of each batch: its offset, its first byte, its latest timestamp
        self.sources: dict[bytes, SourceState] = _NONE  # what each has written last, with this
        self.named_sources: list[NamedSource] | None = None  # those that do not follow from the header of a batch
        self.changes: dict[bytes, bytes | None] = _NONE  # keys of transactions
        self.transactions: Transactions | None = None  # as they are with this; None if it touches none
        self.acknowledgements: list[tuple[WriteOutcome, Any]] = []
        self.taken_bytes = self.taken_messages = 0  # of all writes that it answers, duplicates among them
        self.plan: HeadPlan | None = None  # if keys are made of it, and of all before it that have none: which
        self.key_waiters: Sequence[asyncio.Future[None]] = ()
        self.joined: bytes | None = None  # its bytes, once they are joined for the log
        self.known_sums: dict[int, tuple[Buffer, int]] = {} if is_large else _NONE  # of the records of long batches, see Vector
        self._buffers: list[Buffer] = []
        self._gathered = Gathered() if is_large else None

    @property
    def messages(self) -> int:
        """How many offsets it takes."""
        return self.next_offset - self.first_offset

    def add(self, batch: Batch | ProducedBatch, source: SourceWrite | None, state: SourceState | None) -> None:
        """Add a batch; `state` is what its source has written last, this not counted."""
        offset, size = self.next_offset, self.size
        data: Buffer
        if isinstance(batch, ProducedBatch):
            produced = batch  # the compiler knows its fields
            data, messages, producer_id = produced.data, produced.messages, produced.producer_id
            latest, attributes = produced.max_timestamp, produced.attributes
        else:
            data, messages, producer_id = batch.data, batch.messages, batch.producer_id
            latest, attributes = batch.max_timestamp, batch.attributes
        length = len(data)
        if source is not None:
            if self.sources is _NONE:
                self.sources = {}
            self.sources[source.source] = after_write(state, source, messages, offset)
        is_told = producer_id < 0 if source is None else is_producer_source(source, batch)
        if not is_told:
            if self.named_sources is None:
                self.named_sources = []
            self.named_sources.append((self.batches, source))
        if self._gathered is None and type(data) is bytearray:
            set_place(data, offset, length - LENGTH_FROM, self.epoch)  # it is this write's alone
            self._buffers.append(data)
        else:
            prefix = _PREFIX.pack(offset, length - LENGTH_FROM, self.epoch)
            if self._gathered is None:
                self._buffers += (prefix, memoryview(data)[PREFIX_SIZE:])
            else:
                records = self._gathered.add_batch(prefix, memoryview(data))
                if records is not None and (checksum := records_sum(data)) >= 0:
                    self.known_sums[id(records)] = records, checksum
        self.marks.append((offset, size, latest))
        if not size:
            self.min_timestamp = self.max_timestamp = latest
        elif latest > self.max_timestamp:
            self.max_timestamp = latest
        elif latest < self.min_timestamp:
            self.min_timestamp = latest
        if attributes & ORIGIN_MASK and self.first_own is None:
            self.first_own = offset
        self.batches += 1
        self.size = size + length
        self.next_offset = offset + messages
        if attributes & CONTROL:
            self.hidden += messages
        else:
            self.data_end = self.next_offset

    def note_transaction(self, number: int, batch: Batch | ProducedBatch, current: Transactions) -> None:
        """Note what a batch does to transactions, before it is added; `current` are those of the partition. OpenTransactionError
        if it may not be written now."""
        if self.transactions is None:
            self.transactions = current.copy()
            self.changes = {}
        for key, value in self.transactions.note(number, batch, self.next_offset):
            self.changes[key] = value

    def data(self) -> bytes:
        """All its bytes, joined once."""
        if self._gathered is not None:
            return b"".join(self._gathered.buffers())
        if len(self._buffers) != 1 or type(self._buffers[0]) is not bytes:
            self._buffers = [b"".join(self._buffers)]
        only = self._buffers[0]
        assert isinstance(only, bytes)
        return only

    def piece(self) -> Piece:
        """Its batches as a piece of the head."""
        marks = Marks()
        for mark in self.marks:
            marks.add(*mark)
        buffers: list[Buffer] = [b"".join(self._buffers)] if self._gathered is None else self._gathered.buffers()
        stamps = (self.min_timestamp, self.max_timestamp)
        return Piece(self.first_offset, self.messages, buffers, marks, stamps, hidden=self.hidden)
