"""StreamWrite: one producer, one partition; messages are stored in order and acknowledged in order."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from penstock.broker import Broker, Operation, PartitionElsewhereError, Route, Topic, TopicPartition
from penstock.broker.quotas import PRODUCE_QUOTA
from penstock.core.checksum import crc32c
from penstock.core.errors import PenstockError
from penstock.core.probe import OK, Span
from penstock.core.trace_context import TRACEPARENT, checked_traceparent
from penstock.gateway.ydb import topic_settings
from penstock.gateway.ydb.paths import topic_name
from penstock.gateway.ydb.plain_request import PlainRequest, parse_plain_request
from penstock.gateway.ydb.protos import CODEC_NAMES, RAW, Status, topic
from penstock.gateway.ydb.query_sessions import QuerySessions, TopicTransaction
from penstock.gateway.ydb.sign_in import SignIn
from penstock.gateway.ydb.statuses import StatusError, bad_request, unsupported
from penstock.gateway.ydb.stream import Stream
from penstock.gateway.ydb.write_acks import Seqnos, write_response
from penstock.gateway.ydb.writers import Outcome, ProducerKey, Writers
from penstock.gateway.ydb.written_batch import BATCH_BYTES, WriteSession, WrittenBatch, decompress_data, encode_batches
from penstock.queue import SourceWrite, WriteQueueFullError, WriteResult

IN_FLIGHT_BYTES_MAX: Final = 16 << 20  # of one stream; nothing more is received while more waits for the disk
IN_PLACE_BYTES_MAX: Final = 64 << 10  # more than this is compressed in a thread


def source_of(producer: str) -> bytes:
    """The source id of a producer, as partitions know it."""
    return b"y" + producer.encode()


class PendingRequest(NamedTuple):
    """A request that is not acknowledged yet: the seqnos of its messages, how many of them are duplicates, and its batches. It
    has no batches if they are written when a transaction commits."""

    seqnos: Seqnos
    skipped: int
    batches: list[tuple[int, Outcome]]
    size: int
    began: float
    span: Span | None


class WriteStream:
    """One stream of a writer."""

    def __init__(
        self,
        stream: Stream,
        broker: Broker,
        writers: Writers,
        *,
        transactions: QuerySessions,
        sign_in: SignIn,
        random: Random,
    ) -> None:
        self._stream = stream
        self._broker = broker
        self._writers = writers
        self._transactions = transactions
        self._sign_in = sign_in
        self._random = random
        self._topic: Topic
        self._number = 0
        self._writer = WriteSession.of("", "", {})
        self._key: ProducerKey | None = None
        self._codecs: frozenset[int] = frozenset()
        self._known_seqno = 0  # written before this stream began
        self._last_seqno = 0  # the last that this stream has received
        self._pending: deque[PendingRequest] = deque()
        self._in_flight_bytes = 0
        self._changed = asyncio.Event()

    async def serve(self) -> None:
        """Serve the stream to its end."""
        first = await self._stream.receive()
        if first is None:
            return
        if first.WhichOneof("client_message") != "init_request":
            raise bad_request("a stream begins with init_request")
        end = self._stream.end
        try:
            await self._begin(first.init_request)
            await self._stream.run(self._receive(), self._acknowledge())
        finally:
            if self._key is not None:
                self._writers.leave(self._key, end)

    async def _begin(self, request: Any) -> None:
        name = topic_name(request.path, self._stream.database)
        self._stream.caller.check_topic(Operation.WRITE, name)
        self._topic = self._broker.catalog.topic(name)
        settings = topic_settings.settings_of(self._topic)
        self._codecs = frozenset(settings.codecs)
        group = request.message_group_id if request.WhichOneof("partitioning") == "message_group_id" else ""
        self._writer = WriteSession.of(request.producer_id, group, dict(request.write_session_meta))
        if request.producer_id:
            self._key = ProducerKey(self._topic.id, request.producer_id)
            # Its writes in flight decide its partition and its last seqno.
            await self._writers.take_over(self._key, self._stream.end)
        self._number = self._choose_partition(request)
        if request.producer_id:
            state = self._route().partition.source(source_of(request.producer_id))
            self._known_seqno = self._last_seqno = 0 if state is None else state.max_seqno
        response = topic.StreamWriteMessage.InitResponse(
            last_seq_no=self._known_seqno,
            session_id=str(UUID(int=self._random.getrandbits(128), version=4)),
            partition_id=self._number,
            supported_codecs=topic.SupportedCodecs(codecs=settings.codecs),
        )
        await self._stream.send(init_response=response)

    def _choose_partition(self, request: Any) -> int:
        """The partition of a stream: where its producer has written, else the requested one, else by its group."""
        count = self._topic.partitions
        kind = request.WhichOneof("partitioning")
        wanted: int | None = None
        if kind == "partition_id":
            wanted = request.partition_id
        elif kind == "partition_with_generation":
            wanted = request.partition_with_generation.partition_id
            if 0 <= wanted < count:
                generation = self._broker.partition(self._topic, wanted).epoch
                if generation != request.partition_with_generation.generation:
                    raise StatusError(Status.UNAVAILABLE, f"partition {wanted} is in generation {generation} by now")
        if wanted is not None and not 0 <= wanted < count:
            raise bad_request(f"topic {self._topic.name!r} has partitions 0..{count - 1}, not {wanted}")
        group = (request.message_group_id if kind == "message_group_id" else "") or request.producer_id
        home = self._known_partition(request.producer_id, group) if request.producer_id else None
        if home is not None:
            if wanted is not None and wanted != home:
                raise bad_request(
                    f"producer {request.producer_id!r} writes to partition {home}, where its seqnos are stored, and cannot "
                    f"write to {wanted}; use another producer id there"
                )
            return home
        if wanted is not None:
            return int(wanted)
        return by_group(group, count) if group else self._random.randrange(count)

    def _known_partition(self, producer: str, group: str) -> int | None:
        """The partition that stores the seqnos of a producer. Returns None if there is none, or none on this node: a producer
        writes to one partition, and where another node has that one, writing here is refused."""
        source = source_of(producer)
        numbers: list[int] = [by_group(group, self._topic.partitions), *range(self._topic.partitions)]
        for number in numbers:
            with suppress(PartitionElsewhereError):
                if self._broker.partition(self._topic, number).source(source) is not None:
                    return number
        return None

    def _route(self) -> Route:
        return self._broker.route(self._topic.id.bytes, self._number)

    async def _receive(self) -> None:
        while (encoded := await self._stream.receive_encoded()) is not None:
            plain = parse_plain_request(encoded)
            if plain is not None and RAW in self._codecs:
                await self._write_plain(plain)
                continue
            message = self._stream.decode(encoded)
            kind = message.WhichOneof("client_message")
            if kind == "write_request":
                await self._write(message.write_request)
            elif kind == "update_token_request":
                self._stream.caller = self._sign_in.caller(message.update_token_request.token, self._stream.caller.host)
                await self._wait_acknowledged()
                await self._stream.send(update_token_response=topic.UpdateTokenResponse())
            else:
                raise bad_request(f"{kind or 'an empty message'} is not expected within a stream")
        await self._wait_acknowledged()

    async def _wait_acknowledged(self) -> None:
        """Wait until all requests are acknowledged; only then may another task than `_acknowledge` send."""
        while self._pending:
            self._changed.clear()
            await self._changed.wait()

    async def _write(self, request: Any) -> None:
        messages = list(request.messages)
        self._check(request, messages)
        seqnos = np.array([message.seq_no for message in messages], np.int64)
        skipped = self._count_duplicates(seqnos)
        new = messages[skipped:]
        size = sum(len(message.data) for message in new)
        batches = await self._encode(new, request.codec or RAW, size)
        in_transaction = self._transactions.find(request.tx.session, request.tx.id) if request.HasField("tx") else None
        await self._deliver(
            seqnos, skipped, batches, size, in_transaction=in_transaction, traceparent=self._traceparent(messages)
        )

    def _traceparent(self, messages: list[Any]) -> str | None:
        """The trace of the first message, if tracing is on."""
        if self._stream.probe.tracing is None:
            return None
        values = (item.value for item in messages[0].metadata_items if item.key == TRACEPARENT)
        return checked_traceparent(next(values, b"").decode("ascii", "replace"))

    async def _write_plain(self, request: PlainRequest) -> None:
        self._stream.caller.check_topic(Operation.WRITE, self._topic.name)
        seqnos = request.seqnos
        skipped = self._count_duplicates(seqnos)
        batches: list[WrittenBatch] = []
        for batch in request.batches(self._writer, skipped, self._batch_bytes()):
            if batches:
                await asyncio.sleep(0)
            batches.append(batch)
        await self._deliver(seqnos, skipped, batches, request.size(skipped))

    async def _deliver(
        self,
        seqnos: Seqnos,
        skipped: int,
        batches: list[WrittenBatch],
        size: int,
        *,
        in_transaction: TopicTransaction | None = None,
        traceparent: str | None = None,
    ) -> None:
        """Store batches, or add them to a transaction, and throttle the writer. `_acknowledge` answers in order."""
        while self._pending and self._in_flight_bytes + size > IN_FLIGHT_BYTES_MAX:
            self._changed.clear()
            await self._changed.wait()
        tracing = self._stream.probe.tracing
        span = None if tracing is None else tracing.begin("ydb StreamWrite", traceparent, {"messaging.system": "ydb"})
        pending = PendingRequest(seqnos, skipped, [], size, self._broker.clock.monotonic(), span)
        if in_transaction is None:
            await self._store(batches, seqnos[skipped:], pending)
        else:
            self._transactions.write(in_transaction, TopicPartition(self._topic.id, self._number), batches)
        self._in_flight_bytes += size
        self._pending.append(pending)
        self._changed.set()
        if self._broker.quotas.limits_produce:
            throttle_ms = self._broker.quotas.draw(PRODUCE_QUOTA, self._stream.caller.user, self._writer.producer, size)
            if throttle_ms:
                self._stream.probe.count_throttle(throttle_ms / 1000)
            await asyncio.sleep(throttle_ms / 1000)
        delay_s = self._writers.speed.delay_s(self._broker.catalog.topic_by_id(self._topic.id), self._number, size)
        if delay_s:
            await asyncio.sleep(delay_s)

    def _check(self, request: Any, messages: list[Any]) -> None:
        self._stream.caller.check_topic(Operation.WRITE, self._topic.name)
        codec = request.codec or RAW
        if codec not in self._codecs:
            known = ", ".join(CODEC_NAMES.get(allowed, str(allowed)) for allowed in sorted(self._codecs))
            raise bad_request(f"topic {self._topic.name!r} does not take codec {codec}; it takes {known}")
        if not messages:
            raise bad_request("a write_request without messages")
        for message in messages:
            kind = message.WhichOneof("partitioning")
            if kind == "partition_id" and message.partition_id != self._number:
                raise bad_request(
                    f"message {message.seq_no} is for partition {message.partition_id}, the stream for {self._number}"
                )
            if kind == "partition_with_generation":
                raise unsupported("only a stream as a whole can ask for a generation of a partition")

    def _count_duplicates(self, seqnos: Seqnos) -> int:
        """How many messages at the start were written before. StatusError if the seqnos do not rise."""
        if self._key is None:
            return 0
        unordered = first_unordered(seqnos)
        if unordered is not None:
            before = int(seqnos[unordered - 1]) if unordered else 0
            raise bad_request(f"message {seqnos[unordered]} comes after message {before}; numbers begin with 1 and rise")
        skipped = int(np.searchsorted(seqnos, self._known_seqno, "right"))
        if skipped < len(seqnos):
            if seqnos[skipped] <= self._last_seqno:
                raise bad_request(
                    f"message {seqnos[skipped]} comes after message {self._last_seqno}; numbers rise within a stream"
                )
            self._last_seqno = int(seqnos[-1])
        return skipped

    async def _encode(self, messages: list[Any], codec: int, size: int) -> list[WrittenBatch]:
        """Encode messages as batches, in a thread if that takes long."""
        limit = self._batch_bytes()
        if codec != RAW and size > IN_PLACE_BYTES_MAX:
            return await asyncio.to_thread(_batches, self._writer, messages, codec, limit)
        batches: list[WrittenBatch] = []
        for batch in encode_batches(self._writer, messages, decompress_data(messages, codec), codec, limit):
            if batches:
                await asyncio.sleep(0)
            batches.append(batch)
        return batches

    def _batch_bytes(self) -> int:
        """The largest batch: the topic may allow only smaller ones than usual."""
        return min(BATCH_BYTES, self._route().partition.config.batch_bytes_max)

    async def _store(self, batches: list[WrittenBatch], seqnos: Seqnos, pending: PendingRequest) -> None:
        """Enqueue batches, waiting for earlier ones of the request while the write queue is full."""
        at = 0
        for batch in batches:
            at += batch.messages
            source = None
            if self._key is not None:
                # Seqnos may have gaps; the next stream needs only the last.
                source = SourceWrite(source_of(self._key.producer), int(seqnos[at - 1]) - batch.messages + 1)
            outcome = self._enqueue(batch, source)
            for _, earlier in pending.batches if outcome is None else ():
                await asyncio.wait([earlier])
                outcome = self._enqueue(batch, source)
                if outcome is not None:
                    break
            if outcome is None:
                raise StatusError(Status.OVERLOADED, f"the write queue of partition {self._number} is full; retry")
            pending.batches.append((batch.messages, outcome))

    def _enqueue(self, batch: WrittenBatch, source: SourceWrite | None) -> Outcome | None:
        """Enqueue one batch. Returns None if the write queue is full."""
        if self._stream.ended.done():
            self._stream.ended.result()  # another stream of this producer took over; writes of this one must not follow
        outcome: Outcome = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(_retrieve_error)
        try:
            self._broker.begin_produce(self._route(), batch.data, outcome, source)
        except WriteQueueFullError:
            return None
        if self._key is not None:
            self._writers.track(self._key, outcome)
        return outcome

    async def _acknowledge(self) -> None:
        """Acknowledge each request once all of it is durable, in order."""
        while True:
            while not self._pending:
                self._changed.clear()
                await self._changed.wait()
            pending = self._pending[0]
            results: list[tuple[int, WriteResult]] = [(count, await outcome) for count, outcome in pending.batches]
            waited_s = self._broker.clock.monotonic() - pending.began
            self._stream.probe.note("StreamWrite", OK, waited_s)
            if pending.span is not None:
                pending.span.end(OK)
            await self._stream.send_encoded(
                write_response(pending.seqnos, pending.skipped, results, partition=self._number, waited_s=waited_s)
            )
            self._pending.popleft()
            self._in_flight_bytes -= pending.size
            self._changed.set()


def first_unordered(seqnos: Seqnos) -> int | None:
    """The index of the first seqno that is not above the one before it, or above 0. Returns None if all are."""
    falls = np.flatnonzero(np.diff(seqnos, prepend=0) <= 0)
    return int(falls[0]) if len(falls) else None


def by_group(group: str, partitions: int) -> int:
    """The partition of a new message group."""
    return crc32c(group.encode()) % partitions


def _batches(writer: WriteSession, messages: list[Any], codec: int, size_max: int) -> list[WrittenBatch]:
    return list(encode_batches(writer, messages, decompress_data(messages, codec), codec, size_max))


def _retrieve_error(outcome: Outcome) -> None:
    """Mark the error as retrieved: the stream may have ended by then."""
    if not outcome.cancelled():
        error = outcome.exception()
        assert error is None or isinstance(error, PenstockError), error
