"""Deduplication by source: the last writes of each SourceId, and whether a new write is next, a duplicate or out of order. Pure.

A source's state is a small value, so that a million of them fit in memory:

     version, 1 byte, then numbers of seven bits a byte, the lowest first; where one may be negative, its lowest bit is the sign:
     epoch (signed) | the last batch: last seqno | base offset | messages
     then up to four batches before it, the latest first, each by its distance from the one after it:
     last seqno (signed) | base offset | messages

A batch of no messages stands for a marker that began an epoch in which nothing is written yet; its seqno is the one before 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.errors import InvalidRequestError
from penstock.core.format_version import check_version
from penstock.kernels.produce_frame import ProducedBatch, source_name
from penstock.queue.batch import Batch
from penstock.queue.errors import SequenceError, StaleEpochError

VERSION = 1
_VERSION = bytes((VERSION,))
RECENT_MAX = 5
_RECENT_KEPT = 1 - RECENT_MAX  # of those before, when another one comes
SEQUENCE_WRAP = 1 << 31
_WRAP = SEQUENCE_WRAP  # the same as a number of the compiler
MARKER = -1  # in place of a seqno: the write is the marker that ends a producer's transaction
SOURCE_SIZE_MAX = 2048
SEQNO_MAX = (1 << 63) - 1
EPOCH_MAX = (1 << 31) - 1


class SourceWrite:
    """Who writes a batch: a source, its epoch, and the seqno of the batch's first message; messages are numbered through.

    `contiguous` sources (Kafka's producers) leave no gaps: their numbers start at 0 in every epoch and wrap at 2**31. Those of
    others only rise, across owners too: a newer epoch fences older ones and repeats nothing."""

    __slots__ = ("contiguous", "epoch", "seqno", "source")

    def __init__(self, source: bytes, seqno: int, epoch: int = 0, contiguous: bool = False) -> None:
        self.source = source
        self.seqno = seqno
        self.epoch = epoch
        self.contiguous = contiguous

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceWrite) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"SourceWrite{self._fields()}"

    def _fields(self) -> tuple[bytes, int, int, bool]:
        return self.source, self.seqno, self.epoch, self.contiguous


class RecentBatch:
    """A batch a source has written."""

    __slots__ = ("base_offset", "last_seqno", "messages")

    def __init__(self, last_seqno: int, base_offset: int, messages: int) -> None:
        self.last_seqno = last_seqno
        self.base_offset = base_offset
        self.messages = messages

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecentBatch) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"RecentBatch{self._fields()}"

    def _fields(self) -> tuple[int, int, int]:
        return self.last_seqno, self.base_offset, self.messages


class SourceState:
    """What a source has written last: the batches of this epoch that are remembered, the latest at the end."""

    __slots__ = ("epoch", "recent")

    def __init__(self, epoch: int, recent: tuple[RecentBatch, ...]) -> None:
        self.epoch = epoch
        self.recent = recent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceState) and (self.epoch, self.recent) == (other.epoch, other.recent)

    def __hash__(self) -> int:
        return hash((self.epoch, self.recent))

    def __repr__(self) -> str:
        return f"SourceState({self.epoch}, {self.recent})"

    @property
    def max_seqno(self) -> int:
        """The highest seqno written."""
        return self.recent[-1].last_seqno

    @property
    def last_sequence(self) -> int:
        """The sequence of the last message a producer wrote in this epoch; -1 if it wrote none."""
        return self.max_seqno if self.recent[-1].messages else -1

    @property
    def last_offset(self) -> int:
        """The offset of the last message written: when it is gone, so may this be."""
        return self.recent[-1].base_offset + self.recent[-1].messages - 1

    def pack(self) -> bytes:
        """The stored form."""
        packed = bytearray((VERSION,))
        _put_number(packed, _signed(self.epoch))
        after = self.recent[-1]
        for number in (after.last_seqno, after.base_offset, after.messages):
            _put_number(packed, number)
        for batch in self.recent[-2::-1]:
            _put_number(packed, _signed(after.last_seqno - batch.last_seqno))
            _put_number(packed, after.base_offset - batch.base_offset)
            _put_number(packed, batch.messages)
            after = batch
        return bytes(packed)

    @classmethod
    def unpack(cls, raw: bytes) -> SourceState:
        """The state whose stored form is `raw`."""
        if raw[:1] != _VERSION:  # every write of a source comes by here
            check_version(raw[0] if raw else 0, VERSION, "what a source has written last")
        numbers = _numbers(raw)
        epoch = _unsigned(next(numbers))
        recent = [RecentBatch(next(numbers), next(numbers), next(numbers))]
        for distance in numbers:
            after = recent[-1]
            recent.append(RecentBatch(after.last_seqno - _unsigned(distance), after.base_offset - next(numbers), next(numbers)))
        return cls(epoch, tuple(reversed(recent)))


def producer_source(batch: Batch | ProducedBatch) -> SourceWrite | None:
    """The source that the header of a batch names: a producer of Kafka's; None if it names none."""
    if batch.producer_id < 0:
        return None
    # As SourceWrite(…) does, without what the call of a compiled class costs for every batch; as below.
    write = SourceWrite.__new__(SourceWrite)
    write.contiguous = True
    if isinstance(batch, ProducedBatch):
        produced = batch  # the compiler knows its fields
        write.source, write.seqno, write.epoch = (
            source_name(produced.producer_id),
            produced.base_sequence,
            produced.producer_epoch,
        )
    else:
        write.source, write.seqno, write.epoch = source_name(batch.producer_id), batch.base_sequence, batch.producer_epoch
    return write


def is_producer_source(source: SourceWrite, batch: Batch | ProducedBatch) -> bool:
    """Whether the header of a batch names this source."""
    return (
        source.contiguous
        and source.seqno == batch.base_sequence
        and source.epoch == batch.producer_epoch
        and batch.producer_id >= 0
        and source.source == source_name(batch.producer_id)
    )


def check_source(write: SourceWrite, count: int) -> None:
    """Raise if the values could not be stored, before the write is queued with those of others."""
    if len(write.source) > SOURCE_SIZE_MAX:
        raise InvalidRequestError(f"a source id has at most {SOURCE_SIZE_MAX} bytes, not {len(write.source)}")
    if not -1 <= write.epoch <= EPOCH_MAX:
        raise InvalidRequestError(f"epoch {write.epoch} of the source is not within -1..{EPOCH_MAX}")
    last_allowed = SEQUENCE_WRAP - 1 if write.contiguous else SEQNO_MAX - count + 1
    if not 0 <= write.seqno <= last_allowed:
        raise SequenceError(f"seqno {write.seqno} of the source is not within 0..{last_allowed}")


def known_offset(state: SourceState | None, write: SourceWrite, count: int) -> int | None:
    """None if the batch is new and may be written. If it was written before, its base offset, or -1 if that is not known any
    more. SequenceError or StaleEpochError if it is neither."""
    if state is None:
        # Unknown, or forgotten because all it wrote was deleted: any sequence number is accepted.
        return None
    if write.epoch < state.epoch:
        raise StaleEpochError(f"the source writes in epoch {write.epoch}, but epoch {state.epoch} has begun")
    if write.seqno == MARKER:
        return None
    if write.contiguous:
        if write.epoch != state.epoch:
            _check_start(write)
            return None
        latest = state.recent[-1]
        if write.seqno == (latest.last_seqno + 1) % _WRAP:
            return None  # it comes next, as nearly every one does
    last = _last_seqno(write, count)
    for batch in state.recent:
        if batch.last_seqno == last and batch.messages == count:
            return batch.base_offset
    if write.contiguous:
        return _known_contiguous(state, write, count)
    if last <= state.max_seqno:
        return -1
    if write.seqno <= state.max_seqno:
        raise SequenceError(
            f"seqnos {write.seqno}..{last} of the source are partly written already, up to {state.max_seqno}; send only the rest"
        )
    return None


def after_write(state: SourceState | None, write: SourceWrite, count: int, base_offset: int) -> SourceState:
    """The state once this batch is written."""
    if write.seqno == MARKER:
        return _after_marker(state, write, base_offset)
    batch = RecentBatch.__new__(RecentBatch)
    last = write.seqno + count - 1
    batch.last_seqno = last % _WRAP if write.contiguous else last
    batch.base_offset = base_offset
    batch.messages = count
    after = SourceState.__new__(SourceState)
    after.epoch = write.epoch
    recent = () if state is None else state.recent
    if state is None or (write.contiguous and write.epoch != state.epoch) or not recent[-1].messages:
        after.recent = (batch,)
    else:
        after.recent = recent[_RECENT_KEPT:] + (batch,)  # noqa: RUF005 - the other form makes a list first
    return after


def _after_marker(state: SourceState | None, write: SourceWrite, offset: int) -> SourceState:
    """A marker in an epoch of its own begins it, and shuts older ones out; in the epoch of the data it changes nothing."""
    if state is not None and state.epoch == write.epoch:
        return state
    return SourceState(write.epoch, (RecentBatch(SEQUENCE_WRAP - 1, offset + 1, 0),))


def _last_seqno(write: SourceWrite, count: int) -> int:
    last = write.seqno + count - 1
    return last % SEQUENCE_WRAP if write.contiguous else last


def _known_contiguous(state: SourceState, write: SourceWrite, count: int) -> int | None:
    expected = (state.max_seqno + 1) % SEQUENCE_WRAP
    if write.seqno == expected:
        return None
    # Behind by less than half the circle: written long ago, if so much was written that it is remembered no more; otherwise it
    # never was, and its number was passed over when the source was unknown. Ahead: something is missing in between.
    behind = (expected - write.seqno) % SEQUENCE_WRAP
    if count <= behind < SEQUENCE_WRAP // 2 and len(state.recent) == RECENT_MAX:
        return -1
    if behind < SEQUENCE_WRAP // 2:
        raise SequenceError(
            f"sequences {write.seqno} and on of the source are not those of a batch it wrote; {expected} comes next"
        )
    raise SequenceError(f"the source sends sequence {write.seqno} where {expected} comes next; what is between was never written")


def leaves_gap(state: SourceState | None, write: SourceWrite) -> bool:
    """Whether what a producer would write next is missing before a refused write of its, which may have overtaken that."""
    if not write.contiguous:
        return False
    if state is None or write.epoch != state.epoch:
        return True
    return (state.max_seqno + 1 - write.seqno) % SEQUENCE_WRAP >= SEQUENCE_WRAP // 2


def _check_start(write: SourceWrite) -> None:
    if write.contiguous and write.seqno != 0:
        raise SequenceError(f"a new epoch of a producer starts at sequence 0, not {write.seqno}")


def _put_number(packed: bytearray, number: int) -> None:
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _numbers(raw: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in raw[1:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0


def _signed(number: int) -> int:
    """A number with its sign in the lowest bit."""
    return number << 1 if number >= 0 else -number << 1 | 1


def _unsigned(packed: int) -> int:
    """The number whose sign is in the lowest bit."""
    return -(packed >> 1) if packed & 1 else packed >> 1
