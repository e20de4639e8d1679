"""StreamRead: a reader is assigned partitions and sent data within its credit; it commits by ranges.

One task receives, one sends everything, one stores commits. Nothing is read ahead: a partition is read when its data can be
sent, so that a slow reader costs no more than one response."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.broker import Broker, Operation, PartitionDamagedError, PartitionUnavailableError, Position, Topic, TopicPartition
from penstock.broker.quotas import FETCH_QUOTA
from penstock.core.errors import PenstockError, UnavailableError
from penstock.gateway.ydb import topic_settings
from penstock.gateway.ydb.partition_session import PartitionSession, first_offset_since
from penstock.gateway.ydb.paths import topic_name
from penstock.gateway.ydb.protos import Status, milliseconds, timestamp, topic
from penstock.gateway.ydb.read_responses import ReadResponse
from penstock.gateway.ydb.readers import Readers
from penstock.gateway.ydb.sign_in import SignIn
from penstock.gateway.ydb.statuses import StatusError, bad_request, unsupported
from penstock.gateway.ydb.stream import Stream
from penstock.queue import Partition

READ_BYTES: Final = 1 << 20  # from a partition at once
POLL_S: Final = 1.0  # between looks for a partition that restarts
RETRY_S: Final = 0.05
STOP_TIMEOUT_S: Final = 30.0  # after which a partition is revoked from a reader that does not release it
WAITING_MAX: Final = 1000  # messages to a client that does not read, before nothing more is received from it
_Read = topic.StreamReadMessage


class TopicSubscription(NamedTuple):
    """A topic that a reader subscribes to."""

    topic: Topic
    path: str
    partitions: frozenset[int] | None
    read_from_ms: int
    max_lag_ms: int


class ReadStream:
    """One stream of a reader."""

    def __init__(self, stream: Stream, broker: Broker, readers: Readers, sign_in: SignIn, random: Random) -> None:
        self._stream = stream
        self._broker = broker
        self._readers = readers
        self._sign_in = sign_in
        self.id = str(UUID(int=random.getrandbits(128), version=4))
        self.name = ""
        self.consumer = ""
        self._subscriptions: dict[UUID, TopicSubscription] = {}
        self._credit = 0
        self._throttled_until = 0.0
        self._last_id = 0
        self._assigned: deque[TopicPartition] = deque()  # to be announced to the client
        self._outbox: deque[dict[str, Any]] = deque()
        self._sessions: dict[int, PartitionSession] = {}
        self._by_partition: dict[TopicPartition, PartitionSession] = {}
        self._turn = 0
        self._waiter: asyncio.Future[None] | None = None
        self._drained = asyncio.Event()
        self._to_acknowledge: set[int] = set()  # partition sessions whose commits are to be stored and acknowledged
        self._released: list[PartitionSession] = []
        self._to_commit = asyncio.Event()

    async def serve(self) -> None:
        """Serve the stream to its end."""
        first = await self._stream.receive()
        if first is None:
            return
        if first.WhichOneof("client_message") != "init_request":
            raise bad_request("a stream begins with init_request")
        self._begin(first.init_request)
        await self._stream.send(init_response=_Read.InitResponse(session_id=self.id))
        wants = {topic_id: subscription.partitions for topic_id, subscription in self._subscriptions.items()}
        try:
            if self.consumer:
                self._readers.join(self.consumer, self, wants)
            else:
                self._assign_requested()
            await self._stream.run(self._receive(), self._send(), self._store_commits(), self._watch())
        finally:
            if self.consumer:
                self._readers.leave(self.consumer, self)

    def partition_session(self, queue: TopicPartition) -> PartitionSession | None:
        """The session of a partition. Returns None if this stream does not read it."""
        return self._by_partition.get(queue)

    def assign(self, queue: TopicPartition) -> None:
        """Assign a partition to this reader."""
        self._assigned.append(queue)
        self._wake()

    def revoke(self, queue: TopicPartition) -> None:
        """Ask this reader to release a partition."""
        session = self._by_partition.get(queue)
        if session is None:
            # The client does not know of it yet.
            self._assigned.remove(queue)
            asyncio.get_running_loop().call_soon(self._readers.release, self.consumer, self, queue)
            return
        session.stop_by = self._broker.clock.monotonic() + STOP_TIMEOUT_S
        self._request_stop(session, graceful=True)

    def committed(self, queue: TopicPartition, offset: int) -> None:
        """Note an offset that was committed outside of this stream."""
        session = self._by_partition.get(queue)
        if session is not None:
            session.commits.add(session.commits.committed, max(offset, session.commits.committed))

    def _begin(self, request: Any) -> None:
        if request.direct_read:
            raise unsupported("direct_read is not supported; read without it")
        self.consumer, self.name = request.consumer, request.reader_name
        if not request.topics_read_settings:
            raise bad_request("a reader must name at least one topic")
        if self.consumer:
            self._stream.caller.check_consumer(Operation.READ, self.consumer)
        for settings in request.topics_read_settings:
            subscription = self._subscribe(settings)
            if subscription.topic.id in self._subscriptions:
                raise bad_request(f"topic {subscription.path!r} is named twice")
            self._subscriptions[subscription.topic.id] = subscription

    def _subscribe(self, settings: Any) -> TopicSubscription:
        name = topic_name(settings.path, self._stream.database)
        self._stream.caller.check_topic(Operation.READ, name)
        topic = self._broker.catalog.topic(name)
        self._check_consumer(topic)
        numbers = frozenset(settings.partition_ids) or None
        if not self.consumer and numbers is None:
            raise bad_request("a reader without a consumer must name its partitions")
        for number in numbers or ():
            self._broker.partition(topic, number)
        read_from_ms = milliseconds(settings.read_from) if settings.HasField("read_from") else 0
        if self.consumer:
            declared = topic_settings.settings_of(topic).consumers[self.consumer]
            read_from_ms = max(read_from_ms, declared.read_from_ms)
        max_lag_ms = settings.max_lag.ToMilliseconds() if settings.HasField("max_lag") else 0
        return TopicSubscription(topic, settings.path, numbers, read_from_ms, max_lag_ms)

    def _check_consumer(self, topic: Topic) -> None:
        if self.consumer and self.consumer not in topic.config.declared_consumers:
            raise StatusError(
                Status.SCHEME_ERROR,
                f"topic {topic.name!r} has no consumer {self.consumer!r}; add it with AlterTopic (add_consumers)",
            )

    def _assign_requested(self) -> None:
        for topic_id, subscription in self._subscriptions.items():
            for number in sorted(subscription.partitions or ()):
                self.assign(TopicPartition(topic_id, number))

    async def _receive(self) -> None:
        handlers: dict[str, Callable[[Any], None]] = {
            "read_request": self._on_credit,
            "commit_offset_request": self._on_commit,
            "partition_session_status_request": self._on_status,
            "update_token_request": self._on_token,
            "start_partition_session_response": self._on_started,
            "stop_partition_session_response": self._on_stopped,
        }
        while (message := await self._stream.receive()) is not None:
            kind = message.WhichOneof("client_message")
            handler = handlers.get(kind or "")
            if handler is None:
                raise bad_request(f"{kind or 'an empty message'} is not expected within a stream")
            handler(getattr(message, kind))
            self._wake()
            while len(self._outbox) > WAITING_MAX:
                self._drained.clear()
                await self._drained.wait()

    def _on_credit(self, message: Any) -> None:
        if message.bytes_size <= 0:
            raise bad_request(f"a read_request for {message.bytes_size} bytes")
        self._credit += message.bytes_size

    def _on_commit(self, message: Any) -> None:
        if not self.consumer:
            raise bad_request("a reader without a consumer cannot commit")
        for commit in message.commit_offsets:
            session = self._sessions.get(commit.partition_session_id)
            if session is None:
                continue  # it was revoked meanwhile
            for offsets in commit.offsets:
                session.commit(offsets.start, offsets.end)
            self._to_acknowledge.add(session.id)  # a response is due even if it was committed before
        self._to_commit.set()

    def _on_status(self, message: Any) -> None:
        session = self._sessions.get(message.partition_session_id)
        if session is None:
            return
        partition = self._partition(session)
        response = _Read.PartitionSessionStatusResponse(
            partition_session_id=session.id, committed_offset=session.commits.committed, read_offset=session.next_offset
        )
        response.partition_offsets.start, response.partition_offsets.end = partition.start_offset, partition.end_offset
        response.write_time_high_watermark.CopyFrom(timestamp(max(partition.max_timestamp, 0)))
        self._outbox.append({"partition_session_status_response": response})

    def _on_token(self, message: Any) -> None:
        self._stream.caller = self._sign_in.caller(message.token, self._stream.caller.host)
        self._outbox.append({"update_token_response": topic.UpdateTokenResponse()})

    def _on_started(self, message: Any) -> None:
        session = self._sessions.get(message.partition_session_id)
        if session is None or session.is_started:
            return
        partition = self._partition(session)
        for offset in (message.read_offset, message.commit_offset):
            if not 0 <= offset <= partition.end_offset:
                raise bad_request(
                    f"offset {offset} is not within partition {session.number}, which ends at {partition.end_offset}"
                )
        if message.HasField("read_offset"):
            session.next_offset = max(message.read_offset, partition.start_offset)
        if message.HasField("commit_offset") and message.commit_offset > session.commits.committed:
            session.next_offset = max(session.next_offset, message.commit_offset)
            if session.commit(session.commits.committed, message.commit_offset):
                self._to_acknowledge.add(session.id)
                self._to_commit.set()
        session.is_started = True

    def _on_stopped(self, message: Any) -> None:
        session = self._sessions.get(message.partition_session_id)
        if session is not None and session.stop_by is not None:
            self._release(session)

    def _release(self, session: PartitionSession) -> None:
        """Release a partition; it is assigned to others once its commits are stored."""
        del self._sessions[session.id]
        self._by_partition.pop(session.queue, None)
        self._released.append(session)
        self._to_commit.set()

    def _request_stop(self, session: PartitionSession, *, graceful: bool) -> None:
        response = _Read.StopPartitionSessionRequest(
            partition_session_id=session.id, graceful=graceful, committed_offset=session.commits.committed
        )
        self._outbox.append({"stop_partition_session_request": response})
        self._wake()

    async def _watch(self) -> None:
        """Revoke partitions that a client does not release in time, and end when a topic or the consumer is deleted."""
        while True:
            await asyncio.sleep(POLL_S)
            for topic_id in self._subscriptions:
                self._check_consumer(self._broker.catalog.topic_by_id(topic_id))
            now = self._broker.clock.monotonic()
            for session in list(self._sessions.values()):
                if session.stop_by is not None and session.stop_by <= now:
                    self._request_stop(session, graceful=False)
                    self._release(session)

    async def _store_commits(self) -> None:
        while True:
            await self._to_commit.wait()
            self._to_commit.clear()
            acknowledged, self._to_acknowledge = self._to_acknowledge, set()
            released, self._released = self._released, []
            sessions = [self._sessions[session_id] for session_id in sorted(acknowledged) if session_id in self._sessions]
            sessions += (session for session in released if session.id in acknowledged)
            offsets = [(session, session.commits.committed) for session in sessions]
            if offsets:
                await self._broker.consumers.commit(
                    self.consumer, [(session.queue, Position(offset)) for session, offset in offsets]
                )
                response = _Read.CommitOffsetResponse()
                for session, offset in offsets:
                    response.partitions_committed_offsets.add(partition_session_id=session.id, committed_offset=offset)
                self._outbox.append({"commit_offset_response": response})
                self._wake()
            for session in released:
                self._readers.release(self.consumer, self, session.queue)

    async def _send(self) -> None:
        """Send everything in one order: control messages, new partitions, data."""
        while True:
            while self._outbox:
                await self._stream.send(**self._outbox.popleft())
            self._drained.set()
            if self._assigned:
                await self._announce(self._assigned[0])
                continue
            session = self._next_to_read() if self._may_send() else None
            if session is None:
                await self._wait()
            else:
                await self._send_data(session)

    async def _announce(self, queue: TopicPartition) -> None:
        """Start a partition session: send the client its partition and offsets."""
        subscription = self._subscriptions[queue.topic_id]
        self._last_id += 1
        session = PartitionSession(self._last_id, queue, subscription.path)
        try:
            partition = self._partition(session)
            committed, next_offset = await self._start_offsets(partition, session, subscription)
        except PartitionDamagedError:
            raise  # a retry cannot help: the client gets the error
        except UnavailableError:
            await asyncio.sleep(POLL_S)
            return
        if not self._assigned or self._assigned[0] != queue:
            return  # it was revoked meanwhile
        self._assigned.popleft()
        session.seek(committed, next_offset)
        session.began_ms = int(self._broker.clock.wall() * 1000)
        self._sessions[session.id] = self._by_partition[queue] = session
        request = _Read.StartPartitionSessionRequest(committed_offset=committed)
        request.partition_session.partition_session_id = session.id
        request.partition_session.path = session.path
        request.partition_session.partition_id = session.number
        request.partition_offsets.start, request.partition_offsets.end = partition.start_offset, partition.end_offset
        request.partition_location.generation = partition.epoch
        await self._stream.send(start_partition_session_request=request)

    async def _start_offsets(
        self, partition: Partition, session: PartitionSession, subscription: TopicSubscription
    ) -> tuple[int, int]:
        """The committed offset of a partition, and the one to read from."""
        position = self._broker.consumers.position(self.consumer, session.queue) if self.consumer else None
        committed = partition.start_offset
        if position is not None:
            committed = min(max(position.offset, committed), partition.end_offset)
        since_ms = subscription.read_from_ms
        if subscription.max_lag_ms:
            since_ms = max(since_ms, int(self._broker.clock.wall() * 1000) - subscription.max_lag_ms)
        start = max(committed, await first_offset_since(partition, since_ms)) if since_ms else committed
        return committed, start

    def _partition(self, session: PartitionSession) -> Partition:
        return self._broker.partition(self._broker.catalog.topic_by_id(session.queue.topic_id), session.number)

    def _may_send(self) -> bool:
        """Whether there is credit, and the reader is not throttled."""
        return self._credit > 0 and self._broker.clock.monotonic() >= self._throttled_until

    def _next_to_read(self) -> PartitionSession | None:
        """The next partition with something to read, in round robin."""
        sessions = [session for session in self._sessions.values() if session.is_started and session.stop_by is None]
        for at in range(len(sessions)):
            session = sessions[(self._turn + at) % len(sessions)]
            try:
                if self._partition(session).stable_offset > session.next_offset:
                    self._turn = (self._turn + at + 1) % len(sessions)
                    return session
            except PartitionDamagedError:
                raise
            except PartitionUnavailableError:
                continue
        return None

    async def _send_data(self, session: PartitionSession) -> None:
        await asyncio.sleep(0)  # a long run of aborted messages may be read from memory without suspending
        try:
            async for response in session.read(self._partition(session), min(self._credit, READ_BYTES)):
                if session.id not in self._sessions or session.stop_by is not None:
                    return  # it was revoked meanwhile; the next reader starts at the committed offset
                await self._send_response(session, response)
        except PartitionDamagedError:
            raise
        except UnavailableError:
            await asyncio.sleep(RETRY_S)

    async def _send_response(self, session: PartitionSession, response: ReadResponse) -> None:
        self._credit -= response.size
        session.last_read_ms = int(self._broker.clock.wall() * 1000)
        await self._stream.send_encoded(response.encoded)
        self._stream.probe.bytes_out += response.size
        if self._broker.quotas.limits_fetch:
            throttle_ms = self._broker.quotas.draw(FETCH_QUOTA, self._stream.caller.user, self.consumer, response.size)
            if throttle_ms:
                self._stream.probe.count_throttle(throttle_ms / 1000)
            self._throttled_until = self._broker.clock.monotonic() + throttle_ms / 1000

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        """Wait until there is something to send. A partition that restarts is found by polling."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        watched: list[Partition] = []
        throttle_s = max(self._throttled_until - self._broker.clock.monotonic(), 0)
        for session in self._sessions.values() if self._credit > 0 and not throttle_s else ():
            if session.is_started and session.stop_by is None:
                try:
                    watched.append(self._partition(session))
                except PenstockError:
                    continue  # it restarts
        for partition in watched:
            partition.arrivals.watch(waiter)
        try:
            await asyncio.wait([waiter], timeout=min(throttle_s or POLL_S, POLL_S))
        finally:
            for partition in watched:
                partition.arrivals.unwatch(waiter)
