"""Streams: subjects with one sequence over all of them, payloads of any size, and durable consumers (seed 004)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock.blob import Buffer
from penstock.broker.errors import UnknownTopicError
from penstock.broker.streams.deliveries import DeliveryTracker
from penstock.broker.streams.engine import DeletedMessage, PartlyPublishedError, PublishResult, first_messages
from penstock.broker.streams.errors import InvalidPositionError, InvalidSubjectError, UnknownMessageError
from penstock.broker.streams.followers import Followers
from penstock.broker.streams.payload_parts import chained, check_announced, in_one_piece
from penstock.broker.streams.payload_store import PayloadStore, Upload
from penstock.broker.streams.positions import ConsumerPosition, DeliveryRule, Positions
from penstock.broker.streams.probe import EngineProbe
from penstock.broker.streams.publisher import RECORD_BYTES, Publisher
from penstock.broker.streams.reading import Reader, ReadMessages, StreamMessage
from penstock.broker.streams.records import (
    HEADERS_BYTES_MAX,
    OWN_PREFIX,
    RECORD_OVERHEAD,
    Content,
    Payload,
    content_size,
    fitting_headers,
    headers_size,
)
from penstock.broker.streams.sequencer import Sequencer, Subject
from penstock.broker.streams.subject_directory import SubjectDirectory, once_there
from penstock.broker.streams.subject_patterns import check_pattern, check_subject, is_pattern, matches
from penstock.broker.streams.sweeping import Sweep
from penstock.core.checksum import crc32c as checksum_of
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.queue import Partition

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.route import Route

log = logging.getLogger(__name__)

STREAMS_TABLET: Final = 6
PAYLOADS_TABLET: Final = 7
INLINE_BYTES_MAX: Final = 1 << 20
FETCH_BYTES_MAX: Final = 8 << 20
PART_OF_READ: Final = 1 << 20
PAYLOADS_SUMMED_MAX: Final = 2000
NOTE_BYTES_MAX: Final = 4096  # of the headers of a dead letter that say where it is from
ACK_WAIT_S_MAX: Final = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How streams behave."""

    inline_bytes_max: int = INLINE_BYTES_MAX  # larger payloads go to the payload store
    ttl_s: float | None = None  # of subjects that are made here; None: for ever
    sweep_interval_s: float = 1.0


class TopicLogs:
    """Subjects' logs, as the sequencer asks for them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def partition(self, topic_id: bytes) -> Partition:
        """The one partition of a subject's topic."""
        return self._broker.route(topic_id, 0).partition


class Streams:
    """The streams of a broker. Make them with `start`; `stop` them before the broker."""

    def __init__(
        self,
        broker: Broker,
        options: StreamOptions,
        *,
        sequencer: Sequencer,
        positions: Positions,
        payloads: PayloadStore,
        followers: Followers,
    ) -> None:
        self._broker = broker
        self._options = options
        self._clock = broker.clock
        self._sequencer = sequencer
        self.positions = positions
        self.payloads = payloads
        self.followers = followers
        self.probe = EngineProbe()
        self.directory = SubjectDirectory(broker, sequencer, options.ttl_s)
        self._publisher = Publisher(broker, sequencer)
        self._reader = Reader(sequencer, broker.ages)
        self._deliveries = DeliveryTracker(positions, self._reader, self._dead_letter, broker.clock, self.probe)
        self._sweep = Sweep(broker, sequencer, payloads, positions, self.probe)
        self._tasks: list[asyncio.Task[None]] = []
        self._storing: set[asyncio.Task[PublishResult]] = set()

    @classmethod
    async def start(cls, broker: Broker, options: StreamOptions, *, random: Random) -> Streams:
        """Start the tablets of the streams, and number messages that have no sequence yet."""
        tablet, payload_tablet = await asyncio.gather(broker.system_tablet(STREAMS_TABLET), broker.system_tablet(PAYLOADS_TABLET))
        followers = Followers(broker.clock)
        sequencer = Sequencer(tablet, TopicLogs(broker), moved=followers.tell)
        positions = Positions(tablet)
        payloads = PayloadStore(payload_tablet, random)
        streams = cls(broker, options, sequencer=sequencer, positions=positions, payloads=payloads, followers=followers)
        tablet.on_restart(sequencer.reload)
        tablet.on_restart(positions.reload)
        tablet.on_restart(streams._deliveries.reload)
        sequencer.start()
        streams._tasks.append(asyncio.create_task(streams._sweep.run(options.sweep_interval_s), name="stream-sweep"))
        return streams

    async def stop(self) -> None:
        """Stop numbering messages."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sequencer.stop()
        await asyncio.gather(*self._storing, return_exceptions=True)

    def subjects(self) -> list[str]:
        """The names of all subjects."""
        return self.directory.names()

    @property
    def newest_sequence(self) -> int:
        """The last assigned sequence; 0 if there is none."""
        return self._sequencer.index.next_sequence - 1

    async def publish(self, subject: str, data: Buffer, headers: Mapping[str, str] | None = None) -> PublishResult:
        """Publish one message; it is durable and can be read when this returns."""
        content = Content(bytes(data), headers or {})
        target, route = self.directory.place_at_hand(subject) or await self.directory.place(subject)
        size = content_size(content)
        if size > self._inline_max(route):
            return await self.publish_parts(subject, in_one_piece(content.data), content.headers)
        sequence, offset = await self._publisher.append(target, route, (content,), size + RECORD_BYTES)
        self.probe.note_published(1, len(content.data))
        return PublishResult(sequence, f"{subject}/{offset}")

    async def publish_batch(self, subject: str, contents: Sequence[Content]) -> list[PublishResult]:
        """Publish messages of one subject, with sequences that follow each other unless large ones are among them.
        PartlyPublishedError if some are published and others cannot be."""
        published: list[PublishResult] = []
        try:
            if contents:
                await self._publish_runs(subject, contents, published)
        except PenstockError as error:
            if published:
                raise PartlyPublishedError(published, error) from error
            raise
        return published

    async def _publish_runs(self, subject: str, contents: Sequence[Content], published: list[PublishResult]) -> None:
        """Publish messages in batches. `published` grows with each."""
        target, route = self.directory.place_at_hand(subject) or await self.directory.place(subject)
        size_max = self._inline_max(route)
        run: list[Content] = []
        run_size = 0
        sizes = [content_size(content) for content in contents]  # of messages that cannot be, none is published
        for content, size in zip(contents, sizes, strict=True):
            if run and (size > size_max or run_size + size + RECORD_BYTES > size_max):
                published += await self._store(target, route, run, run_size)
                run, run_size = [], 0
            if size > size_max:
                published.append(await self.publish_parts(subject, in_one_piece(content.data), content.headers))
            else:
                run.append(content)
                run_size += size + RECORD_BYTES
        if run:
            published += await self._store(target, route, run, run_size)

    async def publish_reference(self, subject: str, object_name: str, headers: Mapping[str, str] | None = None) -> int:
        """The seed's publish_message: a message whose payload the publisher keeps elsewhere; its sequence."""
        content = Content(b"", headers or {}, Payload(object_name))
        target, route = self.directory.place_at_hand(subject) or await self.directory.place(subject)
        stored = await self._publisher.append(target, route, (content,), content_size(content) + RECORD_BYTES)
        self.probe.note_published(1, 0)
        return stored.sequence

    async def publish_stream(
        self,
        subject: str,
        parts: AsyncIterator[Buffer],
        headers: Mapping[str, str] | None = None,
        *,
        crc32c: int | None = None,
        size: int | None = None,
    ) -> PublishResult:
        """Publish data that arrives in parts, of any size: small data is stored in the log, large data in the payload store.
        It must match the checksum or size, if given."""
        held: list[Buffer] = []
        held_bytes = 0
        async for part in parts:
            held.append(part)
            held_bytes += len(part)
            if held_bytes > self._options.inline_bytes_max:
                return await self.publish_parts(subject, chained(held, parts), headers, crc32c=crc32c, size=size)
        data = b"".join(held)
        check_announced(len(data), checksum_of(data), size, crc32c)
        return await self.publish(subject, data, headers)

    async def publish_parts(
        self,
        subject: str,
        parts: AsyncIterator[Buffer],
        headers: Mapping[str, str] | None = None,
        *,
        crc32c: int | None = None,
        size: int | None = None,
    ) -> PublishResult:
        """The same, always in the payload store: the payload is there before its message can be seen."""
        target = await self.directory.subject(subject, make=True)
        headers = headers or {}
        headers_size(headers)
        upload = self.payloads.begin(target.topic_id)
        try:
            async for part in parts:
                await upload.append(part)
            stored = await upload.finish()
            check_announced(stored.size, stored.crc32c, size, crc32c)
        except (Exception, asyncio.CancelledError):
            await asyncio.shield(upload.abandon())
            raise
        # The publisher may disconnect, but whether its message is stored must be known before the payload may be deleted.
        storing = asyncio.create_task(self._store_reference(target, upload, headers))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        return await asyncio.shield(storing)

    async def get_message(self, sequence: int) -> StreamMessage | None:
        """The message of a sequence; None if there is none, or none any more."""
        message = await self._reader.by_sequence(sequence)
        if message is not None:
            self.probe.read += 1
            self.probe.read_bytes += len(message.data)
        return message

    async def read(self, subject: str, from_sequence: int, limit: int, bytes_max: int = FETCH_BYTES_MAX) -> ReadMessages:
        """Messages from a sequence on, of a subject or of all that a pattern stands for, in order."""
        if limit < 1:
            return ReadMessages([], from_sequence)
        if is_pattern(subject):
            await self.directory.matching(subject)

            def is_wanted(candidate: Subject) -> bool:
                # By name, not by what was just found: a subject that is made meanwhile must not be passed over.
                return matches(subject, candidate.name)

            # Nothing happens between this look and the one that reading begins with: all that is wanted is served then.
            await once_there(lambda: self._reader.readable_to(is_wanted))
            read = await self._reader.of_pattern(is_wanted, from_sequence, limit, bytes_max)
        else:
            target = await self.directory.complete(subject)
            read = await self._reader.of_subject(target, from_sequence, limit, bytes_max)
        self.probe.note_read(read.messages)
        return read

    async def fetch(self, subject: str, durable_name: str, limit: int, bytes_max: int = FETCH_BYTES_MAX) -> list[StreamMessage]:
        """What a durable consumer has not acknowledged. Without a rule of delivery this changes nothing; with one, each message
        is handed to one caller until its time to acknowledge is over."""
        if not durable_name:
            raise InvalidRequestError("a fetch needs a durable name; without one, read from a sequence on")
        rule = self.positions.rule(durable_name, subject)
        if rule is None or is_pattern(subject):
            position = self.positions.position(durable_name, subject)
            return await first_messages(self, subject, position + 1, limit, bytes_max)
        taken = await self._deliveries.take(durable_name, await self.directory.complete(subject), rule, limit, bytes_max)
        self.probe.note_read(taken)
        return taken

    async def acknowledge(self, durable_name: str, subject: str, sequence: int, *, rewind: bool = False) -> int:
        """A consumer has dealt with a message, and unless it has a rule of delivery with all before it; its position then. An
        acknowledgement never moves a position back unless asked to rewind."""
        if not 0 <= sequence <= self.newest_sequence:
            raise InvalidPositionError(
                f"sequence {sequence} was not given out yet, the last is {self.newest_sequence}; acknowledge what was read"
            )
        if is_pattern(subject):
            check_pattern(subject)
        else:
            target = self.directory.at_hand(subject) or await self.directory.subject(subject)
            if not rewind and self.positions.rule(durable_name, subject) is not None:
                return await self._deliveries.acknowledge(durable_name, target, sequence)
        position = await self.positions.move(durable_name, subject, sequence, rewind=rewind)
        if rewind:
            self._deliveries.forget(durable_name, subject)
        return position

    async def set_rule(self, durable_name: str, subject: str, rule: DeliveryRule | None) -> None:
        """Set the delivery rule of a durable consumer."""
        if rule is not None and not 0 < rule.ack_wait_s <= ACK_WAIT_S_MAX:
            raise InvalidRequestError(f"ack_wait_s is {rule.ack_wait_s}; it is above 0 and at most {ACK_WAIT_S_MAX:.0f} seconds")
        await self.directory.subject(subject, make=True)
        if rule is not None and rule.dead_letter:
            check_subject(rule.dead_letter)
            if rule.dead_letter == subject:
                raise InvalidSubjectError("a subject cannot be its own dead-letter subject; its messages would never end")
        await self.positions.set_rule(durable_name, subject, rule)
        self._deliveries.forget(durable_name, subject)

    async def last_sequence(self, subject: str) -> int:
        """The last sequence that can be read, of a subject or of all a pattern stands for; 0 if there is none."""
        if not is_pattern(subject):
            try:
                return self._reader.last_sequence(await self.directory.complete(subject))
            except UnknownTopicError:
                return 0
        await self.directory.matching(subject)

        def look() -> int:
            wanted = [entry for entry in self._sequencer.subjects.values() if matches(subject, entry.name)]
            last = max((self._reader.last_sequence(entry) for entry in wanted if self.directory.is_current(entry)), default=0)
            return min(last, self._reader.readable_to(lambda candidate: matches(subject, candidate.name)) - 1)

        return await once_there(look)

    def position(self, durable_name: str, subject: str) -> int:
        """The last sequence a consumer has acknowledged; 0 if none."""
        return self.positions.position(durable_name, subject)

    def offset_after(self, subject: str, sequence: int) -> int | None:
        """Where in the topic of a subject the first message with a higher sequence is; None if there is no such subject."""
        target = self.directory.at_hand(subject)
        return None if target is None else target.runs.offset_after(sequence)

    def sequence_at(self, subject: str, offset: int) -> int | None:
        """The sequence of the message at an offset of the topic of a subject; None if it has none."""
        target = self.directory.at_hand(subject)
        return None if target is None else target.runs.sequence_of(offset)

    def payload_bytes(self, subject: str) -> int | None:
        """The bytes of all payloads of a subject outside the log; None if it is unknown or has too many to add them up."""
        target = self.directory.at_hand(subject)
        return None if target is None else self.payloads.bytes_of(target.topic_id, PAYLOADS_SUMMED_MAX)

    def consumers(self, subject: str) -> list[ConsumerPosition]:
        """Every durable consumer of a subject, also by a pattern; of a pattern, all consumers of what it stands for."""
        return self.positions.of_subject(subject)

    async def get_position(self, durable_name: str, subject: str) -> int:
        """The same as `position`; engines that keep it elsewhere have to ask."""
        return self.position(durable_name, subject)

    async def get_consumers(self, subject: str) -> list[ConsumerPosition]:
        """The same as `consumers`."""
        return self.consumers(subject)

    async def get_subjects(self) -> list[str]:
        """The same as `subjects`."""
        return self.subjects()

    async def delete_old(self, ttl_s: float) -> list[DeletedMessage]:
        """Delete messages older than `ttl_s` in every subject, with their payloads. Returns the deleted messages."""
        return await self._sweep.delete_older_than(ttl_s)

    async def locate_payload(self, message: StreamMessage) -> StreamMessage:
        """The same: what publishers keep is nowhere that this engine knows of."""
        return message

    async def payload_of(self, sequence: int) -> tuple[StreamMessage, int]:
        """A message with a payload, and the size of the payload. Raises UnknownMessageError if there is none."""
        message = await self._reader.by_sequence(sequence)
        if message is None:
            raise UnknownMessageError(f"there is no message {sequence}, or its time is over")
        payload = message.payload
        if payload is not None and payload.size < 0:
            raise UnknownMessageError(f"the payload of message {sequence} is kept by its publisher: {payload.object_name!r}")
        self._object_id(message)
        self.probe.read += 1  # its bytes count as they are read
        return message, len(message.data) if payload is None else payload.size

    async def read_payload(self, message: StreamMessage, begin: int = 0, end: int | None = None) -> AsyncIterator[memoryview]:
        """The bytes begin <= at < end of a payload, part by part."""
        payload = message.payload
        if payload is None:
            view = memoryview(message.data)[begin:end]
            for at in range(0, len(view), PART_OF_READ):
                part = view[at : at + PART_OF_READ]
                self.probe.read_bytes += len(part)
                yield part
            return
        object_id = self._object_id(message)
        assert object_id is not None, "it has a payload"
        async for part in self.payloads.read(object_id, payload.size, begin, end):
            self.probe.read_bytes += len(part)
            yield part

    async def sweep(self) -> None:
        """Delete expired messages now."""
        await self._sweep.once()

    def _object_id(self, message: StreamMessage) -> UUID | None:
        """Which payload of the store is a message's; None if it needs none. UnknownMessageError if the store does not say so,
        whatever the message says."""
        if message.payload is None:
            return None
        object_id, subject = message.payload.object_id, self.directory.at_hand(message.subject)
        if object_id is None or subject is None or not self.payloads.is_of(object_id, subject.topic_id, message.offset):
            name = message.payload.object_name
            raise UnknownMessageError(f"{name!r} is no payload of message {message.sequence}, or its time is over")
        return object_id

    def _inline_max(self, route: Route) -> int:
        return min(self._options.inline_bytes_max, route.partition.config.batch_bytes_max - RECORD_OVERHEAD)

    async def _store(self, subject: Subject, route: Route, contents: Sequence[Content], size: int) -> list[PublishResult]:
        """Store contents in one batch, and wait for their sequences."""
        sequence, offset = await self._publisher.append(subject, route, contents, size)
        self.probe.note_published(len(contents), sum(len(content.data) for content in contents))
        return [
            PublishResult(
                sequence + at, f"{subject.name}/{offset + at}" if content.payload is None else content.payload.object_name
            )
            for at, content in enumerate(contents)
        ]

    async def _store_reference(self, subject: Subject, upload: Upload, headers: Mapping[str, str]) -> PublishResult:
        """Write the message of a stored payload. If this fails midway, the sweep settles the upload."""
        try:
            route = await self.directory.route(subject.name)
            payload = Payload(f"{subject.name}/{upload.object_id.hex}", upload.size, upload.crc32c)
            await self.payloads.expect_message(upload, route.partition.end_offset)
            content = Content(b"", headers, payload)
            stored = await self._publisher.append(subject, route, (content,), content_size(content) + RECORD_BYTES)
            self.probe.note_published(1, upload.size)
            try:
                await self.payloads.claim(upload.object_id, subject.topic_id, stored.offset)
            except PenstockError as error:
                # The message is there and has its sequence; the sweep finds the two together.
                log.warning("payload %s will be claimed later: %s", payload.object_name, error)
            return PublishResult(stored.sequence, payload.object_name)
        finally:
            self.payloads.active.discard(upload.object_id)

    async def _dead_letter(self, subject: str, message: StreamMessage, durable_name: str, tries: int) -> None:
        """Publish a message that was delivered too often to its dead letter subject, with its origin in headers."""
        headers = {name: value for name, value in message.headers.items() if name and not name.startswith(OWN_PREFIX)}
        # Whatever a Kafka client has written must fit: a letter that cannot be written would be tried for ever.
        headers = fitting_headers(headers, HEADERS_BYTES_MAX - NOTE_BYTES_MAX, "dead-letter.headers_left_out")
        headers |= {
            "dead-letter.subject": message.subject,
            "dead-letter.sequence": str(message.sequence),
            "dead-letter.consumer": durable_name,
            "dead-letter.tries": str(tries),
        }
        if message.payload is None:
            await self.publish(subject, message.data, headers)
        elif message.payload.size < 0:
            await self.publish_reference(subject, message.payload.object_name, headers)
        else:
            await self.publish_parts(subject, self.read_payload(message), headers)
