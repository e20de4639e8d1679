"""Partitions of other nodes, as the API of the leader uses them: each look, read, write and trim is a call to the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from penstock.broker import PartitionBroker, PartitionStatus, Produced, Topic
from penstock.broker.errors import PartitionUnavailableError
from penstock.core.errors import InvalidRequestError, PenstockError, UnavailableError
from penstock.interconnect import CallStatus, Handler, Interconnect, Parts, ServedCall
from penstock.queue import Aborted, Partition, ReadResult, joined
from penstock.server.cluster.peers import Peers

PARTITIONS_DESTINATION: Final = 7
READ_S: Final = 10.0
REPLY_BYTES: Final = 9 << 20  # a batch of any size fits
READS_AT_ONCE: Final = 3  # of one node: that many replies fit into the window of a destination

encode: Final = msgspec.msgpack.encode
Answer = TypeVar("Answer")


class PartitionMethod(IntEnum):
    """Calls to the owner of partitions."""

    LOOK = 1
    READ = 2
    FIND_TIME = 3
    WRITE = 4
    TRIM = 5


class LookCall(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of a topic to look at."""

    topic_id: bytes
    numbers: list[int]


class ReadCall(msgspec.Struct, frozen=True, array_like=True):
    """What to read of a partition; see `Partition.read`."""

    topic_id: bytes
    number: int
    offset: int
    bytes_max: int
    until: int | None


class ReadReply(msgspec.Struct, frozen=True, array_like=True):
    """What was read, with the aborted transactions in it."""

    next_offset: int
    batches: bytes
    aborted: list[Aborted]


class FindTimeCall(msgspec.Struct, frozen=True, array_like=True):
    """A time to find in a partition."""

    topic_id: bytes
    number: int
    timestamp_ms: int


class WriteCall(msgspec.Struct, frozen=True, array_like=True):
    """A batch for a partition."""

    topic_id: bytes
    number: int
    batch: bytes


class TrimCall(msgspec.Struct, frozen=True, array_like=True):
    """Deletes the messages of a partition before an offset; None deletes all."""

    topic_id: bytes
    number: int
    offset: int | None


class PartitionService:
    """Reads, writes and trims partitions of this node for others. `broker` is what serves them; None while this node starts."""

    def __init__(self, interconnect: Interconnect, broker: Callable[[], PartitionBroker | None]) -> None:
        self._broker = broker
        handlers: dict[int, Handler] = {
            PartitionMethod.LOOK: self._serve_look,
            PartitionMethod.READ: self._serve_read,
            PartitionMethod.FIND_TIME: self._serve_find_time,
            PartitionMethod.WRITE: self._serve_write,
            PartitionMethod.TRIM: self._serve_trim,
        }
        interconnect.service.register(PARTITIONS_DESTINATION, handlers)

    async def _serve_look(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=LookCall)
        partitions = [self._partition(asked.topic_id, number) for number in asked.numbers]
        for partition in partitions:
            await partition.tablet.confirm()
        return (encode([PartitionStatus.of(partition) for partition in partitions]),)

    async def _serve_read(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=ReadCall)
        partition = self._partition(asked.topic_id, asked.number)
        read = await partition.read(asked.offset, asked.bytes_max, until=asked.until, is_consumed=False)
        aborted = partition.aborted_between(asked.offset, read.next_offset)
        return (encode(ReadReply(read.next_offset, joined(read), aborted)),)

    async def _serve_find_time(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=FindTimeCall)
        located = await self._partition(asked.topic_id, asked.number).find_time(asked.timestamp_ms)
        return (encode([] if located is None else [located[0]]),)

    async def _serve_write(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=WriteCall)
        broker = self._serving()
        return (encode(await broker.produce(broker.catalog.topic_by_id(UUID(bytes=asked.topic_id)), asked.number, asked.batch)),)

    async def _serve_trim(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=TrimCall)
        partition = self._partition(asked.topic_id, asked.number)
        await partition.tablet.confirm()
        return (encode(await partition.trim(partition.end_offset if asked.offset is None else asked.offset)),)

    def _partition(self, topic_id: bytes, number: int) -> Partition:
        broker = self._serving()
        return broker.partition(broker.catalog.topic_by_id(UUID(bytes=topic_id)), number)

    def _serving(self) -> PartitionBroker:
        broker = self._broker()
        if broker is None:
            raise PartitionUnavailableError("this node starts; try again in a moment")
        return broker


class RemotePartition:
    """A partition of another node, with the offsets that it had when it was looked at."""

    def __init__(self, partitions: RemotePartitions, node_id: int, topic_id: bytes, status: PartitionStatus) -> None:
        self._partitions = partitions
        self._node_id = node_id
        self._topic_id = topic_id
        self._aborted: list[Aborted] = []  # of what was read last
        self.number = status.number
        self.start_offset = status.start_offset
        self.end_offset = status.end_offset
        self.stable_offset = status.stable_offset
        self.max_timestamp = status.max_timestamp

    async def read(self, offset: int, bytes_max: int, *, until: int | None = None, is_consumed: bool = True) -> ReadResult:
        """See Partition. The other node counts none of these reads: they are of the console and the admin API."""
        call = ReadCall(self._topic_id, self.number, offset, bytes_max, until)
        reply = await self._partitions.call(self._node_id, PartitionMethod.READ, call, ReadReply)
        self._aborted = reply.aborted
        batches = (reply.batches,) if reply.batches else ()
        size = len(reply.batches)
        return ReadResult(batches, size, reply.next_offset, self.start_offset, self.end_offset, self.stable_offset)

    def aborted_between(self, begin: int, end: int) -> list[Aborted]:
        """Aborted transactions with a part in what was read last."""
        return [aborted for aborted in self._aborted if aborted.last_offset >= begin and aborted.first_offset < end]

    async def find_time(self, timestamp_ms: int) -> tuple[int, bytes] | None:
        """The base offset of the first batch with this timestamp or a later one; its bytes are not fetched."""
        call = FindTimeCall(self._topic_id, self.number, timestamp_ms)
        located = await self._partitions.call(self._node_id, PartitionMethod.FIND_TIME, call, list[int])
        return (located[0], b"") if located else None


class RemotePartitions:
    """Reads, writes and trims partitions of other nodes."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._limits: dict[int, asyncio.Semaphore] = {}

    async def look(self, topic: Topic, numbers_by_node: Mapping[int, Sequence[int]]) -> list[RemotePartition]:
        """Partitions of a topic as their owners have them now. UnavailableError if one does not answer."""
        topic_id = topic.id.bytes

        async def ask(node_id: int, numbers: Sequence[int]) -> list[RemotePartition]:
            call = LookCall(topic_id, list(numbers))
            statuses = await self.call(node_id, PartitionMethod.LOOK, call, list[PartitionStatus])
            return [RemotePartition(self, node_id, topic_id, status) for status in statuses]

        looked = await asyncio.gather(*(ask(node_id, numbers) for node_id, numbers in numbers_by_node.items()))
        return [partition for partitions in looked for partition in partitions]

    async def write(self, node_id: int, topic: Topic, number: int, batch: bytes) -> Produced:
        """Store a batch, as `PartitionBroker.produce` does."""
        return await self.call(node_id, PartitionMethod.WRITE, WriteCall(topic.id.bytes, number, batch), Produced)

    async def trim(self, node_id: int, topic: Topic, number: int, offset: int | None) -> int:
        """Delete messages before an offset, or all. Returns where the partition starts then."""
        return await self.call(node_id, PartitionMethod.TRIM, TrimCall(topic.id.bytes, number, offset), int)

    async def call(self, node_id: int, method: PartitionMethod, body: msgspec.Struct, kind: type[Answer]) -> Answer:
        """The answer of a node. UnavailableError if it gives none, InvalidRequestError if it refuses what it is asked."""
        async with self._limits.setdefault(node_id, asyncio.Semaphore(READS_AT_ONCE)):
            reply = await self._peers.link(node_id).call(
                method, PARTITIONS_DESTINATION, (encode(body),), timeout_s=READ_S, reply_bytes=REPLY_BYTES
            )
        if reply.status is CallStatus.FAILED and reply.code in _codes_of(InvalidRequestError):
            raise InvalidRequestError(reply.reason)
        if reply.status is not CallStatus.OK:
            raise UnavailableError(f"node {node_id}, which has the partition, does not answer: {reply.reason}; try again")
        return msgspec.msgpack.decode(reply.body, type=kind)


def _codes_of(kind: type[PenstockError]) -> set[str]:
    """The codes of a kind of error and of all below it."""
    return {kind.code}.union(*(_codes_of(below) for below in kind.__subclasses__()))
