"""The partition of the topic `_schemas` in a cluster: the registry of every node reads and writes it on the node that runs it.

The leader creates the topic. A call that finds the partition on no node yet, or on another node than the one asked, has done
nothing, and is made again for a while: so a registry goes on by itself when the node that ran the partition is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Final, TypeVar

import msgspec

from penstock.broker import Broker, PartitionBroker, PartitionUnavailableError
from penstock.broker.errors import UnknownTopicError
from penstock.broker.schema_registry import LogChangedError, LogPage, append_log, prepare_log, read_log, schemas_topic
from penstock.core.clock import Clock
from penstock.core.errors import UnavailableError
from penstock.interconnect import CallStatus, Handler, Interconnect, Link, Parts, Reply, ServedCall
from penstock.server.cluster.forwarding import NotLeadingError

SCHEMAS_DESTINATION: Final = 6
OWNER_WAIT_S: Final = 10.0  # for a node to run the partition
LOOK_S: Final = 0.05
CALL_S: Final = 10.0
PAGE_BYTES: Final = 96 << 10  # of a page that a call brings without saying so
LONG_PAGE_BYTES: Final = 24 << 20  # one batch may have 16 MiB


class SchemaMethod(IntEnum):
    """Calls about the partition."""

    READ = 1
    APPEND = 2
    PREPARE = 3


class _ReadCall(msgspec.Struct, frozen=True, array_like=True):
    offset: int
    size: int


class _AppendCall(msgspec.Struct, frozen=True, array_like=True):
    batch: bytes
    end_offset: int


class _Page(msgspec.Struct, frozen=True, array_like=True):
    """What READ answers; without a topic all numbers are -1."""

    batches: bytes
    next_offset: int
    end_offset: int


_encode: Final = msgspec.msgpack.encode
_PAGES: Final = msgspec.msgpack.Decoder(_Page)
_NOT_DONE: Final = frozenset({CallStatus.UNREACHABLE, CallStatus.OVERLOADED, CallStatus.UNKNOWN_DESTINATION})
# Errors of calls that have done nothing, and may succeed on another node or a moment later.
_NOT_DONE_CODES: Final = frozenset({"partition_unavailable", "partition_elsewhere", UnknownTopicError.code, NotLeadingError.code})

Answer = TypeVar("Answer")
BrokerOf = Callable[[], PartitionBroker | None]


class SchemaService:
    """Serves these calls. `broker_of` returns what this node runs; None while it has no catalog."""

    def __init__(self, interconnect: Interconnect, broker_of: BrokerOf) -> None:
        self._broker_of = broker_of
        handlers: dict[int, Handler] = {
            SchemaMethod.READ: self._read,
            SchemaMethod.APPEND: self._append,
            SchemaMethod.PREPARE: self._prepare,
        }
        # What is begun is completed: the next change is decided on it.
        interconnect.service.register(SCHEMAS_DESTINATION, handlers, cancels=False)

    @property
    def _broker(self) -> PartitionBroker:
        broker = self._broker_of()
        if broker is None:
            raise PartitionUnavailableError("this node is starting; try again in a moment")
        return broker

    async def _read(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=_ReadCall)
        page = await read_log(self._broker, asked.offset, asked.size)
        answer = _Page(b"", -1, -1) if page is None else _Page(bytes(page.batches), page.next_offset, page.end_offset)
        return (_encode(answer),)

    async def _append(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=_AppendCall)
        await append_log(self._broker, asked.batch, asked.end_offset)
        return ()

    async def _prepare(self, call: ServedCall) -> Parts:
        broker = self._broker
        if not isinstance(broker, Broker):
            raise NotLeadingError("this node does not lead")
        await prepare_log(broker)
        return ()


class ClusterSchemaPartition:
    """The partition as any node of the cluster uses it (`SchemaPartition`). `leader` returns the node that leads."""

    is_shared = True

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        broker_of: BrokerOf,
        leader: Callable[[], int | None],
        link_to: Callable[[int], Link],
    ) -> None:
        self.clock = clock
        self._node_id = node_id
        self._broker_of = broker_of
        self._leader = leader
        self._link_to = link_to
        self._is_prepared = False

    @property
    def exists(self) -> bool:
        """See SchemaPartition."""
        broker = self._broker_of()
        return broker is not None and schemas_topic(broker) is not None

    async def read(self, offset: int, size: int) -> LogPage | None:
        """See SchemaPartition."""
        return await self._persist(lambda: self._read_now(offset, size))

    async def append(self, batch: bytes, end_offset: int) -> None:
        """See SchemaPartition."""
        if not self._is_prepared:
            await self._persist(self._prepare_now)
            self._is_prepared = True
        await self._persist(lambda: self._append_now(batch, end_offset))

    async def _persist(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a call, and make it again while no node runs the partition, for some seconds."""
        deadline = self.clock.monotonic() + OWNER_WAIT_S
        while True:
            try:
                return await attempt()
            except (PartitionUnavailableError, UnknownTopicError):
                if self.clock.monotonic() >= deadline:
                    raise
            await asyncio.sleep(LOOK_S)

    async def _prepare_now(self) -> None:
        broker = self._broker_of()
        if isinstance(broker, Broker):
            await prepare_log(broker)
        else:
            await self._call(self._leader(), SchemaMethod.PREPARE, b"")

    async def _read_now(self, offset: int, size: int) -> LogPage | None:
        broker, owner = self._place()
        if broker is not None:
            return await read_log(broker, offset, size)
        body = _encode(_ReadCall(offset, min(size, PAGE_BYTES)))
        reply = await self._call(owner, SchemaMethod.READ, body)
        page = _PAGES.decode(reply.body)
        if page.end_offset < 0:
            return None
        return LogPage(page.batches, page.next_offset, page.end_offset)

    async def _append_now(self, batch: bytes, end_offset: int) -> None:
        broker, owner = self._place()
        if broker is not None:
            await append_log(broker, batch, end_offset)
        else:
            await self._call(owner, SchemaMethod.APPEND, _encode(_AppendCall(batch, end_offset)))

    def _place(self) -> tuple[PartitionBroker | None, int | None]:
        """Where the partition is: here, then what serves it; otherwise the node. Without a topic, the leader knows best."""
        broker = self._broker_of()
        topic = None if broker is None else schemas_topic(broker)
        if broker is None or topic is None:
            leads = isinstance(broker, Broker)
            return (broker, None) if leads else (None, self._leader())
        owner = broker.owner_of(topic, 0)
        return (broker, None) if owner == self._node_id else (None, owner)

    async def _call(self, node_id: int | None, method: SchemaMethod, body: bytes) -> Reply:
        """Call a node. PartitionUnavailableError if it has done nothing and another attempt may succeed, UnavailableError if it
        may have done what was asked."""
        if node_id is None or node_id == self._node_id:
            raise PartitionUnavailableError("no node runs the schema registry's partition now; try again in a moment")
        link = self._link_to(node_id)
        reply = await link.call(method, SCHEMAS_DESTINATION, (body,), timeout_s=CALL_S)
        if reply.status is CallStatus.TOO_LARGE and method is SchemaMethod.READ:
            reply = await link.call(method, SCHEMAS_DESTINATION, (body,), timeout_s=CALL_S, reply_bytes=LONG_PAGE_BYTES)
        if reply.status is CallStatus.OK:
            return reply
        if reply.code == LogChangedError.code:
            raise LogChangedError(reply.reason)
        is_done_or_open = reply.status not in _NOT_DONE and reply.code not in _NOT_DONE_CODES
        if is_done_or_open and method is SchemaMethod.APPEND:
            raise UnavailableError(f"node {node_id} did not answer, and may have stored the change: {reply.reason}; try it again")
        raise PartitionUnavailableError(f"node {node_id} does not answer about schemas: {reply.reason}")
