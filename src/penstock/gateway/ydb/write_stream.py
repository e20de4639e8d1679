"""StreamWrite: one producer, one partition; messages are stored in order and acknowledged in order."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from penstock.broker import Broker, Operation, Route, Topic, TopicPartition
from penstock.broker.quotas import PRODUCE_QUOTA
from penstock.core.checksum import crc32c
from penstock.core.errors import PenstockError
from penstock.core.probe import OK, Span
from penstock.core.trace_context import TRACEPARENT, checked_traceparent
from penstock.gateway.ydb import topic_settings
from penstock.gateway.ydb.paths import topic_name
from penstock.gateway.ydb.plain_request import PlainRequest, plain_request
from penstock.gateway.ydb.protos import CODEC_NAMES, RAW, Status, topic
from penstock.gateway.ydb.query_sessions import QuerySessions, TopicTransaction
from penstock.gateway.ydb.sign_in import SignIn
from penstock.gateway.ydb.statuses import StatusError, bad_request, unsupported
from penstock.gateway.ydb.stream import Stream
from penstock.gateway.ydb.write_acks import Seqnos, write_response
from penstock.gateway.ydb.writers import Outcome, ProducerKey, Writers
from penstock.gateway.ydb.written_batch import BATCH_BYTES, Writer, WrittenBatch, batches_of, plain_data
from penstock.queue import SourceWrite, WriteQueueFullError, WriteResult

UNDER_WAY_BYTES_MAX: Final = 16 << 20  # of one stream; it is not read from while more waits for the disk
IN_PLACE_BYTES_MAX: Final = 64 << 10  # more than this is compressed beside the event loop


def source_of(producer: str) -> bytes:
    """The source id of a producer, as partitions know it."""
    return b"y" + producer.encode()


class Sent(NamedTuple):
    """A request on its way: the numbers of its messages, how many of them were written before, and its batches; none if they are
    for when a transaction is committed."""

    seqnos: Seqnos
    skipped: int
    batches: list[tuple[int, Outcome]]
    size: int
    began: float
    span: Span | None


class WriteStream:
    """One stream of a writer. `serve` it to its end."""

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
        self._writer = Writer.of("", "", {})
        self._key: ProducerKey | None = None
        self._codecs: frozenset[int] = frozenset()
        self._known_seqno = 0  # what was written before this stream began
        self._last_seqno = 0  # what this stream has sent last
        self._sent: deque[Sent] = deque()
        self._under_way_bytes = 0
        self._changed = asyncio.Event()

    async def serve(self) -> None:
        """From the first message to the last."""
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

    async def _begin(self, asked: Any) -> None:
        name = topic_name(asked.path, self._stream.database)
        self._stream.caller.check_topic(Operation.WRITE, name)
        self._topic = self._broker.catalog.topic(name)
        settings = topic_settings.settings_of(self._topic)
        self._codecs = frozenset(settings.codecs)
        group = asked.message_group_id if asked.WhichOneof("partitioning") == "message_group_id" else ""
        self._writer = Writer.of(asked.producer_id, group, dict(asked.write_session_meta))
        if asked.producer_id:
            self._key = ProducerKey(self._topic.id, asked.producer_id)
            # What the producer has under way decides where it writes, and up to which number it has.
            await self._writers.take_over(self._key, self._stream.end)
        self._number = self._choose(asked)
        if asked.producer_id:
            state = self._route().partition.source(source_of(asked.producer_id))
            self._known_seqno = self._last_seqno = 0 if state is None else state.max_seqno
        response = topic.StreamWriteMessage.InitResponse(
            last_seq_no=self._known_seqno,
            session_id=str(UUID(int=self._random.getrandbits(128), version=4)),
            partition_id=self._number,
            supported_codecs=topic.SupportedCodecs(codecs=settings.codecs),
        )
        await self._stream.send(init_response=response)

    def _choose(self, asked: Any) -> int:
        """The partition of a stream: where its producer has written, else the one asked for, else by its group."""
        count = self._topic.partitions
        kind = asked.WhichOneof("partitioning")
        wanted: int | None = None
        if kind == "partition_id":
            wanted = asked.partition_id
        elif kind == "partition_with_generation":
            wanted = asked.partition_with_generation.partition_id
            if 0 <= wanted < count:
                generation = self._broker.partition(self._topic, wanted).epoch
                if generation != asked.partition_with_generation.generation:
                    raise StatusError(Status.UNAVAILABLE, f"partition {wanted} is in generation {generation} by now")
        if wanted is not None and not 0 <= wanted < count:
            raise bad_request(f"topic {self._topic.name!r} has partitions 0..{count - 1}, not {wanted}")
        group = (asked.message_group_id if kind == "message_group_id" else "") or asked.producer_id
        home = self._home(asked.producer_id, group) if asked.producer_id else None
        if home is not None:
            if wanted is not None and wanted != home:
                raise bad_request(
                    f"producer {asked.producer_id!r} writes to partition {home}, where its numbers are kept, and cannot write to "
                    f"{wanted}; use another producer id there"
                )
            return home
        if wanted is not None:
            return int(wanted)
        return by_group(group, count) if group else self._random.randrange(count)

    def _home(self, producer: str, group: str) -> int | None:
        """The partition that knows a producer."""
        source = source_of(producer)
        numbers: list[int] = [by_group(group, self._topic.partitions), *range(self._topic.partitions)]
        for number in numbers:
            if self._broker.partition(self._topic, number).source(source) is not None:
                return number
        return None

    def _route(self) -> Route:
        return self._broker.route(self._topic.id.bytes, self._number)

    async def _receive(self) -> None:
        while (encoded := await self._stream.receive_encoded()) is not None:
            plain = plain_request(encoded)
            if plain is not None and RAW in self._codecs:
                await self._write_plain(plain)
                continue
            message = self._stream.decoded(encoded)
            kind = message.WhichOneof("client_message")
            if kind == "write_request":
                await self._write(message.write_request)
            elif kind == "update_token_request":
                self._stream.caller = self._sign_in.caller(message.update_token_request.token, self._stream.caller.host)
                await self._settled()
                await self._stream.send(update_token_response=topic.UpdateTokenResponse())
            else:
                raise bad_request(f"{kind or 'an empty message'} has no place within a stream")
        await self._settled()

    async def _settled(self) -> None:
        """Wait until all that was sent is acknowledged; only then may another than the acknowledging task send."""
        while self._sent:
            self._changed.clear()
            await self._changed.wait()

    async def _write(self, request: Any) -> None:
        messages = list(request.messages)
        self._check(request, messages)
        seqnos = np.array([message.seq_no for message in messages], np.int64)
        skipped = self._in_order(seqnos)
        new = messages[skipped:]
        size = sum(len(message.data) for message in new)
        batches = await self._made(new, request.codec or RAW, size)
        in_transaction = self._transactions.find(request.tx.session, request.tx.id) if request.HasField("tx") else None
        await self._deliver(
            seqnos, skipped, batches, size, in_transaction=in_transaction, traceparent=self._traceparent(messages)
        )

    def _traceparent(self, messages: list[Any]) -> str | None:
        """The trace of the first message, if anyone wants to know."""
        if self._stream.probe.tracing is None:
            return None
        found = (item.value for item in messages[0].metadata_items if item.key == TRACEPARENT)
        return checked_traceparent(next(found, b"").decode("ascii", "replace"))

    async def _write_plain(self, request: PlainRequest) -> None:
        self._stream.caller.check_topic(Operation.WRITE, self._topic.name)
        seqnos = request.seqnos
        skipped = self._in_order(seqnos)
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
        """Have batches stored, or kept for a transaction, and the client told in its turn."""
        while self._sent and self._under_way_bytes + size > UNDER_WAY_BYTES_MAX:
            self._changed.clear()
            await self._changed.wait()
        tracing = self._stream.probe.tracing
        span = None if tracing is None else tracing.begin("ydb StreamWrite", traceparent, {"messaging.system": "ydb"})
        sent = Sent(seqnos, skipped, [], size, self._broker.clock.monotonic(), span)
        if in_transaction is None:
            await self._store(batches, seqnos[skipped:], sent)
        else:
            self._transactions.write(in_transaction, TopicPartition(self._topic.id, self._number), batches)
        self._under_way_bytes += size
        self._sent.append(sent)
        self._changed.set()
        if self._broker.quotas.limits_produce:
            held_ms = self._broker.quotas.draw(PRODUCE_QUOTA, self._stream.caller.user, self._writer.producer, size)
            if held_ms:
                self._stream.probe.hold_back(held_ms / 1000)
            await asyncio.sleep(held_ms / 1000)
        held_s = self._writers.speed.hold_s(self._broker.catalog.topic_by_id(self._topic.id), self._number, size)
        if held_s:
            await asyncio.sleep(held_s)

    def _check(self, request: Any, messages: list[Any]) -> None:
        self._stream.caller.check_topic(Operation.WRITE, self._topic.name)
        codec = request.codec or RAW
        if codec not in self._codecs:
            known = ", ".join(CODEC_NAMES.get(one, str(one)) for one in sorted(self._codecs))
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

    def _in_order(self, seqnos: Seqnos) -> int:
        """How many messages at the beginning were written before. StatusError if the rest does not rise."""
        if self._key is None:
            return 0
        fall = first_fall(seqnos)
        if fall is not None:
            before = int(seqnos[fall - 1]) if fall else 0
            raise bad_request(f"message {seqnos[fall]} comes after message {before}; numbers begin with 1 and rise")
        skipped = int(np.searchsorted(seqnos, self._known_seqno, "right"))
        if skipped < len(seqnos):
            if seqnos[skipped] <= self._last_seqno:
                raise bad_request(
                    f"message {seqnos[skipped]} comes after message {self._last_seqno}; numbers rise within a stream"
                )
            self._last_seqno = int(seqnos[-1])
        return skipped

    async def _made(self, messages: list[Any], codec: int, size: int) -> list[WrittenBatch]:
        """The batches of some messages. Others are served while that takes long."""
        limit = self._batch_bytes()
        if codec != RAW and size > IN_PLACE_BYTES_MAX:
            return await asyncio.to_thread(_batches, self._writer, messages, codec, limit)
        made: list[WrittenBatch] = []
        for batch in batches_of(self._writer, messages, plain_data(messages, codec), codec, limit):
            if made:
                await asyncio.sleep(0)
            made.append(batch)
        return made

    def _batch_bytes(self) -> int:
        """How large a batch may be: the topic may have been made for smaller ones than usual."""
        return min(BATCH_BYTES, self._route().partition.config.batch_bytes_max)

    async def _store(self, batches: list[WrittenBatch], seqnos: Seqnos, sent: Sent) -> None:
        """Queue batches for the disk, and wait for the first of them if there is no room for the rest."""
        at = 0
        for batch in batches:
            at += batch.messages
            source = None
            if self._key is not None:
                # Numbers may have gaps; what counts for the next stream is the last.
                source = SourceWrite(source_of(self._key.producer), int(seqnos[at - 1]) - batch.messages + 1)
            outcome = self._queue(batch, source)
            for _, earlier in sent.batches if outcome is None else ():
                await asyncio.wait([earlier])
                outcome = self._queue(batch, source)
                if outcome is not None:
                    break
            if outcome is None:
                raise StatusError(Status.OVERLOADED, f"too much waits to be written to partition {self._number}; try again")
            sent.batches.append((batch.messages, outcome))

    def _queue(self, batch: WrittenBatch, source: SourceWrite | None) -> Outcome | None:
        """Queue one batch; None if there is no room for it now."""
        if self._stream.ended.done():
            self._stream.ended.result()  # another stream writes as this producer, and what comes now would get in its way
        outcome: Outcome = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(_seen)
        try:
            self._broker.begin_produce(self._route(), batch.data, outcome, source)
        except WriteQueueFullError:
            return None
        if self._key is not None:
            self._writers.send(self._key, outcome)
        return outcome

    async def _acknowledge(self) -> None:
        """Tell the client of each request once all of it is durable."""
        while True:
            while not self._sent:
                self._changed.clear()
                await self._changed.wait()
            sent = self._sent[0]
            results: list[tuple[int, WriteResult]] = [(count, await outcome) for count, outcome in sent.batches]
            waited_s = self._broker.clock.monotonic() - sent.began
            self._stream.probe.note("StreamWrite", OK, waited_s)
            if sent.span is not None:
                sent.span.end(OK)
            await self._stream.send_encoded(
                write_response(sent.seqnos, sent.skipped, results, partition=self._number, waited_s=waited_s)
            )
            self._sent.popleft()
            self._under_way_bytes -= sent.size
            self._changed.set()


def first_fall(seqnos: Seqnos) -> int | None:
    """The place of the first number that does not rise above the one before it, or above 0; None if all do."""
    falls = np.flatnonzero(np.diff(seqnos, prepend=0) <= 0)
    return int(falls[0]) if len(falls) else None


def by_group(group: str, partitions: int) -> int:
    """The partition of a message group that is not known yet."""
    return crc32c(group.encode()) % partitions


def _batches(writer: Writer, messages: list[Any], codec: int, size_max: int) -> list[WrittenBatch]:
    return list(batches_of(writer, messages, plain_data(messages, codec), codec, size_max))


def _seen(outcome: Outcome) -> None:
    """The stream may be gone when its write fails; the failure is then nobody's."""
    if not outcome.cancelled():
        error = outcome.exception()
        assert error is None or isinstance(error, PenstockError), error
