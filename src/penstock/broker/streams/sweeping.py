"""Deletes expired messages, payloads whose messages are gone, and what a crash left unfinished.

The log decides. A message is gone when its log is cut; its sequence and its payload follow, after a crash too, since they are
looked for again each time. A payload never goes before its message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final

from penstock.broker.consumers import Position, TopicPartition
from penstock.broker.errors import PartitionUnavailableError, UnknownTopicError
from penstock.broker.streams.engine import DeletedMessage
from penstock.broker.streams.payload_store import NOT_YET, LeftUpload, PayloadStore
from penstock.broker.streams.positions import ConsumerPosition, Positions
from penstock.broker.streams.probe import EngineProbe
from penstock.broker.streams.reading import READ_BYTES
from penstock.broker.streams.records import messages_of
from penstock.broker.streams.sequencer import Sequencer, Subject
from penstock.broker.streams.subject_patterns import matches
from penstock.core.errors import PenstockError
from penstock.core.record_format import MAX_MS
from penstock.queue import Partition, joined, offset_of_last, split_batches

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)

SHOWN_AT_ONCE: Final = 200
GROUP_PREFIX: Final = "stream:"  # of the groups under which Kafka's tools see durable consumers


class Sweep:
    """Sweeps all subjects periodically."""

    def __init__(
        self, broker: Broker, sequencer: Sequencer, payloads: PayloadStore, positions: Positions, probe: EngineProbe
    ) -> None:
        self._broker = broker
        self._sequencer = sequencer
        self._payloads = payloads
        self._positions = positions
        self._probe = probe
        self._shown: dict[tuple[str, str], int] = {}  # positions as Kafka's tools were told last
        self._shown_patterns: dict[str, tuple[int, ...]] = {}  # what positions of patterns were told from, by durable name
        self._due: dict[int, tuple[int, int, int]] = {}  # by subject: its start, its time to live, and when the first is over
        self._sweeping = asyncio.Lock()

    async def run(self, interval_s: float) -> None:
        """Run periodically until cancelled."""
        await _try("parts of uploads", self._remove_strays())
        while True:
            await self.once()
            await asyncio.sleep(interval_s)

    async def _remove_strays(self) -> None:
        self._probe.orphans_removed += await self._payloads.remove_strays()

    async def once(self) -> None:
        """Run one sweep; what fails is retried by the next."""
        async with self._sweeping:
            for subject in list(self._sequencer.subjects.values()):
                await _try(f"subject {subject.name!r}", self._sweep_subject(subject))
            await _try("payloads of topics that are gone", self._sweep_gone_topics())
            await _try("uploads that were left", self._settle_uploads())
            await _try("positions for Kafka's tools", self._show_positions())

    async def delete_older_than(self, ttl_s: float) -> list[DeletedMessage]:
        """Delete messages older than `ttl_s`. Returns the deleted messages."""
        gone: list[DeletedMessage] = []
        async with self._sweeping:
            for subject in list(self._sequencer.subjects.values()):
                try:
                    partition = self._sequencer.partition_of(subject)
                except UnknownTopicError:
                    continue
                except PartitionUnavailableError as error:
                    log.warning("old messages of subject %r are not deleted now: %s", subject.name, error)
                    continue
                end = min(partition.stable_offset, subject.runs.end_offset)
                cut = self._spared(subject, await self._first_since(partition, int(ttl_s * 1000), end))
                gone += await self._listed(subject, partition, cut)
                await self._cut(subject, partition, cut)
        return sorted(gone)

    async def _sweep_subject(self, subject: Subject) -> None:
        try:
            partition = self._sequencer.partition_of(subject)
        except PartitionUnavailableError:
            return
        except UnknownTopicError:
            await self._sequencer.detach(subject)
            return
        config = partition.config
        end = min(partition.stable_offset, subject.runs.end_offset)
        cut = partition.start_offset
        if config.retention_ms is not None and self._is_due(subject, partition, config.retention_ms):
            cut = await self._first_since(partition, config.retention_ms, end)
            await self._note_due(subject, partition, config.retention_ms, cut)
        if config.retention_messages is not None:
            cut = max(cut, await offset_of_last(partition, config.retention_messages, end))
        await self._cut(subject, partition, self._spared(subject, cut))

    def _is_due(self, subject: Subject, partition: Partition, ttl_ms: int) -> bool:
        """Whether the oldest message of a subject may have expired; usually decided without reading."""
        due = self._due.get(subject.number)
        return due is None or due[:2] != (partition.start_offset, ttl_ms) or due[2] <= self._broker.ages.wall() * 1000

    async def _note_due(self, subject: Subject, partition: Partition, ttl_ms: int, cut: int) -> None:
        batch = await partition.find_time(0, cut) if cut < partition.end_offset else None
        if batch is None:
            self._due.pop(subject.number, None)
        else:
            latest_ms = int.from_bytes(batch[1][MAX_MS], "big", signed=True)
            self._due[subject.number] = (max(cut, partition.start_offset), ttl_ms, latest_ms + ttl_ms)

    async def _first_since(self, partition: Partition, ttl_ms: int, end: int) -> int:
        """The offset of the first message that is not older than this."""
        batch = await partition.find_time(int(self._broker.ages.wall() * 1000) - ttl_ms)
        return end if batch is None else min(batch[0], end)

    def _spared(self, subject: Subject, cut: int) -> int:
        """The same, limited by what important consumers have read."""
        needed_from = self._broker.needed_from(self._broker.catalog.topic_by_id(subject.topic_id), 0)
        return cut if needed_from is None else min(cut, needed_from)

    async def _cut(self, subject: Subject, partition: Partition, cut: int) -> None:
        """Delete messages before an offset, then their sequences and payloads; also those that Kafka's retention has deleted."""
        before = partition.start_offset
        if cut > before:
            await partition.trim(cut)
            self._probe.expired += max(partition.start_offset - before, 0)
        start = partition.start_offset
        await self._sequencer.forget_before(subject, start)
        await self._payloads.forget_before(subject.topic_id, start)

    async def _listed(self, subject: Subject, partition: Partition, cut: int) -> list[DeletedMessage]:
        deleted: list[DeletedMessage] = []
        offset = partition.start_offset
        while offset < cut:
            read = await partition.read(offset, READ_BYTES, until=cut)
            if read.next_offset <= offset:
                break
            for batch in split_batches(joined(read)):
                for stored in messages_of(batch, offset, cut, partition.origins.marked_from):
                    sequence = subject.runs.sequence_of(stored.offset)
                    name = f"{subject.name}/{stored.offset}" if stored.payload is None else stored.payload.object_name
                    if sequence is not None:
                        deleted.append(DeletedMessage(sequence, subject.name, name))
            offset = read.next_offset
            await asyncio.sleep(0)  # what is in memory is read without suspending
        return deleted

    async def _sweep_gone_topics(self) -> None:
        for topic_id in self._payloads.topics():
            try:
                self._broker.catalog.topic_by_id(topic_id)
            except UnknownTopicError:
                await self._payloads.forget_before(topic_id, None)

    async def _settle_uploads(self) -> None:
        for upload in self._payloads.left_uploads():
            await _try(f"upload {upload.object_id.hex}", self._settle_upload(upload))

    async def _settle_upload(self, upload: LeftUpload) -> None:
        """Settle an unfinished upload of an earlier process: claim it for its message if that is stored, else delete it."""
        try:
            topic = self._broker.catalog.topic_by_id(upload.topic_id)
        except UnknownTopicError:
            await self._remove_orphan(upload)
            return
        if upload.from_offset == NOT_YET:
            await self._remove_orphan(upload)
            log.info("an upload of %r that was not finished is removed", topic.name)
            return
        offset = await _offset_of(self._broker.partition(topic, 0), upload)
        if offset is None:
            await self._remove_orphan(upload)
            log.info("a payload of %r whose message was not written is removed", topic.name)
        else:
            await self._payloads.claim(upload.object_id, upload.topic_id, offset)

    async def _remove_orphan(self, upload: LeftUpload) -> None:
        await self._payloads.remove_upload(upload.object_id)
        self._probe.orphans_removed += 1

    async def _show_positions(self) -> None:
        """Publish the positions of durable consumers as committed offsets of groups."""
        moved: list[tuple[ConsumerPosition, Subject]] = []
        for position in [*await self._positions_of_patterns(), *self._positions.all()]:
            subject = self._sequencer.subjects.get(position.subject)
            if subject is not None and self._shown.get(position[:2]) != position.last_sequence:
                moved.append((position, subject))
        for begin in range(0, len(moved), SHOWN_AT_ONCE):
            some = moved[begin : begin + SHOWN_AT_ONCE]
            await self._broker.consumers.commit_all([_shown(*position) for position in some])
            self._shown.update((position[:2], position.last_sequence) for position, _ in some)

    async def _positions_of_patterns(self) -> list[ConsumerPosition]:
        """Positions of patterns that have moved, in each subject of theirs where the consumer has no position of its own; of
        several patterns of a consumer, the one that is behind counts. New subjects count as a move."""
        subjects = self._sequencer.subjects
        newest = next(reversed(subjects.values())).number if subjects else 0
        by_name: dict[str, list[ConsumerPosition]] = {}
        for position in self._positions.of_patterns():
            by_name.setdefault(position.durable_name, []).append(position)
        effective: list[ConsumerPosition] = []
        for durable_name, positions in by_name.items():
            mark = (len(subjects), newest, *(position.last_sequence for position in positions))
            if self._shown_patterns.get(durable_name) == mark:
                continue
            self._shown_patterns[durable_name] = mark
            await asyncio.sleep(0)  # each looks at all subjects
            for name in list(subjects):
                own = [position.last_sequence for position in positions if matches(position.subject, name)]
                if own and not self._positions.has(durable_name, name):
                    effective.append(ConsumerPosition(durable_name, name, min(own)))
        return effective


def _shown(position: ConsumerPosition, subject: Subject) -> tuple[str, TopicPartition, Position]:
    """A durable consumer as a group."""
    offset = subject.runs.offset_after(position.last_sequence)
    queue, metadata = TopicPartition(subject.topic_id, 0), f"sequence {position.last_sequence}"
    return GROUP_PREFIX + position.durable_name, queue, Position(offset, metadata=metadata)


async def _try(what: str, work: Coroutine[object, object, object]) -> None:
    """Run a step; a failure is retried by the next sweep."""
    try:
        await work
    except PenstockError as error:
        log.warning("%s: the sweep will be tried again: %s", what, error)


async def _offset_of(partition: Partition, upload: LeftUpload) -> int | None:
    """Where the message of an upload is in the log; None if it was never written, or is gone again."""
    offset = max(upload.from_offset, partition.start_offset)
    end = partition.end_offset
    while offset < end:
        read = await partition.read(offset, READ_BYTES, until=end)
        if read.next_offset <= offset:
            break
        for batch in split_batches(joined(read)):
            for stored in messages_of(batch, offset, end, partition.origins.marked_from):
                if stored.payload is not None and stored.payload.object_id == upload.object_id:
                    return stored.offset
        offset = read.next_offset
        await asyncio.sleep(0)  # what is in memory is read without suspending
    return None
