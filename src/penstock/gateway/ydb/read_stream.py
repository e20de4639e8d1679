"""StreamRead: a reader is given partitions, and data as far as its credit goes; it commits by ranges.

One task receives, one sends everything, one stores commits. Nothing is read ahead: data is taken from a partition when it can be
sent, so that a slow reader costs no more than one answer."""

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
from penstock.gateway.ydb.partition_read import PartitionRead, first_since
from penstock.gateway.ydb.paths import topic_name
from penstock.gateway.ydb.protos import Status, milliseconds, timestamp, topic
from penstock.gateway.ydb.read_answers import Answer
from penstock.gateway.ydb.readers import Readers
from penstock.gateway.ydb.sign_in import SignIn
from penstock.gateway.ydb.statuses import StatusError, bad_request, unsupported
from penstock.gateway.ydb.stream import Stream
from penstock.queue import Partition

READ_BYTES: Final = 1 << 20  # taken from a partition at a time
POLL_S: Final = 1.0  # a partition that starts again is looked for this often
RETRY_S: Final = 0.05
STOP_TIMEOUT_S: Final = 30.0  # after which a partition is taken from a reader that does not let go
WAITING_MAX: Final = 1000  # messages of the server that a client has not taken, before it is listened to no more
_Read = topic.StreamReadMessage


class Wanted(NamedTuple):
    """A topic that a reader wants to read."""

    topic: Topic
    path: str
    partitions: frozenset[int] | None
    read_from_ms: int
    max_lag_ms: int


class ReadStream:
    """One stream of a reader. `serve` it to its end."""

    def __init__(self, stream: Stream, broker: Broker, readers: Readers, sign_in: SignIn, random: Random) -> None:
        self._stream = stream
        self._broker = broker
        self._readers = readers
        self._sign_in = sign_in
        self.id = str(UUID(int=random.getrandbits(128), version=4))
        self.name = ""
        self.consumer = ""
        self._wanted: dict[UUID, Wanted] = {}
        self._credit = 0
        self._held_until = 0.0
        self._last_id = 0
        self._given: deque[TopicPartition] = deque()  # to be announced to the client
        self._outbox: deque[dict[str, Any]] = deque()
        self._parts: dict[int, PartitionRead] = {}
        self._by_queue: dict[TopicPartition, PartitionRead] = {}
        self._turn = 0
        self._waiter: asyncio.Future[None] | None = None
        self._drained = asyncio.Event()
        self._moved: set[int] = set()  # partition sessions whose committed offset moved
        self._let_go: list[PartitionRead] = []
        self._to_commit = asyncio.Event()

    async def serve(self) -> None:
        """From the first message to the last."""
        first = await self._stream.receive()
        if first is None:
            return
        if first.WhichOneof("client_message") != "init_request":
            raise bad_request("a stream begins with init_request")
        self._begin(first.init_request)
        await self._stream.send(init_response=_Read.InitResponse(session_id=self.id))
        wants = {one: wanted.partitions for one, wanted in self._wanted.items()}
        try:
            if self.consumer:
                self._readers.join(self.consumer, self, wants)
            else:
                self._give_all()
            await self._stream.run(self._receive(), self._send(), self._store_commits(), self._watch())
        finally:
            if self.consumer:
                self._readers.leave(self.consumer, self)

    def reading(self, queue: TopicPartition) -> PartitionRead | None:
        """How it reads a partition; None if it does not."""
        return self._by_queue.get(queue)

    def give(self, queue: TopicPartition) -> None:
        """It has a partition from now on."""
        self._given.append(queue)
        self._wake()

    def take(self, queue: TopicPartition) -> None:
        """It is to let go of a partition."""
        part = self._by_queue.get(queue)
        if part is None:
            # It was not told of it yet.
            self._given.remove(queue)
            asyncio.get_running_loop().call_soon(self._readers.released, self.consumer, self, queue)
            return
        part.stop_by = self._broker.clock.monotonic() + STOP_TIMEOUT_S
        self._say_stop(part, graceful=True)

    def committed(self, queue: TopicPartition, offset: int) -> None:
        """What it reads of a partition was committed up to an offset, outside of its stream."""
        part = self._by_queue.get(queue)
        if part is not None:
            part.commits.add(part.commits.committed, max(offset, part.commits.committed))

    def _begin(self, asked: Any) -> None:
        if asked.direct_read:
            raise unsupported("direct_read is not known here; read without it")
        self.consumer, self.name = asked.consumer, asked.reader_name
        if not asked.topics_read_settings:
            raise bad_request("a reader names at least one topic")
        if self.consumer:
            self._stream.caller.check_consumer(Operation.READ, self.consumer)
        for settings in asked.topics_read_settings:
            wanted = self._want(settings)
            if wanted.topic.id in self._wanted:
                raise bad_request(f"topic {wanted.path!r} is named twice")
            self._wanted[wanted.topic.id] = wanted

    def _want(self, asked: Any) -> Wanted:
        name = topic_name(asked.path, self._stream.database)
        self._stream.caller.check_topic(Operation.READ, name)
        found = self._broker.catalog.topic(name)
        self._check_consumer(found)
        numbers = frozenset(asked.partition_ids) or None
        if not self.consumer and numbers is None:
            raise bad_request("a reader without a consumer names the partitions that it wants")
        for number in numbers or ():
            self._broker.partition(found, number)
        read_from_ms = milliseconds(asked.read_from) if asked.HasField("read_from") else 0
        if self.consumer:
            declared = topic_settings.settings_of(found).consumers[self.consumer]
            read_from_ms = max(read_from_ms, declared.read_from_ms)
        max_lag_ms = asked.max_lag.ToMilliseconds() if asked.HasField("max_lag") else 0
        return Wanted(found, asked.path, numbers, read_from_ms, max_lag_ms)

    def _check_consumer(self, found: Topic) -> None:
        if self.consumer and self.consumer not in found.config.declared_consumers:
            raise StatusError(
                Status.SCHEME_ERROR,
                f"topic {found.name!r} has no consumer {self.consumer!r}; add it with AlterTopic (add_consumers)",
            )

    def _give_all(self) -> None:
        for topic_id, wanted in self._wanted.items():
            for number in sorted(wanted.partitions or ()):
                self.give(TopicPartition(topic_id, number))

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
                raise bad_request(f"{kind or 'an empty message'} has no place within a stream")
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
        for asked in message.commit_offsets:
            part = self._parts.get(asked.partition_session_id)
            if part is None:
                continue  # it was taken away meanwhile
            for one in asked.offsets:
                part.commit(one.start, one.end)
            self._moved.add(part.id)  # an answer is due even if it was committed before
        self._to_commit.set()

    def _on_status(self, message: Any) -> None:
        part = self._parts.get(message.partition_session_id)
        if part is None:
            return
        partition = self._partition(part)
        response = _Read.PartitionSessionStatusResponse(
            partition_session_id=part.id, committed_offset=part.commits.committed, read_offset=part.next_offset
        )
        response.partition_offsets.start, response.partition_offsets.end = partition.start_offset, partition.end_offset
        response.write_time_high_watermark.CopyFrom(timestamp(max(partition.max_timestamp, 0)))
        self._outbox.append({"partition_session_status_response": response})

    def _on_token(self, message: Any) -> None:
        self._stream.caller = self._sign_in.caller(message.token, self._stream.caller.host)
        self._outbox.append({"update_token_response": topic.UpdateTokenResponse()})

    def _on_started(self, message: Any) -> None:
        part = self._parts.get(message.partition_session_id)
        if part is None or part.is_started:
            return
        partition = self._partition(part)
        for offset in (message.read_offset, message.commit_offset):
            if not 0 <= offset <= partition.end_offset:
                raise bad_request(f"offset {offset} is not within partition {part.number}, which ends at {partition.end_offset}")
        if message.HasField("read_offset"):
            part.next_offset = max(message.read_offset, partition.start_offset)
        if message.HasField("commit_offset") and message.commit_offset > part.commits.committed:
            part.next_offset = max(part.next_offset, message.commit_offset)
            if part.commit(part.commits.committed, message.commit_offset):
                self._moved.add(part.id)
                self._to_commit.set()
        part.is_started = True

    def _on_stopped(self, message: Any) -> None:
        part = self._parts.get(message.partition_session_id)
        if part is not None and part.stop_by is not None:
            self._forget(part)

    def _forget(self, part: PartitionRead) -> None:
        """A partition is let go of; others have it once what was committed is stored."""
        del self._parts[part.id]
        self._by_queue.pop(part.queue, None)
        self._let_go.append(part)
        self._to_commit.set()

    def _say_stop(self, part: PartitionRead, *, graceful: bool) -> None:
        response = _Read.StopPartitionSessionRequest(
            partition_session_id=part.id, graceful=graceful, committed_offset=part.commits.committed
        )
        self._outbox.append({"stop_partition_session_request": response})
        self._wake()

    async def _watch(self) -> None:
        """Take partitions from a client that does not let go of them, and end when a topic or the consumer is gone."""
        while True:
            await asyncio.sleep(POLL_S)
            for topic_id in self._wanted:
                self._check_consumer(self._broker.catalog.topic_by_id(topic_id))
            now = self._broker.clock.monotonic()
            for part in list(self._parts.values()):
                if part.stop_by is not None and part.stop_by <= now:
                    self._say_stop(part, graceful=False)
                    self._forget(part)

    async def _store_commits(self) -> None:
        while True:
            await self._to_commit.wait()
            self._to_commit.clear()
            moved, self._moved = self._moved, set()
            let_go, self._let_go = self._let_go, []
            parts = [self._parts[one] for one in sorted(moved) if one in self._parts]
            parts += (part for part in let_go if part.id in moved)
            offsets = [(part, part.commits.committed) for part in parts]
            if offsets:
                await self._broker.consumers.commit(self.consumer, [(part.queue, Position(at)) for part, at in offsets])
                response = _Read.CommitOffsetResponse()
                for part, at in offsets:
                    response.partitions_committed_offsets.add(partition_session_id=part.id, committed_offset=at)
                self._outbox.append({"commit_offset_response": response})
                self._wake()
            for part in let_go:
                self._readers.released(self.consumer, self, part.queue)

    async def _send(self) -> None:
        """Everything the client is sent, in one order."""
        while True:
            while self._outbox:
                await self._stream.send(**self._outbox.popleft())
            self._drained.set()
            if self._given:
                await self._announce(self._given[0])
                continue
            part = self._next_to_read() if self._may_send() else None
            if part is None:
                await self._wait()
            else:
                await self._send_data(part)

    async def _announce(self, queue: TopicPartition) -> None:
        """Tell the client of a partition that it is given, and from where it will be read."""
        wanted = self._wanted[queue.topic_id]
        self._last_id += 1
        part = PartitionRead(self._last_id, queue, wanted.path)
        try:
            partition = self._partition(part)
            committed, next_offset = await self._start_of(partition, part, wanted)
        except PartitionDamagedError:
            raise  # no other try gives it: the client is told
        except UnavailableError:
            await asyncio.sleep(POLL_S)
            return
        if not self._given or self._given[0] != queue:
            return  # it was taken away meanwhile
        self._given.popleft()
        part.place(committed, next_offset)
        part.began_ms = int(self._broker.clock.wall() * 1000)
        self._parts[part.id] = self._by_queue[queue] = part
        request = _Read.StartPartitionSessionRequest(committed_offset=committed)
        request.partition_session.partition_session_id = part.id
        request.partition_session.path = part.path
        request.partition_session.partition_id = part.number
        request.partition_offsets.start, request.partition_offsets.end = partition.start_offset, partition.end_offset
        request.partition_location.generation = partition.epoch
        await self._stream.send(start_partition_session_request=request)

    async def _start_of(self, partition: Partition, part: PartitionRead, wanted: Wanted) -> tuple[int, int]:
        """The committed offset of a partition, and the one to read from."""
        position = self._broker.consumers.position(self.consumer, part.queue) if self.consumer else None
        committed = partition.start_offset
        if position is not None:
            committed = min(max(position.offset, committed), partition.end_offset)
        since_ms = wanted.read_from_ms
        if wanted.max_lag_ms:
            since_ms = max(since_ms, int(self._broker.clock.wall() * 1000) - wanted.max_lag_ms)
        start = max(committed, await first_since(partition, since_ms)) if since_ms else committed
        return committed, start

    def _partition(self, part: PartitionRead) -> Partition:
        return self._broker.partition(self._broker.catalog.topic_by_id(part.queue.topic_id), part.number)

    def _may_send(self) -> bool:
        """Whether there is credit, and no quota holds data back."""
        return self._credit > 0 and self._broker.clock.monotonic() >= self._held_until

    def _next_to_read(self) -> PartitionRead | None:
        """A partition with something to read, each in its turn."""
        parts = [part for part in self._parts.values() if part.is_started and part.stop_by is None]
        for at in range(len(parts)):
            part = parts[(self._turn + at) % len(parts)]
            try:
                if self._partition(part).stable_offset > part.next_offset:
                    self._turn = (self._turn + at + 1) % len(parts)
                    return part
            except PartitionDamagedError:
                raise
            except PartitionUnavailableError:
                continue
        return None

    async def _send_data(self, part: PartitionRead) -> None:
        await asyncio.sleep(0)  # a long stretch of aborted messages is read from memory without suspending
        try:
            async for answer in part.read(self._partition(part), min(self._credit, READ_BYTES)):
                if part.id not in self._parts or part.stop_by is not None:
                    return  # it was taken away meanwhile; the next reader begins at what is committed
                await self._send_answer(part, answer)
        except PartitionDamagedError:
            raise
        except UnavailableError:
            await asyncio.sleep(RETRY_S)

    async def _send_answer(self, part: PartitionRead, answer: Answer) -> None:
        self._credit -= answer.size
        part.last_read_ms = int(self._broker.clock.wall() * 1000)
        await self._stream.send_encoded(answer.encoded)
        self._stream.probe.bytes_out += answer.size
        if self._broker.quotas.limits_fetch:
            held_ms = self._broker.quotas.draw(FETCH_QUOTA, self._stream.caller.user, self.consumer, answer.size)
            if held_ms:
                self._stream.probe.hold_back(held_ms / 1000)
            self._held_until = self._broker.clock.monotonic() + held_ms / 1000

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        """Until there is something to send; a partition that starts again is found by looking now and then."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        watched: list[Partition] = []
        held_s = max(self._held_until - self._broker.clock.monotonic(), 0)
        for part in self._parts.values() if self._credit > 0 and not held_s else ():
            if part.is_started and part.stop_by is None:
                try:
                    watched.append(self._partition(part))
                except PenstockError:
                    continue  # it starts again
        for partition in watched:
            partition.arrivals.watch(waiter)
        try:
            await asyncio.wait([waiter], timeout=min(held_s or POLL_S, POLL_S))
        finally:
            for partition in watched:
                partition.arrivals.unwatch(waiter)
