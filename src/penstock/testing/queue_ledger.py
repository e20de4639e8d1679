"""What the partition simulation knows of every message: who sent it, where it was seen, and so what readers may be shown.

A message is told apart by its source, the source's epoch and its seqno, all of which its value begins with. Once an offset is
known to hold a message, by an acknowledgement or because a reader saw it, it holds that message for ever, until it is trimmed
or, if messages have keys, a later one of its key has taken its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.blob import Buffer
from penstock.core.checksum import crc32c
from penstock.queue import Partition, check_batch, split_batches
from penstock.queue.batch import span_at
from penstock.testing.batches import keyed_records_of, make_batch, make_keyed_batch
from penstock.testing.fault_ledger import require

BATCH_BYTES_MAX = 1 << 20


class Message(NamedTuple):
    """What makes a message itself."""

    source: str
    epoch: int
    seqno: int


@dataclass(frozen=True, slots=True)
class SizeProfile:
    """How large the values of a run are: most small, one in `every` up to `large`; and how many keys they share, if any."""

    small: int
    large: int
    every: int
    keys: int = 0

    def value_of(self, partition: int, message: Message) -> bytes:
        """The only value that a message may have."""
        head = f"{partition}|{message.source}|{message.epoch}|{message.seqno}|".encode()
        draw = crc32c(head)
        size = len(head) + draw % (self.large if draw % self.every == 0 else self.small)
        return (head * (size // len(head) + 1))[:size]

    def key_of(self, message: Message) -> bytes:
        """The key of a message, where there are any."""
        return b"key-%d" % (crc32c(repr(message).encode()) % self.keys)

    def batch_of(self, partition: int, messages: list[Message], timestamp: int) -> bytes:
        """A batch of these messages, always the same bytes."""
        values = [self.value_of(partition, message) for message in messages]
        if not self.keys:
            return make_batch(values, timestamp=timestamp)
        own = [self.key_of(message) for message in messages]
        return make_keyed_batch(list(zip(own, values, strict=True)), timestamps=[timestamp])


@dataclass(slots=True)
class PartitionLedger:
    """Everything known of one partition."""

    number: int
    first_offset: int
    sizes: SizeProfile
    facts: dict[int, Message] = field(default_factory=dict)
    places: dict[Message, int] = field(default_factory=dict)
    acked: set[Message] = field(default_factory=set)
    trim_tried: int = 0
    trim_acked: int = 0
    retaining: list[Partition] = field(default_factory=list)
    end_seen: dict[int, int] = field(default_factory=dict)  # generation: the highest end it showed
    positions_acked: dict[str, int] = field(default_factory=dict)
    positions_tried: dict[str, set[int]] = field(default_factory=dict)

    @property
    def trim_bound(self) -> int:
        """Everything before this may have been trimmed. Retention decides by itself how far it goes, but never beyond the end."""
        return max([self.trim_tried, *(trim.end_offset for trim in self.retaining)])

    @contextmanager
    def retention(self, partition: Partition) -> Iterator[None]:
        """While this lasts, a partition may be cut by its retention."""
        self.retaining.append(partition)
        try:
            yield
        finally:
            self.retaining.remove(partition)
            self.trim_tried = max(self.trim_tried, partition.end_offset)

    def learn(self, offset: int, message: Message) -> None:
        """The offset holds the message: it must not have held another, nor the message be elsewhere."""
        known = self.facts.setdefault(offset, message)
        require(known == message, f"offset {offset} of partition {self.number} held {known} and now holds {message}")
        place = self.places.get(message, offset)
        # A source whose messages are all trimmed may be forgotten, and then its resent messages are new.
        require(
            place == offset or place < self.trim_bound,
            f"{message} is at offset {place} of partition {self.number} and again at {offset}",
        )
        self.places[message] = max(place, offset)

    def acknowledge(self, messages: list[Message], base_offset: int) -> None:
        """A writer was told where its messages are."""
        require(base_offset >= self.first_offset, f"{messages[0]} was acknowledged at offset {base_offset}")
        for at, message in enumerate(messages):
            self.learn(base_offset + at, message)
            self.acked.add(message)

    def judge_run(self, offset: int, batches: tuple[Buffer, ...], next_offset: int) -> set[int]:
        """What a read from an offset gave: whole batches, numbered through, with the messages that belong there; which these
        are. Compaction leaves gaps between them."""
        has_gaps = self.sizes.keys > 0
        at = None
        present: set[int] = set()
        for raw in split_batches(b"".join(batches)):
            if not has_gaps:
                check_batch(raw, BATCH_BYTES_MAX)
            begin, end, _ = span_at(raw, 0)
            if at is None:
                is_first = begin <= offset or has_gaps or offset < self.trim_bound
                require(is_first and end > offset, f"a read of {offset} began with the batch {begin}..{end}")
            else:
                require(begin == at or (has_gaps and begin > at), f"after offset {at - 1} of {self.number} comes {begin}")
            for record in keyed_records_of(raw):
                self.learn(record.offset, self._parsed(record.value or b"", record.offset))
                present.add(record.offset)
            at = end
        is_next = at is None or at == next_offset or (has_gaps and at <= next_offset)
        require(is_next, f"a read ended at {at} and said that {next_offset} comes next")
        return present

    def judge_bounds(self, generation: int, start_offset: int, end_offset: int) -> None:
        """Where an instance says that the partition starts and ends."""
        require(
            start_offset <= max(self.trim_bound, self.first_offset), f"{start_offset} is the start, but no trim went that far"
        )
        known = max((end for other, end in self.end_seen.items() if other <= generation), default=self.first_offset)
        require(end_offset >= known, f"generation {generation} ends at {end_offset}, {known} was the end before")
        self.end_seen[generation] = end_offset

    def judge_whole(self, start_offset: int, end_offset: int, present: set[int]) -> None:
        """Check the offsets that a read from start to end found, with no newer write in flight."""
        require(start_offset >= self.trim_acked, f"trimmed to {self.trim_acked}, but starts at {start_offset}")
        held = {offset for offset in self.facts if offset >= start_offset}
        require(held <= set(range(start_offset, end_offset)), f"{start_offset}..{end_offset} is not what is held: {_runs(held)}")
        missing = set(range(start_offset, end_offset)) - present
        if self.sizes.keys:
            last = {self.sizes.key_of(self.facts[offset]): offset for offset in sorted(present)}
            missing = {at for at in missing & held if last.get(self.sizes.key_of(self.facts[at]), -1) < at}
        require(not missing, f"of {start_offset}..{end_offset} these are not there: {_runs(missing)}")
        lost = [message for message in self.acked if self.places[message] >= start_offset and not self._is_here(message)]
        require(not lost, f"acknowledged and not there: {lost[:3]}")
        latest: dict[tuple[str, int], int] = {}
        for offset in sorted(present):
            if offset < start_offset:
                continue
            source, epoch, seqno = self.facts[offset]
            before = latest.get((source, epoch), -1)
            require(seqno > before, f"source {source} has seqno {seqno} at offset {offset}, after {before}")
            latest[source, epoch] = seqno

    def _is_here(self, message: Message) -> bool:
        return self.facts.get(self.places[message]) == message

    def _parsed(self, value: bytes, offset: int) -> Message:
        number, source, epoch, seqno, _ = value.split(b"|", 4)
        message = Message(source.decode(), int(epoch), int(seqno))
        require(
            int(number) == self.number, f"offset {offset} of partition {self.number} holds a message of partition {int(number)}"
        )
        require(value == self.sizes.value_of(self.number, message), f"{message} at offset {offset} has other bytes")
        return message


def _runs(offsets: set[int]) -> str:
    """Offsets as stretches, for people."""
    runs: list[list[int]] = []
    for offset in sorted(offsets):
        if runs and runs[-1][1] == offset:
            runs[-1][1] += 1
        else:
            runs.append([offset, offset + 1])
    return " ".join(f"{begin}..{end}" for begin, end in runs)
