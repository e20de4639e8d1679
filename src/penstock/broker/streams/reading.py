"""Reads messages by sequence: of one subject, or of all that match a pattern."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.errors import UnknownTopicError
from penstock.broker.streams.records import Payload, StoredMessage, message_at, messages_of
from penstock.broker.streams.sequence_index import Run
from penstock.broker.streams.sequencer import Sequencer, Subject
from penstock.core.clock import Clock
from penstock.queue import Partition, committed_batches, is_aborted, is_transactional, joined

READ_BYTES: Final = 1 << 20
SCANNED_RUNS_MAX: Final = 10_000  # of a pattern, before others are let in
FOR_EVER_MS: Final = -(1 << 62)  # before every message


class StreamMessage(NamedTuple):
    """A message of a subject. What is in the payload store, or with the publisher, has no data here but a payload."""

    sequence: int
    subject: str
    headers: dict[str, str]
    object_name: str
    time_ms: int
    data: bytes
    payload: Payload | None
    offset: int

    @property
    def create_at(self) -> int:
        """The seed's time: whole seconds since 1970."""
        return self.time_ms // 1000


class ReadMessages(NamedTuple):
    """Messages in order, and the sequence to continue from: those in between are not readable, or were deleted."""

    messages: list[StreamMessage]
    next_sequence: int


class Reader:
    """Reads numbered messages that have not expired."""

    def __init__(self, sequencer: Sequencer, clock: Clock) -> None:
        self._sequencer = sequencer
        self._clock = clock

    def last_sequence(self, subject: Subject) -> int:
        """The last sequence of a subject that can be read; 0 if there is none."""
        visible_to = self._visible_to(self._sequencer.partition_of(subject), subject)
        if visible_to >= subject.runs.end_offset:
            return subject.runs.last_sequence
        return subject.runs.last_sequence_before(visible_to)

    def readable_to(self, is_wanted: Callable[[Subject], bool]) -> int:
        """The sequence before which every message of the subjects that are wanted is decided. PartitionUnavailableError if that
        cannot be told now."""
        lowest = self._sequencer.index.next_sequence
        for subject in filter(is_wanted, self._sequencer.subjects.values()):
            try:
                partition = self._sequencer.partition_of(subject)
            except UnknownTopicError:
                continue
            if partition.stable_offset < subject.runs.end_offset:
                open_from = subject.runs.sequence_of(partition.stable_offset)
                lowest = lowest if open_from is None else min(lowest, open_from)
        return lowest

    async def of_subject(self, subject: Subject, from_sequence: int, limit: int, bytes_max: int) -> ReadMessages:
        """Up to `limit` messages of a subject from a sequence on; at least one if there is any, then up to `bytes_max`."""
        partition = self._sequencer.partition_of(subject)
        visible_to = self._visible_to(partition, subject)
        messages: list[StreamMessage] = []
        size = 0
        next_sequence = from_sequence
        # Each run is looked up again: others are deleted while this one is read.
        while len(messages) < limit and (not messages or size < bytes_max):
            run = subject.runs.next_run(next_sequence)
            if run is None or run.offset >= visible_to:
                break
            end = min(run.end_offset, visible_to)
            read = await self._of_run(subject, run, end, limit - len(messages), bytes_max - size)
            messages += read.messages
            size += sum(len(message.data) for message in read.messages)
            next_sequence = read.next_sequence
            if next_sequence < run.end_sequence:
                break
        return ReadMessages(messages, next_sequence)

    async def of_pattern(
        self, is_wanted: Callable[[Subject], bool], from_sequence: int, limit: int, bytes_max: int
    ) -> ReadMessages:
        """The same, of every subject that is wanted, in the order of the one sequence."""
        readable_to = self.readable_to(is_wanted)
        messages: list[StreamMessage] = []
        size = scanned = 0
        next_sequence = from_sequence
        while len(messages) < limit and (not messages or size < bytes_max) and scanned < SCANNED_RUNS_MAX:
            scanned += 1
            run = self._sequencer.index.next_run(next_sequence)
            if run is None or run.sequence >= readable_to:
                next_sequence = max(next_sequence, readable_to)
                break
            subject = self._sequencer.subject_of(run)
            end = min(run.end_offset, run.offset + readable_to - run.sequence)
            if subject is None or not is_wanted(subject):
                next_sequence = run.sequence + end - run.offset
                continue
            read = await self._of_run(subject, run, end, limit - len(messages), bytes_max - size)
            messages += read.messages
            size += sum(len(message.data) for message in read.messages)
            next_sequence = read.next_sequence
            if next_sequence < run.sequence + end - run.offset:
                break
        if scanned >= SCANNED_RUNS_MAX:
            await asyncio.sleep(0)  # the caller may go on at once
        return ReadMessages(messages, next_sequence)

    async def by_sequence(self, sequence: int) -> StreamMessage | None:
        """The message of a sequence; None if it is not there, or not decided yet."""
        run = self._sequencer.index.find(sequence)
        subject = None if run is None else self._sequencer.subject_of(run)
        if run is None or subject is None:
            return None
        partition = self._sequencer.partition_of(subject)
        offset = run.offset + sequence - run.sequence
        if not partition.start_offset <= offset < self._visible_to(partition, subject):
            return None
        batch = partition.batch_at_hand(offset)
        if batch is None:
            read = await self.of_subject(subject, sequence, 1, 1)
            return read.messages[0] if read.messages and read.messages[0].sequence == sequence else None
        partition.probe.read(1, len(batch))
        if is_transactional(batch) and is_aborted(batch, partition.aborted_between(offset, offset + 1)):
            return None
        stored = message_at(batch, offset, partition.origins.marked_from)
        return None if stored is None or stored.time_ms < self._oldest_ms(partition) else _message(subject, run, stored)

    def _oldest_ms(self, partition: Partition) -> int:
        """The time before which messages have expired, by the topic's configuration."""
        ttl_ms = partition.config.retention_ms
        return FOR_EVER_MS if ttl_ms is None else int(self._clock.wall() * 1000) - ttl_ms

    def _visible_to(self, partition: Partition, subject: Subject) -> int:
        return min(partition.stable_offset, subject.runs.end_offset)

    async def _of_run(self, subject: Subject, run: Run, end: int, limit: int, bytes_max: int) -> ReadMessages:
        """Messages of one run, up to an offset; which sequence comes next, also if the last of them are void."""
        partition = self._sequencer.partition_of(subject)
        messages: list[StreamMessage] = []
        size = 0
        oldest_ms = self._oldest_ms(partition)
        offset = max(run.offset, partition.start_offset)
        while offset < end and len(messages) < limit and (not messages or size < bytes_max):
            # An unread rest of a batch is read again next time, so not much more is asked for than is taken.
            read = await partition.read(offset, min(READ_BYTES, max(bytes_max - size, 1)), until=end)
            if read.next_offset <= offset:
                break
            reached = min(read.next_offset, end)
            for batch in committed_batches(joined(read), partition.aborted_between(offset, read.next_offset)):
                for stored in messages_of(batch, max(offset, read.start_offset), end, partition.origins.marked_from):
                    if len(messages) >= limit or (messages and size >= bytes_max):
                        reached = stored.offset
                        break
                    if stored.time_ms >= oldest_ms:
                        messages.append(_message(subject, run, stored))
                        size += len(stored.data)
                if reached < min(read.next_offset, end):
                    break
            offset = max(reached, partition.start_offset) if not messages else reached
            if not messages:
                await asyncio.sleep(0)  # a long stretch of what is over, or void, is read from memory without suspending
        offset = min(max(offset, run.offset), run.end_offset)
        return ReadMessages(messages, run.sequence + offset - run.offset)


def _message(subject: Subject, run: Run, stored: StoredMessage) -> StreamMessage:
    name = f"{subject.name}/{stored.offset}" if stored.payload is None else stored.payload.object_name
    sequence = run.sequence + stored.offset - run.offset
    return StreamMessage(sequence, subject.name, stored.headers, name, stored.time_ms, stored.data, stored.payload, stored.offset)
