"""Fetch: returns batches of partitions, from memory or straight from files, and waits for `min_bytes` of them.

A fetch runs as a task only while it reads. While it waits for records it is a future that a write completes, and a timer: a node
can have thousands of them. One that finds nothing and runs into its timeout never has a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from penstock.blob import FilePiece
from penstock.broker import Operation, Topic
from penstock.broker.quotas import FETCH_QUOTA
from penstock.core.errors import PenstockError
from penstock.core.record_compression import ZSTD
from penstock.core.trace_context import current_trace
from penstock.gateway.kafka.apis.topic_lookup import epoch_error, find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.fetch_sessions import NO_SESSION, FetchSession, SessionPartition, TopicRef
from penstock.gateway.kafka.own_headers import ReadRequest, read_as_kafka
from penstock.gateway.kafka.security.authorization import may_topic
from penstock.kafka.protocol import Splice, errors
from penstock.kafka.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.queue import OffsetOutOfRangeError, Partition, UnsupportedCodecError

if TYPE_CHECKING:
    from penstock.broker.quotas import RateLimit

log = logging.getLogger(__name__)

READ_COMMITTED = 1
ZSTD_FROM = 10
NO_RECORDS = b""
NOTHING_TO_READ = -1


class _PartitionFetch:
    """One partition of a fetch: its part of the response, and up to where it has records to read."""

    __slots__ = ("data", "partition", "shows_all", "size", "until", "wanted")

    def __init__(self, wanted: SessionPartition, data: PartitionData) -> None:
        self.wanted = wanted
        self.data = data
        self.partition: Partition | None = None  # None after an error
        self.until = NOTHING_TO_READ
        self.shows_all = False
        self.size = 0  # of the batches

    def fail(self, code: int) -> None:
        """Returns an error instead of batches."""
        self.data.error_code = code
        self.partition = None
        self.until = NOTHING_TO_READ


class FetchCall(Call):
    """A Fetch request in flight."""

    __slots__ = (
        "_body",
        "_bytes_max",
        "_deadline",
        "_held",
        "_limit",
        "_parts",
        "_session",
        "_timer",
        "_topic",
        "_topic_ref",
        "_wait_since",
        "_wanted",
    )

    def start(self) -> None:
        self._run(self._open)

    def _run(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            log.exception("a fetch of version %d failed", self.version)
            self.hang_up()

    def _open(self) -> None:
        node, request = self.node, cast(FetchRequest, self.request.body)
        self._body = request
        self._topic: Topic | None = None
        self._topic_ref: TopicRef = ""
        now = node.clock.monotonic()
        code, self._session, self._wanted = node.sessions.open(request, now)
        if code:
            self.is_refused = True
            self.answer(FetchResponse(error_code=code, session_id=NO_SESSION))
            return
        quotas = node.broker.quotas
        self._limit: RateLimit | None = quotas.limit(FETCH_QUOTA, self.user, self.client_id) if quotas.limits_fetch else None
        if self._limit is not None and (wait_ms := self._limit.wait_ms()):
            self.answer(self._throttled(wait_ms))
            return
        self._deadline = now + request.max_wait_ms / 1000
        self._bytes_max = max(min(request.max_bytes, node.options.fetch_bytes_max, node.memory.left), 1)
        if self._limit is not None:
            self._bytes_max = max(min(self._bytes_max, int(self._limit.size)), 1)
        self._look()

    @property
    def is_committed(self) -> bool:
        """Whether the client wants to see nothing of open and aborted transactions."""
        return self._body.isolation_level == READ_COMMITTED

    def topic(self, ref: TopicRef) -> Topic:
        """Returns a topic by its name or id. Partitions of one topic mostly come one after another: it is looked up once."""
        if self._topic is None or ref != self._topic_ref:
            self._topic = find_topic(self.node, ref)
            self._topic_ref = ref
        return self._topic

    def _throttled(self, wait_ms: int) -> FetchResponse:
        """Returns an empty response with the throttle time, for a client over its quota."""
        session = self._session
        self.peer.mute(wait_ms / 1000)
        if session is not None and self._body.session_id != session.id:
            # A session begins with a reply that names all its partitions, and this one names none.
            self.node.sessions.drop(session)
            session = None
        return FetchResponse(throttle_time_ms=wait_ms, session_id=NO_SESSION if session is None else session.id)

    def _look(self) -> None:
        """Looks at every partition; reads, waits or answers by what is there."""
        self._topic = None  # it may have been deleted since
        self._parts = [_look_at(self, wanted) for wanted in self._wanted]
        if any(part.until > NOTHING_TO_READ for part in self._parts):
            self.node.spawn(self._read())
        else:
            self._wait_or_answer()

    async def _read(self) -> None:
        """Reads every partition, up to `bytes_max` in all; the first with records returns at least one batch."""
        if self.span is not None:
            current_trace.set(self.span.traceparent)
        try:
            size = 0
            for part in self._parts:
                if part.until > NOTHING_TO_READ:
                    await _read_one(self, part, self._bytes_max - size, at_least_one=size == 0)
                    size += part.size
        except Exception:
            log.exception("a fetch of version %d failed", self.version)
            self.hang_up()
            return
        self._run(self._wait_or_answer)

    def _wait_or_answer(self) -> None:
        """Answers if there is enough, an error, or no time left; otherwise waits for one of the partitions to grow."""
        size = sum(part.size for part in self._parts)
        if size >= self._body.min_bytes or not self._wanted or self._has_errors() or self.peer.must_hurry():
            self._answer(size)
            return
        self._held = self._held_now()
        self._wait(self.node.clock.monotonic(), size)

    def _wait(self, now: float, size: int) -> None:
        left_s = self._deadline - now
        if left_s <= 0:
            self._answer(size)
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        for part in self._parts:
            if part.partition is not None:
                part.partition.arrivals.watch(waiter)
        self._wait_since = now
        self._timer = loop.call_later(left_s, _wake, waiter)
        self.poll = waiter
        waiter.add_done_callback(self._woken)

    def _woken(self, waiter: asyncio.Future[None]) -> None:
        """Called when a partition has grown, the timeout has expired, or the connection asks for the reply. The connection
        cancels the wait when it closes."""
        self.poll = None
        self._timer.cancel()
        for part in self._parts:
            if part.partition is not None:
                part.partition.arrivals.unwatch(waiter)
        if not waiter.cancelled():
            self._run(self._look_again)

    def _look_again(self) -> None:
        """Reads if enough has come, or if the time is up and anything has."""
        now = self.node.clock.monotonic()
        self.waited_s += now - self._wait_since
        size = sum(part.size for part in self._parts)
        grown = self._held_now() - self._held
        is_last = now >= self._deadline or self.peer.must_hurry()
        if grown and (is_last or size + grown >= self._body.min_bytes):
            self._look()
        elif is_last:
            self._answer(size)
        else:
            self._wait(now, size)

    def _has_errors(self) -> bool:
        return any(part.data.error_code or part.data.diverging_epoch for part in self._parts)

    def _held_now(self) -> int:
        """Returns how many bytes the partitions hold now."""
        return sum(part.partition.size for part in self._parts if part.partition is not None)

    def _answer(self, size: int) -> None:
        session = self._session
        is_incremental = session is not None and self._body.session_id == session.id
        self.size = size
        self.is_refused = self._has_errors()
        self.has_files = size > 0 and any(_has_files(part.data) for part in self._parts)
        if self._limit is not None:
            # The next request waits for what this one drew above the quota.
            self._limit.draw(size)
        self.answer(_respond(self._parts, session, incremental=is_incremental))


def _look_at(call: FetchCall, wanted: SessionPartition) -> _PartitionFetch:
    """Fills in the offsets of a partition, and finds out whether it has records for the client."""
    node, asked = call.node, wanted.request
    data = PartitionData(partition_index=asked.partition, high_watermark=-1, records=NO_RECORDS, aborted_transactions=None)
    part = _PartitionFetch(wanted, data)
    try:
        if node.access is not None and not may_topic(call, Operation.READ, wanted.topic):
            data.error_code = errors.TOPIC_AUTHORIZATION_FAILED
            return part
        topic = call.topic(wanted.topic)
        partition = node.broker.partition(topic, asked.partition)
        if call.version < ZSTD_FROM and topic.config.codec == ZSTD:
            raise UnsupportedCodecError(f"what topic {topic.name!r} holds is in zstd, which needs Fetch version {ZSTD_FROM}")
        data.error_code = epoch_error(partition, asked.current_leader_epoch)
        if data.error_code:
            return part
        part.partition = partition
        _look_for_records(part, partition, is_committed=call.is_committed)
        if part.until > NOTHING_TO_READ:
            part.shows_all = topic.config.shows_own_headers
    except PenstockError as error:
        part.fail(topic_code(error))
    return part


def _look_for_records(part: _PartitionFetch, partition: Partition, *, is_committed: bool) -> None:
    data, asked = part.data, part.wanted.request
    start_offset, end_offset = partition.start_offset, partition.end_offset
    data.high_watermark, data.log_start_offset, data.last_stable_offset = end_offset, start_offset, partition.stable_offset
    offset = asked.fetch_offset
    if not start_offset <= offset <= end_offset:
        raise OffsetOutOfRangeError(f"offset {offset} is not within {start_offset}..{end_offset}")
    if asked.last_fetched_epoch >= 0:
        epoch, epoch_end = partition.epoch_end(asked.last_fetched_epoch)
        if 0 <= epoch < asked.last_fetched_epoch or 0 <= epoch_end < offset:
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=epoch_end)
            return
    if is_committed:
        data.aborted_transactions = []
    until = data.last_stable_offset if is_committed else end_offset
    if offset < until:
        part.until = until


async def _read_one(call: FetchCall, part: _PartitionFetch, bytes_left: int, *, at_least_one: bool) -> None:
    """Reads the batches of a partition, within what is left of the bytes of the response."""
    asked, partition, data = part.wanted.request, part.partition, part.data
    bytes_max = min(asked.partition_max_bytes, bytes_left)
    if partition is None or (bytes_max <= 0 and not at_least_one):
        return
    read = ReadRequest(bytes_max, files=call.peer.takes_files, at_least_one=at_least_one, shows_all=part.shows_all)
    try:
        read_result = await read_as_kafka(partition, asked.fetch_offset, part.until, read)
    except PenstockError as error:
        part.fail(topic_code(error))
        return
    data.records = Splice(read_result.batches, read_result.size)
    part.size = read_result.size
    if data.aborted_transactions is not None:
        aborted = partition.aborted_between(asked.fetch_offset, read_result.next_offset)
        data.aborted_transactions = [
            AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in aborted
        ]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _respond(parts: list[_PartitionFetch], session: FetchSession | None, *, incremental: bool) -> FetchResponse:
    response = FetchResponse(session_id=NO_SESSION if session is None else session.id)
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    for part in parts:
        wanted, data = part.wanted, part.data
        if session is not None and not wanted.is_news(data) and incremental:
            continue
        topic = topics.get(wanted.topic)
        if topic is None:
            if isinstance(wanted.topic, str):
                topic = FetchableTopicResponse(topic=wanted.topic)
            else:
                topic = FetchableTopicResponse(topic_id=wanted.topic)
            topics[wanted.topic] = topic
            response.responses.append(topic)
        topic.partitions.append(data)
    if session is not None:
        session.rotate([part.wanted for part in parts if part.size])
    return response


def _has_files(data: PartitionData) -> bool:
    return isinstance(data.records, Splice) and any(isinstance(piece, FilePiece) for piece in data.records.pieces)
