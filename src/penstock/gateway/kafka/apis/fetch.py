"""Fetch: returns batches of partitions, from memory or straight from files, and waits for `min_bytes` of them.

Batches in memory are read at once. A fetch is a task only while it reads from files. While it waits for records it is only a
callback of the partition and a timer, so that a node can have thousands of them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.blob import Confirmations, FilePiece
from penstock.broker import INTERNAL_TOPICS, Operation, Route
from penstock.broker.quotas import FETCH_QUOTA
from penstock.core.errors import PenstockError
from penstock.core.record_compression import ZSTD
from penstock.core.trace_context import current_trace
from penstock.gateway.kafka.apis.topic_lookup import epoch_error, find_topic, topic_code
from penstock.gateway.kafka.call import Caller
from penstock.gateway.kafka.fetch_sessions import NO_SESSION, FetchSession
from penstock.gateway.kafka.leader_hints import addresses_of, encode_endpoints, leader_hint
from penstock.gateway.kafka.own_headers import ReadRequest, read_as_kafka
from penstock.gateway.kafka.security.authorization import may_topic
from penstock.kafka.protocol import Request, errors, keys
from penstock.kafka.protocol.fetch import FetchRequest
from penstock.kernels.fetch_frame import FetchFrame
from penstock.kernels.fetched_partition import NOTHING_TO_READ, FetchedPartition
from penstock.queue import OffsetOutOfRangeError, UnsupportedCodecError

if TYPE_CHECKING:
    from penstock.broker.quotas import RateLimit
    from penstock.gateway.kafka.connection import RequestPipeline
    from penstock.gateway.kafka.node import Node

log = logging.getLogger(__name__)

READ_COMMITTED = 1
ZSTD_FROM = 10


class FetchCall(FetchFrame, Caller):
    """A Fetch request in flight, as `Call` is for others. `RequestPipeline` fills it in, which is a call less."""

    __slots__ = (
        "_bytes_max",
        "_deadline",
        "_held",
        "_limit",
        "_reply",
        "_session",
        "_timer",
        "_wait_since",
        "began",
        "cost",
        "node",
        "peer",
    )

    api_key: Final = keys.FETCH

    node: Node
    peer: RequestPipeline
    cost: int
    began: float
    _timer: asyncio.TimerHandle

    @classmethod
    def of(cls, request: Request, cost: int, node: Node, peer: RequestPipeline) -> FetchCall:
        """The call for a request that the codecs of the protocol have decoded."""
        call = cls()
        call.begin()
        call.node, call.peer, call.cost, call.began = node, peer, cost, peer.active_at
        _take_over(call, request)
        return call

    def start(self) -> None:
        """Serves the request."""
        try:
            self._open()
        except Exception:
            log.exception("a fetch of version %d failed", self.version)
            self._fail()

    def give_up(self, now: float) -> None:
        """It ends by itself when its time is up."""

    def encode(self) -> tuple[list[Any], int]:
        """Returns the response as buffers, and its size."""
        return self._reply

    def told(self) -> None:
        """A partition has grown, the time is up, or the connection wants the reply."""
        asyncio.get_running_loop().call_soon(self._look_again)

    def cancel(self) -> None:
        """The connection is closed: the wait is over."""
        self._stop_waiting()

    def _open(self) -> None:
        node = self.node
        self._session: FetchSession | None = None
        now = node.clock.monotonic()
        if self.session_id or self.session_epoch >= 0:
            code, self._session, self.parts = node.sessions.open(self, now)
            if code:
                self.is_refused = True
                self._finish(self.reply(error_code=code))
                return
        quotas = node.broker.quotas
        self._limit: RateLimit | None = (
            quotas.limit(FETCH_QUOTA, self.user, self.client_id or "") if quotas.limits_fetch else None
        )
        if self._limit is not None and (wait_ms := self._limit.wait_ms()):
            self._throttle(wait_ms)
            return
        self._deadline = now + self.max_wait_ms / 1000
        self._bytes_max = max(min(self.max_bytes, node.options.fetch_bytes_max, node.memory.left), 1)
        if self._limit is not None:
            self._bytes_max = max(min(self._bytes_max, int(self._limit.size)), 1)
        self._look()

    def _throttle(self, wait_ms: int) -> None:
        """Answers a client over its quota: with nothing but the throttle time."""
        session = self._session
        self.peer.mute(wait_ms / 1000)
        if session is not None and self.session_id != session.id:
            # A session begins with a reply that names all its partitions, and this one names none.
            self.node.sessions.drop(session)
            session = None
        self.parts = []
        session_id = NO_SESSION if session is None else session.id
        self._finish(self.reply(session_id=session_id, throttle_time_ms=wait_ms))

    def _look(self) -> None:
        """Looks at every partition, reads what is in memory, and waits or answers; a task reads the rest."""
        node = self.node
        others = self.look(node.broker.routes if node.access is None else {})
        if others is not None:
            for part in others:
                _look_at(self, part)
            self.readable = [part for part in self.parts if part.until > NOTHING_TO_READ]
        self.has_files = False
        if self.readable and not self._read_at_hand():
            _ = node.spawn(self._read())
        else:
            self._wait_or_answer()

    def _read_at_hand(self) -> bool:
        """Reads what is in memory, up to the first partition of which that is not all; whether that was all of them."""
        left = self._bytes_max
        for part in self.readable:
            if left <= 0:
                break
            until = part.until
            partition = part.partition
            if not part.shows_all:
                first_own = partition.origins.first_own
                if part.offset >= first_own:
                    return False
                until = min(until, first_own)
            at_hand = partition.read_at_hand(part.offset, min(part.size_max, left), until, left == self._bytes_max)
            if at_hand is None:
                return False
            buffers, size, next_offset = at_hand
            part.fill(buffers, size)
            left -= size
            if self.is_committed:
                part.aborted = partition.aborted_between(part.offset, next_offset)
        return True

    async def _read(self) -> None:
        """Reads every partition that was not read yet, up to `bytes_max` in all; the first with records returns at least one
        batch."""
        if self.span is not None:
            current_trace.set(self.span.traceparent)
        try:
            size = sum(part.size for part in self.readable)
            for part in self.readable:
                if part.until > NOTHING_TO_READ:
                    await _read_one(self, part, self._bytes_max - size, at_least_one=size == 0)
                    size += part.size
            self._wait_or_answer()
        except Exception:
            log.exception("a fetch of version %d failed", self.version)
            self._fail()

    def _wait_or_answer(self) -> None:
        """Answers if there is enough, an error, or no time left; otherwise waits for one of the partitions to grow."""
        self.sum_up()
        if self.is_refused:
            _add_hints(self)
        if self.size >= self.min_bytes or not self.parts or self.is_refused or self.peer.must_hurry():
            self._answer()
            return
        self._held = self.held()
        self._wait(self.node.clock.monotonic())

    def _wait(self, now: float) -> None:
        left_s = self._deadline - now
        if left_s <= 0:
            self._answer()
            return
        self.watch()
        self._wait_since = now
        self._timer = asyncio.get_running_loop().call_later(left_s, _wake, self)
        self.poll = self

    def _stop_waiting(self) -> None:
        self.poll = None
        self._timer.cancel()
        self.unwatch()

    def _look_again(self) -> None:
        """Read again if enough data has arrived, or if the time is up and there is any."""
        if self.poll is None:
            return  # the connection was closed meanwhile
        try:
            self._stop_waiting()
            now = self.node.clock.monotonic()
            self.waited_s += now - self._wait_since
            grown = self.held() - self._held
            is_last = now >= self._deadline or self.peer.must_hurry()
            if grown and (is_last or self.size + grown >= self.min_bytes):
                self._look()
            elif is_last:
                self._answer()
            else:
                self._wait(now)
        except Exception:
            log.exception("a fetch of version %d failed", self.version)
            self._fail()

    def _answer(self) -> None:
        confirmations = self.node.confirmations
        if confirmations is None:
            self._send()
            return
        # A client that is told that its offset is out of range starts from another one: no leader of yesterday may say so.
        doubtful = [part for part in self.parts if part.error_code == errors.OFFSET_OUT_OF_RANGE] if self.is_refused else []
        if not doubtful and confirmations.now() < confirmations.until:
            self._send()
        else:
            _ = self.node.spawn(self._send_when_confirmed(confirmations, doubtful))

    async def _send_when_confirmed(self, confirmations: Confirmations, doubtful: list[FetchedPartition]) -> None:
        """Answers only if no other node has taken over meanwhile; otherwise the client connects again, and finds that one. Looks
        at doubtful partitions again, by a confirmation that begins now."""
        try:
            if doubtful:
                await confirmations.confirm()
                for part in doubtful:
                    part.reset()
                    _look_at(self, part)
                _add_hints(self)
            else:
                await confirmations.check(None if self.is_refused else {part.partition.tablet.log_group for part in self.parts})
            if any(part.partition.tablet.stop_cause is not None for part in self.readable):
                self._fail()
            else:
                self._send()
        except PenstockError as error:
            log.warning("a fetch is not answered: %s", error)
            self._fail()
        except Exception:
            log.exception("a fetch of version %d failed", self.version)
            self._fail()

    def _send(self) -> None:
        session = self._session
        if self._limit is not None:
            # The next request waits for what this one drew above the quota.
            self._limit.draw(self.size)
        if session is None:
            self._finish(self.reply())
            return
        session.rotate(part.key for part in self.readable if part.size)
        self._finish(self.reply(session.id, True, self.session_id == session.id))

    def _finish(self, reply: tuple[list[Any], int]) -> None:
        self._reply = reply
        self.is_done = True
        self.peer.finished(self)

    def _fail(self) -> None:
        """Completes the request without a response: the connection closes after the responses before it."""
        self.must_close = True
        self.size = 0
        self._finish(([], 0))


def _take_over(call: FetchCall, request: Request) -> None:
    body = request.body
    assert isinstance(body, FetchRequest)
    call.version = request.api_version
    call.correlation_id = request.correlation_id
    call.client_id = request.client_id
    call.max_wait_ms, call.min_bytes, call.max_bytes = body.max_wait_ms, body.min_bytes, body.max_bytes
    call.is_committed = body.isolation_level == READ_COMMITTED
    call.session_id, call.session_epoch = body.session_id, body.session_epoch
    # Versions with ids have no names, and the other way round.
    call.parts = [
        FetchedPartition(
            topic.topic or topic.topic_id,
            part.partition,
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch,
            part.last_fetched_epoch,
        )
        for topic in body.topics
        for part in topic.partitions
    ]
    call.forgotten = [
        (topic.topic or topic.topic_id, index) for topic in body.forgotten_topics_data for index in topic.partitions
    ]


def _look_at(call: FetchCall, part: FetchedPartition) -> None:
    """Looks at a partition for the first time since it serves, or whose client asks for something unusual."""
    node = call.node
    try:
        if node.access is not None and not may_topic(call, Operation.READ, part.topic):
            part.fail(errors.TOPIC_AUTHORIZATION_FAILED)
            return
        topic = find_topic(node, part.topic)
        partition = node.broker.partition(topic, part.index)
        if call.version < ZSTD_FROM and topic.config.codec == ZSTD:
            raise UnsupportedCodecError(f"what topic {topic.name!r} holds is in zstd, which needs Fetch version {ZSTD_FROM}")
        if code := epoch_error(partition, part.leader_epoch):
            part.fail(code)
            return
        is_internal = topic.name in INTERNAL_TOPICS
        route = Route(topic, partition) if is_internal else node.broker.route(part.topic, part.index)
        if not part.look(route, call.is_committed):
            span = f"{partition.start_offset}..{partition.end_offset}"
            raise OffsetOutOfRangeError(f"offset {part.offset} is not within {span}")
        if part.last_epoch >= 0:
            epoch, epoch_end = partition.epoch_end(part.last_epoch)
            if 0 <= epoch < part.last_epoch or 0 <= epoch_end < part.offset:
                part.diverging = (epoch, epoch_end)
                part.aborted = None
                part.until = NOTHING_TO_READ
    except PenstockError as error:
        part.fail(topic_code(error))


def _add_hints(call: FetchCall) -> None:
    """Tells the client where partitions are led that it should not have asked this node for."""
    hints = []
    for part in call.parts:
        hint = leader_hint(call.node, part.topic, part.index, part.error_code)
        if hint is not None:
            part.leader = hint
            hints.append(hint)
    call.endpoints = encode_endpoints(addresses_of(call.node, hints)) if hints else None


async def _read_one(call: FetchCall, part: FetchedPartition, bytes_left: int, *, at_least_one: bool) -> None:
    """Reads the batches of a partition, within what is left of the bytes of the response."""
    partition = part.partition
    bytes_max = min(part.size_max, bytes_left)
    if bytes_max <= 0 and not at_least_one:
        return
    read = ReadRequest(bytes_max, files=call.peer.takes_files, at_least_one=at_least_one, shows_all=part.shows_all)
    try:
        read_result = await read_as_kafka(partition, part.offset, part.until, read)
    except PenstockError as error:
        part.fail(topic_code(error))
        return
    part.fill(read_result.batches, read_result.size)
    if any(isinstance(piece, FilePiece) for piece in read_result.batches):
        call.has_files = True
    if part.aborted is not None:
        part.aborted = partition.aborted_between(part.offset, read_result.next_offset)


def _wake(call: FetchCall) -> None:
    if not call.done():
        call.set_result(None)
