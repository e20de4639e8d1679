"""The sequence over all subjects: every message that is durable in its subject's log gets the next number, durably.

"n"                       the next sequence, 8 bytes; it outlives every message
"m"                       the number of the subject that was made last, 4 bytes
"s" | subject number 4    version 1 | topic id 16 | name of the subject
"i" | sequence 8          a run of sequences (see sequence_index.py)

Numbers are assigned to stored messages in the order of the log, with one request to the tablet in flight. So no number is used
twice or skipped, whichever gateway wrote the message and whenever the node was killed: messages without a number get one after
the restart. A message becomes readable here only with its number.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from penstock.broker.errors import PartitionUnavailableError, UnknownTopicError
from penstock.broker.streams.sequence_index import RUN_PREFIX, Run, SequenceIndex, SubjectRuns
from penstock.broker.system_tablet import TableTablet
from penstock.broker.topic import Topic
from penstock.core.errors import PenstockError, UnavailableError
from penstock.core.format_version import check_version
from penstock.queue import Partition, WriteResult
from penstock.tablet import Command, DeleteRange, Request, Write

log = logging.getLogger(__name__)

VERSION: Final = 1
NEXT_KEY: Final = b"n"
LAST_SUBJECT_KEY: Final = b"m"
SUBJECT_PREFIX: Final = b"s"
RETRY_S: Final = 0.1
LOOK_AGAIN_S: Final = 2.0  # for a partition whose tablet was started again
NUMBERING_S_MAX: Final = 5.0  # that a reader waits for messages to get their sequences
FORGET_AT_ONCE: Final = 1000
STOPPED: Final = "the node stops; the message is stored and will get its sequence"

_SUBJECT = Struct(">B16s")


class Partitions(Protocol):
    """The interface to the broker: its served partitions."""

    def partition(self, topic_id: bytes) -> Partition:
        """The partition of a subject's topic. UnknownTopicError if that is gone, PartitionUnavailableError while it starts."""
        ...


class MessagePlace(NamedTuple):
    """The offset and sequence of a published message."""

    sequence: int
    offset: int


class Subject:
    """A subject: a topic of one partition whose messages have sequences."""

    def __init__(self, number: int, name: str, topic_id: UUID, runs: SubjectRuns) -> None:
        self.number = number
        self.name = name
        self.topic_id = topic_id
        self.topic_key = topic_id.bytes  # by which its partition is asked for
        self.runs = runs
        self.waiting: deque[tuple[int, PendingWrite]] = deque()  # by offset: batches that wait for their sequences
        self.watcher: asyncio.Task[None] | None = None

    @property
    def key(self) -> bytes:
        """Where it is stored."""
        return SUBJECT_PREFIX + self.number.to_bytes(4, "big")

    def pack(self) -> bytes:
        """The stored form."""
        return _SUBJECT.pack(VERSION, self.topic_id.bytes) + self.name.encode()

    def settle(self) -> None:
        """Complete the publishers whose messages have their sequence."""
        while self.waiting and self.waiting[0][0] < self.runs.end_offset:
            offset, pending = self.waiting.popleft()
            sequence = self.runs.sequence_of(offset)
            if sequence is None:
                pending.set_exception(UnavailableError(f"the message at offset {offset} of {self.name!r} is gone already"))
            else:
                pending.set_sequence(sequence, offset)


class PendingWrite:
    """A batch that is being written: it gets its outcome in the log first, then the sequence of its first message. Its
    messages have consecutive sequences."""

    def __init__(self, sequencer: Sequencer, subject: Subject) -> None:
        self._sequencer = sequencer
        self._subject = subject
        self._publishers: list[tuple[int, asyncio.Future[MessagePlace]]] = []

    def tell(self, publisher: asyncio.Future[MessagePlace], place: int) -> None:
        """Resolve `publisher` with the place of a message of the batch, once it has its sequence."""
        self._publishers.append((place, publisher))

    def done(self) -> bool:
        """Whether the publisher has gone away. What is on its way is stored all the same."""
        return False

    def set_result(self, result: WriteResult, /) -> None:
        """The batch is durable."""
        self._sequencer.await_sequence(self._subject, result.base_offset, self)

    def set_exception(self, exception: Exception, /) -> None:
        """The batch may not be durable, or will not have sequences."""
        for _, publisher in self._publishers:
            if not publisher.done():
                publisher.set_exception(exception)

    def set_sequence(self, sequence: int, offset: int) -> None:
        """The first message has its sequence, and so have all."""
        for place, publisher in self._publishers:
            if not publisher.done():
                publisher.set_result(MessagePlace(sequence + place, offset + place))


class Sequencer:
    """Assigns sequences. Create it, then call `start`; call `stop` when done."""

    def __init__(self, tablet: TableTablet, partitions: Partitions, *, moved: Callable[[], None]) -> None:
        self._tablet = tablet
        self._partitions = partitions
        self._moved = moved  # called when more can be read
        self.index = SequenceIndex()
        self.subjects: dict[str, Subject] = {}
        self._by_number: dict[int, Subject] = {}
        self._dirty: dict[int, Subject] = {}
        self._wake = asyncio.Event()
        self._changing = asyncio.Lock()  # one change of the table of subjects at a time
        self._writer: asyncio.Task[None] | None = None
        self._load(tablet)

    def start(self) -> None:
        """Start numbering, first messages that were left without a sequence."""
        self._writer = asyncio.create_task(self._run(), name="sequencer")
        for subject in self.subjects.values():
            self._watch(subject)

    async def stop(self) -> None:
        """Stop numbering."""
        tasks = [subject.watcher for subject in self.subjects.values()] + [self._writer]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._writer = None
        for subject in self.subjects.values():
            for _, pending in subject.waiting:
                pending.set_exception(UnavailableError(STOPPED))
            subject.waiting.clear()

    async def reload(self, tablet: TableTablet) -> None:
        """The tablet was started again: what failed may have been done."""
        waiting = {subject.topic_id: subject for subject in self.subjects.values()}
        for subject in self.subjects.values():
            if subject.watcher is not None:
                subject.watcher.cancel()
        self._load(tablet)
        for subject in self.subjects.values():
            before = waiting.pop(subject.topic_id, None)
            if before is not None:
                subject.waiting, before.waiting = before.waiting, subject.waiting
                subject.settle()
            self._watch(subject)
        for subject in waiting.values():
            _end(subject)
        self._moved()

    async def attach(self, topic: Topic) -> Subject:
        """Make a topic a subject, if it is none yet: all its messages get sequences."""
        subject = self.subjects.get(topic.name)
        if subject is not None and subject.topic_id == topic.id:
            return subject
        async with self._changing:
            subject = self.subjects.get(topic.name)
            if subject is not None and subject.topic_id == topic.id:
                return subject
            if subject is not None:
                await self._detach(subject)
            # Never that of another before it: runs of that one may still be in the index.
            number = int.from_bytes(self._tablet.head(LAST_SUBJECT_KEY) or b"", "big") + 1
            subject = Subject(number, topic.name, topic.id, SubjectRuns())
            writes = (Write(subject.key, b"", head=subject.pack()), Write(LAST_SUBJECT_KEY, number.to_bytes(4, "big")))
            await self._tablet.execute(Request(writes))
            subject.runs = self.index.subject(number)
            self._take(subject)
            self._watch(subject)
        return subject

    async def detach(self, subject: Subject) -> None:
        """Forget a subject whose topic was deleted. Its sequences are never reused."""
        async with self._changing:
            if self.subjects.get(subject.name) is subject:
                await self._detach(subject)

    def subject_of(self, run: Run) -> Subject | None:
        """The subject of a run; None if it was forgotten."""
        return self._by_number.get(run.subject)

    def partition_of(self, subject: Subject) -> Partition:
        """The log of a subject. UnknownTopicError if its topic is gone, PartitionUnavailableError while it starts."""
        return self._partitions.partition(subject.topic_key)

    def await_sequence(self, subject: Subject, offset: int, pending: PendingWrite) -> None:
        """Give `pending` the sequence of the durable message at an offset, once it has one."""
        if self._writer is None:
            pending.set_exception(UnavailableError(STOPPED))
            return
        subject = self._by_number.get(subject.number, subject)  # the tablet may have been started again
        waiting = subject.waiting
        if waiting and waiting[-1][0] > offset:
            waiting.insert(bisect_right(waiting, offset, key=lambda entry: entry[0]), (offset, pending))
        else:
            waiting.append((offset, pending))
        subject.settle()
        self.mark(subject)

    async def number_all(self, subject: Subject) -> None:
        """Wait until every message that is durable now has its sequence, so that a reader sees all of them. UnavailableError if
        that takes too long."""
        end = self.partition_of(subject).end_offset
        if end <= subject.runs.end_offset:
            return
        numbered: asyncio.Future[MessagePlace] = asyncio.get_running_loop().create_future()
        pending = PendingWrite(self, subject)
        pending.tell(numbered, 0)
        self.await_sequence(subject, end - 1, pending)
        try:
            async with asyncio.timeout(NUMBERING_S_MAX):
                await numbered
        except TimeoutError as error:
            raise UnavailableError(f"messages of {subject.name!r} have no sequences yet; try again") from error
        except UnavailableError:
            if self._writer is None or self.subjects.get(subject.name) is not subject:
                raise
            # Deleted before it had a sequence: all before it have theirs, or are deleted as well.

    def mark(self, subject: Subject) -> None:
        """Note that a subject may have messages without a sequence."""
        self._dirty[subject.number] = subject
        self._wake.set()

    async def forget_before(self, subject: Subject, start_offset: int) -> None:
        """Delete the sequences of messages before an offset."""
        gone = subject.runs.forgettable(start_offset)
        for begin in range(0, len(gone), FORGET_AT_ONCE):
            some = gone[begin : begin + FORGET_AT_ONCE]
            commands = tuple(DeleteRange(run.key, run.key + b"\0") for run in some)
            generation = self._tablet.generation
            await self._tablet.execute(Request(commands, makes_room=True))
            if self._tablet.generation != generation:
                return
            self.index.forget(subject.number, len(some))

    async def _detach(self, subject: Subject) -> None:
        _end(subject)
        runs = subject.runs.all_runs()
        for begin in range(0, len(runs), FORGET_AT_ONCE):
            commands = tuple(DeleteRange(run.key, run.key + b"\0") for run in runs[begin : begin + FORGET_AT_ONCE])
            await self._tablet.execute(Request(commands, makes_room=True))
        await self._tablet.execute(Request((DeleteRange(subject.key, subject.key + b"\0"),), makes_room=True))
        self.index.forget_subject(subject.number)
        self.subjects.pop(subject.name, None)
        self._by_number.pop(subject.number, None)
        self._dirty.pop(subject.number, None)

    def _load(self, tablet: TableTablet) -> None:
        self.index = SequenceIndex()
        self.subjects = {}
        self._by_number = {}
        self._dirty = {}
        for key in tablet.keys(SUBJECT_PREFIX, b"t"):
            raw = tablet.head(key) or b""
            check_version(raw[0] if raw else 0, VERSION, "a subject")
            number = int.from_bytes(key[1:], "big")
            topic_id = UUID(bytes=_SUBJECT.unpack_from(raw)[1])
            self._take(Subject(number, raw[_SUBJECT.size :].decode(), topic_id, self.index.subject(number)))
        for key in tablet.keys(RUN_PREFIX, b"j"):
            self.index.add(Run.unpack(key, tablet.head(key) or b""))
        stored = int.from_bytes(tablet.head(NEXT_KEY) or b"\1", "big")
        self.index.next_sequence = max(self.index.next_sequence, stored)

    def _take(self, subject: Subject) -> None:
        self.subjects[subject.name] = subject
        self._by_number[subject.number] = subject

    def _watch(self, subject: Subject) -> None:
        subject.watcher = asyncio.create_task(self._see_arrivals(subject), name=f"subject-{subject.name}")

    async def _see_arrivals(self, subject: Subject) -> None:
        """Watch the log of a subject for writes of any gateway."""
        while True:
            try:
                partition = self.partition_of(subject)
            except PartitionUnavailableError:
                await asyncio.sleep(RETRY_S)
                continue
            except UnknownTopicError:
                return  # the sweep forgets it
            self._moved()  # a transaction may have ended
            if partition.end_offset > subject.runs.end_offset:
                self.mark(subject)
            await partition.wait_beyond(max(partition.end_offset, subject.runs.end_offset), LOOK_AGAIN_S)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._give_out()
            except PenstockError as error:
                log.warning("sequences will be given out in a moment: %s", error)
                self._wake.set()
                await asyncio.sleep(RETRY_S)

    async def _give_out(self) -> None:
        """Number all messages without a sequence, in one request."""
        dirty, index = list(self._dirty.values()), self.index
        runs = self._plan(dirty)
        if runs:
            last = runs[-1]
            commands: list[Command] = [Write(run.key, run.pack()) for run in runs]
            commands.append(Write(NEXT_KEY, last.end_sequence.to_bytes(8, "big")))
            await self._tablet.execute(Request(tuple(commands)))
            if self.index is not index:
                return  # loaded again meanwhile, with or without these
            for run in runs:
                index.add(run)
        else:
            await asyncio.sleep(0)  # a set event does not suspend its waiter: without this a round could follow another for ever
        for subject in dirty:
            self._drop_if_clean(subject)
            subject.settle()
        if runs:
            self._moved()

    def _drop_if_clean(self, subject: Subject) -> None:
        try:
            partition = self.partition_of(subject)
        except (PartitionUnavailableError, UnknownTopicError):
            clean = True  # its watcher marks it when it serves again
        else:
            subject.runs.skip_to(partition.start_offset)
            clean = partition.end_offset <= subject.runs.end_offset
        if clean:
            self._dirty.pop(subject.number, None)
        else:
            self._wake.set()

    def _plan(self, dirty: list[Subject]) -> list[Run]:
        runs: list[Run] = []
        next_sequence = self.index.next_sequence
        last = self.index.last_run
        for subject in dirty:
            try:
                partition = self.partition_of(subject)
            except (PartitionUnavailableError, UnknownTopicError):
                continue
            begin = max(subject.runs.end_offset, partition.start_offset)
            count = partition.end_offset - begin
            if count <= 0:
                continue
            last = self.index.grown(subject.number, begin, count, next_sequence, last)
            if runs and runs[-1].sequence == last.sequence:
                runs.pop()
            runs.append(last)
            next_sequence = last.end_sequence
        return runs


def _end(subject: Subject) -> None:
    """Fail all that wait for a subject that is deleted."""
    if subject.watcher is not None:
        subject.watcher.cancel()
    for _, pending in subject.waiting:
        pending.set_exception(UnavailableError(f"subject {subject.name!r} has ended"))
    subject.waiting.clear()
