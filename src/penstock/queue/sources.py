"""Dedup by source: what each SourceId has written last, and what a new write of it is. Pure.

A source's state is a small value, so that a million of them fit in memory (integers big-endian):

     version 1 | epoch 4 | then, oldest first, up to five recent batches: last seqno 8 | base offset 8 | messages 4
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.queue.errors import SequenceError, StaleEpochError

VERSION = 1
RECENT_MAX = 5
SEQUENCE_WRAP = 1 << 31

_HEAD = Struct(">Bi")
_RECENT = Struct(">qQI")


class SourceWrite(NamedTuple):
    """Who writes a batch: a source, its epoch, and the seqno of the batch's first message; messages are numbered through.

    `contiguous` sources (Kafka's producers) leave no gaps: their numbers start at 0 in every epoch and wrap at 2**31."""

    source: bytes
    seqno: int
    epoch: int = 0
    contiguous: bool = False


class RecentBatch(NamedTuple):
    """A batch a source has written."""

    last_seqno: int
    base_offset: int
    messages: int


class SourceState(NamedTuple):
    """What a source has written last."""

    epoch: int
    recent: tuple[RecentBatch, ...]

    @property
    def max_seqno(self) -> int:
        """The highest seqno written."""
        return self.recent[-1].last_seqno

    @property
    def last_offset(self) -> int:
        """The offset of the last message written: when it is gone, so may this be."""
        return self.recent[-1].base_offset + self.recent[-1].messages - 1

    def pack(self) -> bytes:
        """The stored form."""
        return _HEAD.pack(VERSION, self.epoch) + b"".join(_RECENT.pack(*batch) for batch in self.recent)

    @classmethod
    def unpack(cls, raw: bytes) -> SourceState:
        """The state whose stored form is `raw`."""
        _, epoch = _HEAD.unpack_from(raw)
        return cls(epoch, tuple(RecentBatch(*row) for row in _RECENT.iter_unpack(raw[_HEAD.size :])))


def known_offset(state: SourceState | None, write: SourceWrite, count: int) -> int | None:
    """None if the batch is new and may be written. If it was written before, its base offset, or -1 if that is not known any
    more. SequenceError or StaleEpochError if it is neither."""
    if state is None:
        # Unknown, or known no more because all it wrote is gone: whatever it sends comes next.
        return None
    if write.epoch != state.epoch:
        if write.epoch < state.epoch:
            raise StaleEpochError(f"the source writes in epoch {write.epoch}, but epoch {state.epoch} has begun")
        _check_start(write)
        return None
    last = _last_seqno(write, count)
    for batch in state.recent:
        if batch.last_seqno == last and batch.messages == count:
            return batch.base_offset
    if write.contiguous:
        return _known_contiguous(state, write)
    if last <= state.max_seqno:
        return -1
    if write.seqno <= state.max_seqno:
        raise SequenceError(
            f"seqnos {write.seqno}..{last} of the source are partly written already, up to {state.max_seqno}; send only the rest"
        )
    return None


def after_write(state: SourceState | None, write: SourceWrite, count: int, base_offset: int) -> SourceState:
    """The state once this batch is written."""
    batch = RecentBatch(_last_seqno(write, count), base_offset, count)
    if state is None or write.epoch != state.epoch:
        return SourceState(write.epoch, (batch,))
    return SourceState(write.epoch, (*state.recent[1 - RECENT_MAX :], batch))


def _last_seqno(write: SourceWrite, count: int) -> int:
    last = write.seqno + count - 1
    return last % SEQUENCE_WRAP if write.contiguous else last


def _known_contiguous(state: SourceState, write: SourceWrite) -> int | None:
    expected = (state.max_seqno + 1) % SEQUENCE_WRAP
    if write.seqno == expected:
        return None
    # Behind by less than half the circle: written long ago. Ahead: something is missing in between.
    if (expected - write.seqno) % SEQUENCE_WRAP < SEQUENCE_WRAP // 2:
        return -1
    raise SequenceError(f"the source sends sequence {write.seqno} where {expected} comes next; what is between was never written")


def _check_start(write: SourceWrite) -> None:
    if write.contiguous and write.seqno != 0:
        raise SequenceError(f"a new epoch of a producer starts at sequence 0, not {write.seqno}")
